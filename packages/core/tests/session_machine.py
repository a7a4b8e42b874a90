"""Plays people, the model, tools, workers and time against one session, and lets the oracle check every commit."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from dex_agents.session.outcomes import (
    ModelStepOutcome,
    ModelStepRefused,
    ModelStepSnapshot,
    RequestedToolCall,
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallSucceeded,
    ToolCallTaskStarted,
    ToolOutcome,
    ToolTaskCancelled,
    ToolTaskOutcome,
    ToolTaskStillPending,
    UnfinishedTurnOutcome,
)
from dex_agents.session.rpc_values import ListAgentMessagesInput
from dex_agents.session.rpcs import LIST_AGENT_MESSAGES
from dex_agents.session.tool_values import AgentInterrupt
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.values import AgentUsage
from dex_agents.testing import SessionDriver
from dex_flow.codec import decode
from dex_flow.kernel import AttemptDiscardedError, AttemptSucceeded, ClaimedAttempt

from .session_call_model import CallModel
from .session_context_rules import ContextRules
from .session_oracle import SessionOracle
from .session_pairing_runner import PairingRunner
from .session_stored_messages import WatchedStore
from .session_strategies import (
    ANSWERS,
    DEADLINE_SECONDS,
    EDITS,
    QUESTIONS,
    Configuration,
    configurations,
    moves,
    picks,
    questions,
    requested_calls,
    seconds,
    some_requested_calls,
)

__all__ = ["SessionMachine"]

TOOL_STEPS = ("CallTool", "CallSingleAttemptTool")
BUILDER_STEPS = ("ApplyTurnControl", "RecordTurnFailure")

Choice = TypeVar("Choice")
Output = TypeVar("Output")


def runs(*step_types: str) -> Callable[[Any], bool]:
    """A precondition: an attempt of one of these Step types has started."""
    return lambda machine: bool(machine.started(*step_types))


class SessionMachine(ContextRules):
    """One history of one session."""

    #: Histories that came to their end, and what they met on the way.
    histories: ClassVar[int] = 0
    reached: ClassVar[Counter[str]] = Counter()

    @initialize(configuration=configurations)
    def begin(self, configuration: Configuration) -> None:
        self.driver = SessionDriver(
            configuration.options(),
            compacts=configuration.compacts,
            builds_unfinished_turns=configuration.builds_unfinished_turns,
            polls_tasks=configuration.polls_tasks,
            cancels_tasks=configuration.cancels_tasks,
        )
        self.driver.starts_claims = configuration.starts_claims
        self.oracle = SessionOracle(configuration, lambda: self.driver.now)
        self.driver.store = WatchedStore(self.oracle.observe)
        self.runner = PairingRunner(configuration.builds_unfinished_turns)
        self.inputs: dict[tuple[int, int], ModelStepSnapshot] = {}
        self.discarded: list[ClaimedAttempt] = []
        self.text_count = 0
        self.model_calls = 0
        text = self.new_text() if configuration.has_initial_message else None
        if text is not None:
            self.oracle.send(text)
        self.driver.start(text)

    def new_text(self) -> str:
        self.text_count += 1
        return f"m{self.text_count}"

    def says(self, expected: Output, command: Callable[[], Output]) -> None:
        """Apply an RPC whose answer is known; a refused one changes nothing."""
        commits, running = self.oracle.commits, dict(self.driver.running)
        answer = command()
        assert answer == expected
        assert answer or self.oracle.commits == commits
        self.note_discarded(running)

    def note_discarded(self, running: dict[int, ClaimedAttempt]) -> None:
        """Remember attempts that the last command took from their worker."""
        now = self.driver.running
        self.discarded += [
            claim
            for claim in running.values()
            if claim.is_started
            and (claim.step_execution_id not in now or now[claim.step_execution_id].attempt != claim.attempt)
        ]

    def claims(self, *step_types: str) -> list[ClaimedAttempt]:
        return [claim for claim in self.driver.running.values() if claim.step_type in step_types]

    def started(self, *step_types: str) -> list[ClaimedAttempt]:
        return [claim for claim in self.claims(*step_types) if claim.is_started]

    def unstarted(self) -> list[ClaimedAttempt]:
        return [claim for claim in self.driver.running.values() if not claim.is_started]

    def call_of(self, claim: ClaimedAttempt) -> CallModel:
        return self.oracle.call(decode(str, claim.input))

    # People

    @rule(steers=st.booleans())
    def send(self, steers: bool) -> None:
        text = self.new_text()
        if self.oracle.turn is None:
            self.says(False, lambda: self.driver.cancel_turn())
            self.says(False, lambda: self.driver.cancel_turn("turn-1"))
        if steers and self.oracle.turn is None:
            self.says(self.oracle.steer_text(text), lambda: self.driver.steer(text))
        else:
            self.says(self.oracle.send(text), lambda: self.driver.send(text))

    @precondition(lambda self: self.oracle.turn)
    @rule()
    def steer(self) -> None:
        text = self.new_text()
        self.says(self.oracle.steer_text(text), lambda: self.driver.steer(text))

    @precondition(lambda self: self.oracle.turn)
    @rule(pick=picks)
    def what_cannot_be_is_refused(self, pick: int) -> None:
        blank = "" if pick % 2 else " \n"
        self.says(False, lambda: self.driver.send(blank))
        self.says(False, lambda: self.driver.steer(blank))
        self.says(False, lambda: self.driver.steer())
        self.says(False, lambda: self.driver.steer("both", message_id=pick))
        self.says(False, lambda: self.driver.steer(message_id=10_000))
        self.says(False, lambda: self.driver.delete_queued(10_000))
        self.says(False, lambda: self.driver.cancel_turn("turn-0"))
        ended = [key for key in self.oracle.interrupts_so_far() if key not in self.oracle.pending]
        key = self.pick(pick, [*ended, "turn-1.nothing"])
        self.says(False, lambda: self.driver.resolve(key, True))
        self.says(False, lambda: self.driver.answer(key, "yes"))
        if self.discarded:
            self.late_outcome_is_dropped(pick)
        for key, interrupt in self.oracle.pending.items():
            if interrupt.kind == "approval":
                self.says(False, lambda key=key: self.driver.answer(key, "yes"))  # type: ignore[misc]
            else:
                self.says(False, lambda key=key: self.driver.resolve(key, True))  # type: ignore[misc]

    @precondition(lambda self: self.oracle.queued)
    @rule(pick=picks, deletes=st.booleans())
    def take_from_queue(self, pick: int, deletes: bool) -> None:
        message_ids = [message_id for message_id, _ in self.driver.store.messages("QueuedUserMessages", "", None)]
        index = pick % len(message_ids)
        if deletes:
            self.says(self.oracle.delete(index), lambda: self.driver.delete_queued(message_ids[index]))
        else:
            self.says(self.oracle.steer_queued(index), lambda: self.driver.steer(message_id=message_ids[index]))

    @precondition(lambda self: self.oracle.turn)
    @rule(names_it=st.booleans(), twice=st.booleans())
    def cancel(self, names_it: bool, twice: bool) -> None:
        turn = self.oracle.turn if names_it else None
        is_cancelled = self.oracle.cancel(turn)
        self.says(is_cancelled, lambda: self.driver.cancel_turn(turn))
        if twice and self.oracle.control == "turn_cancelled":
            commits = self.oracle.commits
            self.says(self.oracle.cancel(turn), lambda: self.driver.cancel_turn(turn))
            assert self.oracle.commits == commits

    @precondition(lambda self: self.oracle.pending)
    @rule(pick=picks, approved=st.booleans(), message=st.sampled_from([None, " ", "not now"]))
    def resolve(self, pick: int, approved: bool, message: str | None) -> None:
        key = self.pick(pick, list(self.oracle.pending))
        is_resolved = self.oracle.resolve(key, approved, message)
        self.says(is_resolved, lambda: self.driver.resolve(key, approved, message))
        if is_resolved:
            self.says(False, lambda: self.driver.resolve(key, False))

    @precondition(lambda self: any(interrupt.kind == "question" for interrupt in self.oracle.pending.values()))
    @rule(pick=picks, answer=st.sampled_from(ANSWERS))
    def answer(self, pick: int, answer: str) -> None:
        key = self.pick(pick, [key for key, i in self.oracle.pending.items() if i.kind == "question"])
        self.says(self.oracle.answer(key, answer), lambda: self.driver.answer(key, answer))

    # Everybody

    @rule(moves=moves(4))
    def work_goes_on(self, moves: list[tuple[int, int]]) -> None:
        """Several steps at once that people or attempts take; each pair picks who, and what they do."""
        if self.oracle.turn is None:
            if self.oracle.plans.revision and moves[0][0] % 2 == 0:
                self.approve_plan(0, False)
            if self.oracle.turn is None:
                self.send(False)
            self.the_session_keeps_its_promises()
        if not self.driver.has_worker:
            self.driver.take_work()
            self.the_session_keeps_its_promises()
        for who, what in moves:
            someone: list[ClaimedAttempt | AgentInterrupt] = [
                *self.driver.running.values(),
                *self.oracle.pending.values(),
            ]
            if someone:
                self.take_step(self.pick(who, someone), who, what)
            elif self.driver.store.next_due is not None:
                self.clock_reaches(self.driver.store.next_due)
            self.the_session_keeps_its_promises()

    @rule(moves=moves(4))
    def work_goes_further(self, moves: list[tuple[int, int]]) -> None:
        self.work_goes_on(moves)

    @rule(moves=moves(12))
    def much_work_is_done(self, moves: list[tuple[int, int]]) -> None:
        self.work_goes_on(moves)

    def take_step(self, someone: ClaimedAttempt | AgentInterrupt, who: int, what: int) -> None:
        if isinstance(someone, AgentInterrupt):
            key, decides = someone.interrupt_id, what % 4 != 0
            if someone.kind == "approval" and decides and who % 3 == 0:
                self.approve_with_changes(who, EDITS[what % len(EDITS)], True)
            elif someone.kind == "approval":
                self.says(self.oracle.resolve(key, decides, None), lambda: self.driver.resolve(key, decides))
            else:
                self.says(self.oracle.answer(key, "yes"), lambda: self.driver.answer(key, "yes"))
        elif not someone.is_started:
            self.driver.begin(someone)
        elif someone.step_type == "RunModel":
            if what % 7 == 0 and self.cutoffs(someone):
                self.model_needs_compaction(who, what % 2 == 0)
            elif self.oracle.plans.mode == "planning" and what % 3:
                self.model_writes_a_plan(who)
            elif what % 10:
                self.model_asks_for_tools(some_requested_calls(who, what))
            else:
                self.model_answers()
        elif someone.step_type == "CompactContext":
            if what % 3:
                self.summary_ends()
            else:
                self.summary_attempt_fails(what % 2 == 0)
        elif someone.step_type in BUILDER_STEPS:
            self.builder_ends(who)
        elif someone.step_type == "CancelToolTask":
            self.task_cancellation_ends(who, what % 2 == 0, True)
        else:
            self.take_tool_step(who, what, polls=someone.step_type == "PollToolTask")

    def take_tool_step(self, who: int, what: int, *, polls: bool) -> None:
        match what % 6:
            case 0 if polls:
                self.task_ends(who, True)
            case 0 | 1 if not polls:
                self.tool_ends(who, what % 2 == 0)
            case 2:
                (self.task_asks if polls else self.tool_asks)(who, QUESTIONS[who % len(QUESTIONS)])
            case 3:
                (self.poll_attempt_fails if polls else self.tool_attempt_fails)(who, True)
            case _ if polls:
                self.task_goes_on(who, "c3" if who % 2 else None, 1)
            case _:
                self.tool_starts_task(who, 1)

    # The model

    def input_of(self, claim: ClaimedAttempt) -> ModelStepSnapshot:
        return self.inputs[claim.step_execution_id, claim.attempt]

    def new_usage(self) -> AgentUsage:
        self.model_calls += 1
        return AgentUsage(model_calls=1, input_tokens=self.model_calls, total_tokens=self.model_calls)

    def end_model_step(self, outcome_of: Callable[[ModelStepSnapshot, AgentUsage], ModelStepOutcome]) -> None:
        (claim,) = self.started("RunModel")
        outcome = outcome_of(self.input_of(claim), self.new_usage())
        self.oracle.model_ends(outcome)
        self.driver.succeed(claim, outcome)

    @precondition(runs("RunModel"))
    @rule()
    def model_answers(self) -> None:
        self.end_model_step(lambda input, usage: self.runner.completed(input, "done", usage))

    @precondition(runs("RunModel"))
    @rule(calls=requested_calls)
    def model_asks_for_tools(self, calls: list[RequestedToolCall]) -> None:
        self.end_model_step(lambda input, usage: self.runner.tool_calls(input, calls, usage))

    @precondition(runs("RunModel"))
    @rule(calls=requested_calls)
    def model_asks_for_more_tools(self, calls: list[RequestedToolCall]) -> None:
        self.model_asks_for_tools(calls)

    @precondition(runs("RunModel"))
    @rule(refuses=st.booleans())
    def model_gives_no_answer(self, refuses: bool) -> None:
        if refuses:
            refusal = "TurnRefusedError"
            self.end_model_step(lambda _, usage: ModelStepRefused(error_type=refusal, message="no", usage=usage))
        else:
            self.end_model_step(self.runner.continued)

    @precondition(runs("RunModel"))
    @rule(may_retry=st.booleans())
    def model_attempt_fails(self, may_retry: bool) -> None:
        (claim,) = self.started("RunModel")
        self.oracle.model_attempt_fails(may_retry=may_retry, is_lost=False)
        self.driver.fail(claim, is_retryable=may_retry)

    @precondition(runs(*BUILDER_STEPS))
    @rule(pick=picks)
    def builder_ends(self, pick: int) -> None:
        (claim,) = self.started(*BUILDER_STEPS)
        if pick in (0, 1):
            self.driver.fail(claim, is_retryable=pick == 1)
        elif pick == 2:
            self.oracle.builder_ends(None)
            self.driver.succeed(claim, UnfinishedTurnOutcome(error="broken"))
        else:
            messages = self.runner.unfinished(self.driver.snapshot_of(claim))
            self.oracle.builder_ends(messages)
            self.driver.succeed(claim, UnfinishedTurnOutcome(messages=messages))

    # Tools and their remote work

    @precondition(lambda self: self.unstarted())
    @rule(pick=picks)
    def claimed_attempt_begins(self, pick: int) -> None:
        self.driver.begin(self.pick(pick, self.unstarted()))

    def end_tool(self, claim: ClaimedAttempt, outcome: ToolOutcome) -> None:
        call, now = self.call_of(claim), self.driver.now
        match outcome:
            case ToolCallSucceeded():
                call.end(Status.SUCCEEDED, text=outcome.output)
            case ToolCallFailed():
                call.end(Status.FAILED, text=outcome.message)
            case ToolCallInputRequested():
                call.asked(outcome.continuation, self.oracle.control)
            case ToolCallTaskStarted():
                if self.oracle.configuration.polls_tasks:
                    call.task_started(outcome.task_id, outcome.poll_interval_seconds, now, self.oracle.control)
                else:
                    call.task_id = outcome.task_id
                    call.end(call.status_when_lost)
        self.driver.succeed(claim, outcome)

    @precondition(runs(*TOOL_STEPS))
    @rule(pick=picks, succeeds=st.booleans())
    def tool_ends(self, pick: int, succeeds: bool) -> None:
        outcome = ToolCallSucceeded(output="result") if succeeds else ToolCallFailed(message="no such thing")
        self.end_tool(self.pick(pick, self.started(*TOOL_STEPS)), outcome)

    @precondition(runs(*TOOL_STEPS))
    @rule(pick=picks, question=questions)
    def tool_asks(self, pick: int, question: ToolCallInputRequested) -> None:
        self.end_tool(self.pick(pick, self.started(*TOOL_STEPS)), question)

    @precondition(runs(*TOOL_STEPS))
    @rule(pick=picks, interval=st.sampled_from([1, 30]))
    def tool_starts_task(self, pick: int, interval: int) -> None:
        claim = self.pick(pick, self.started(*TOOL_STEPS))
        self.end_tool(claim, ToolCallTaskStarted(task_id=f"task-{self.text_count}", poll_interval_seconds=interval))

    @precondition(runs(*TOOL_STEPS))
    @rule(pick=picks, may_retry=st.booleans())
    def tool_attempt_fails(self, pick: int, may_retry: bool) -> None:
        claim = self.pick(pick, self.started(*TOOL_STEPS))
        self.call_of(claim).attempt_failed(
            self.driver.now, may_retry=may_retry, is_lost=False, control=self.oracle.control
        )
        self.driver.fail(claim, is_retryable=may_retry)

    def end_poll(self, claim: ClaimedAttempt, outcome: ToolTaskOutcome) -> None:
        call, now = self.call_of(claim), self.driver.now
        match outcome:
            case ToolCallSucceeded():
                call.end(Status.SUCCEEDED, text=outcome.output)
            case ToolCallFailed():
                call.end(Status.FAILED, text=outcome.message)
            case ToolCallInputRequested():
                call.asked(outcome.continuation, self.oracle.control)
            case ToolTaskStillPending():
                call.still_pending(outcome.continuation, outcome.poll_interval_seconds, now)
        self.driver.succeed(claim, outcome)

    @precondition(runs("PollToolTask"))
    @rule(pick=picks, succeeds=st.booleans())
    def task_ends(self, pick: int, succeeds: bool) -> None:
        outcome = ToolCallSucceeded(output="result") if succeeds else ToolCallFailed(message="no such thing")
        self.end_poll(self.pick(pick, self.started("PollToolTask")), outcome)

    @precondition(runs("PollToolTask"))
    @rule(pick=picks, question=questions)
    def task_asks(self, pick: int, question: ToolCallInputRequested) -> None:
        self.end_poll(self.pick(pick, self.started("PollToolTask")), question)

    @precondition(runs("PollToolTask"))
    @rule(pick=picks, continuation=st.sampled_from([None, "c3"]), interval=st.sampled_from([1, 60]))
    def task_goes_on(self, pick: int, continuation: str | None, interval: int) -> None:
        claim = self.pick(pick, self.started("PollToolTask"))
        self.end_poll(claim, ToolTaskStillPending(poll_interval_seconds=interval, continuation=continuation))

    @precondition(runs("PollToolTask"))
    @rule(pick=picks, may_retry=st.booleans())
    def poll_attempt_fails(self, pick: int, may_retry: bool) -> None:
        claim = self.pick(pick, self.started("PollToolTask"))
        self.call_of(claim).poll_failed(self.driver.now, may_retry=may_retry, is_lost=False)
        self.driver.fail(claim, is_retryable=may_retry)

    @precondition(runs("CancelToolTask"))
    @rule(pick=picks, succeeds=st.booleans(), may_retry=st.booleans())
    def task_cancellation_ends(self, pick: int, succeeds: bool, may_retry: bool) -> None:
        claim = self.pick(pick, self.started("CancelToolTask"))
        if succeeds:
            self.driver.succeed(claim, ToolTaskCancelled())
        else:
            self.driver.fail(claim, is_retryable=may_retry)

    # Workers and time

    @precondition(lambda self: self.driver.running)
    @rule(another_takes_over=st.booleans())
    def worker_is_lost(self, another_takes_over: bool) -> None:
        running = dict(self.driver.running)
        for claim in self.started(*TOOL_STEPS):
            self.call_of(claim).attempt_failed(
                self.driver.now, may_retry=True, is_lost=True, control=self.oracle.control
            )
        for claim in self.started("PollToolTask"):
            self.call_of(claim).poll_failed(self.driver.now, may_retry=True, is_lost=True)
        if self.started("RunModel"):
            self.oracle.model_attempt_fails(may_retry=True, is_lost=True)
        if self.started("CompactContext"):
            self.oracle.context.attempt_fails(may_retry=True, is_lost=True)
        if another_takes_over:
            self.driver.lose_worker()
        else:
            self.driver.stop_worker()
        self.note_discarded(running)

    @rule()
    def worker_gets_busy_or_free(self) -> None:
        if self.driver.has_worker:
            self.driver.has_worker = False
        else:
            self.driver.take_work()

    def late_outcome_is_dropped(self, pick: int) -> None:
        claim = self.pick(pick, self.discarded)
        commits = self.oracle.commits
        with pytest.raises(AttemptDiscardedError):
            self.driver.apply(AttemptSucceeded(claim.step_execution_id, claim.attempt, None))
        assert self.oracle.commits == commits

    @precondition(lambda self: self.oracle.turn)
    @rule(duration=seconds)
    def time_passes(self, duration: int) -> None:
        self.clock_reaches(self.driver.now + duration * 1_000_000)

    def clock_reaches(self, now: int) -> None:
        self.driver.now = now
        self.oracle.time_passes()
        self.driver.advance(0)

    @precondition(lambda self: any(interrupt.deadline for interrupt in self.oracle.pending.values()))
    @rule(pick=picks, approved=st.booleans())
    def decide_too_late(self, pick: int, approved: bool) -> None:
        """No worker was there to fire the deadline before the decision came."""
        key = self.pick(pick, [key for key, interrupt in self.oracle.pending.items() if interrupt.deadline])
        self.driver.now += DEADLINE_SECONDS * 1_000_000
        self.oracle.time_passes()
        if approved:
            assert not self.driver.answer(key, "yes")
        assert not self.driver.resolve(key, approved)

    @precondition(lambda self: self.driver.store.next_due)
    @rule(pick=picks)
    def skip_timer(self, pick: int) -> None:
        steps = self.driver.header.steps
        timed = [number for number, step in steps.items() if step.due or any(wait.due for wait in step.wait)]
        step = steps[self.pick(pick, sorted(timed if pick % 4 else steps))]
        is_timed = step.status == "waiting" and any(condition.due for condition in step.wait)
        if is_timed:
            body = self.driver.store.bodies[step.id]
            call = self.oracle.call(decode(list[Any], body)[0])
            call.poll_due = self.driver.now
            self.oracle.due(call)
        assert self.driver.skip_timer(step.id) == (is_timed or step.status == "backoff")

    # Promises

    def pick(self, pick: int, choices: list[Choice]) -> Choice:
        return choices[pick % len(choices)]

    @invariant()
    def the_session_keeps_its_promises(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.oracle.check_snapshot(self.driver.snapshot())
        commits = self.oracle.commits
        before = commits * 7 % (self.oracle.messages.last_sequence + 2) if commits % 4 else None
        limit = 1 + commits % 5
        page = self.driver.call(LIST_AGENT_MESSAGES, ListAgentMessagesInput(before_sequence=before, limit=limit))
        self.oracle.messages.check_page(page, before, limit)
        for claim in self.claims("RunModel"):
            attempt = (claim.step_execution_id, claim.attempt)
            if attempt not in self.inputs:
                self.inputs[attempt] = self.driver.snapshot_of(claim)
                self.check_model_input(self.inputs[attempt])
        waits_for_something = self.driver.store.next_due or self.driver.store.has_ready or self.oracle.pending
        assert self.oracle.turn is None or self.driver.running or waits_for_something, "the turn is stuck"

    # The end

    def teardown(self) -> None:
        if not hasattr(self, "driver") or sys.exc_info()[0] is not None:
            return
        self.driver.starts_claims = True
        self.driver.take_work()
        while self.oracle.queued:
            self.take_from_queue(0, True)
        self.come_to_rest()
        self.send(False)
        self.the_session_keeps_its_promises()
        self.model_answers()
        assert self.oracle.turn is None
        self.the_session_keeps_its_promises()
        cls = type(self)
        cls.histories += 1
        cls.reached.update(self.oracle.reached)

    def come_to_rest(self) -> None:
        """Whatever happened, the session comes to rest once everybody does their part."""
        for _ in range(500):
            self.the_session_keeps_its_promises()
            if self.oracle.turn is None:
                break
            for key in list(self.oracle.pending):
                self.says(self.oracle.resolve(key, False, None), lambda key=key: self.driver.resolve(key, False))  # type: ignore[misc]
            for claim in list(self.driver.running.values()):
                if claim.step_execution_id in self.driver.running:
                    self.end_well(self.driver.running[claim.step_execution_id])
            self.time_passes(60)
        assert self.driver.open_step_types == ["AwaitUserMessage"], "the session does not come to rest"
        assert not self.driver.running
        assert not self.driver.store.channels

    def end_well(self, claim: ClaimedAttempt) -> None:
        if not claim.is_started:
            self.driver.begin(claim)
        elif claim.step_type == "RunModel":
            self.the_session_keeps_its_promises()
            self.model_answers()
        elif claim.step_type == "CompactContext":
            self.summary_ends()
        elif claim.step_type in BUILDER_STEPS:
            self.builder_ends(3)
        elif claim.step_type in TOOL_STEPS:
            self.end_tool(claim, ToolCallSucceeded(output="ok"))
        elif claim.step_type == "PollToolTask":
            self.end_poll(claim, ToolCallSucceeded(output="ok"))
        else:
            self.driver.succeed(claim, ToolTaskCancelled())
