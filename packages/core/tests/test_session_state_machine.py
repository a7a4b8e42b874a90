"""Random histories of a whole session on the kernel: no engine, no event loop, no clock."""

from collections import Counter
from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepOutcome,
    ModelStepRefused,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    ToolCallFailed,
    ToolCallSucceeded,
    ToolOutcome,
    UnfinishedTurnOutcome,
)
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.rpc_values import AgentSnapshot, DeleteQueuedMessageInput
from dex_agents.session.rpcs import DELETE_QUEUED_MESSAGE
from dex_agents.session.texts import NOTE_PREFIX
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect
from dex_agents.session.transition_rules import FINAL_STATUSES
from dex_agents.session.values import AgentState, AgentStatus, AgentUsage, FrameworkMessage
from dex_agents.testing import SessionDriver
from dex_flow.kernel import ClaimedAttempt

TOOL_STEPS = ("CallTool", "CallSingleAttemptTool")
DEADLINE_SECONDS = 100
ONE_CALL = AgentUsage(model_calls=1)

policies = st.builds(ResolvedToolPolicy, effect=st.sampled_from(ToolEffect), requires_approval=st.booleans())
requested_calls = st.builds(
    RequestedToolCall,
    tool_call_id=st.sampled_from(["a", "b", "", "a~1", "a~2", "call-1", "call-2"]),
    tool_name=st.sampled_from(["lookup", "refund"]),
    arguments=st.just("{}"),
    policy=policies,
    arguments_error=st.sampled_from([None, None, None, "not a JSON object"]),
)
messages = st.builds(
    FrameworkMessage,
    role=st.sampled_from(["assistant", "tool"]),
    framework_item=st.just("{}"),
    text=st.sampled_from(["x", "y"]),
)
message_tuples = st.lists(messages, max_size=2).map(tuple)
model_outcomes: st.SearchStrategy[ModelStepOutcome] = st.one_of(
    st.builds(
        ModelStepToolCallsRequested,
        framework_run_state=st.just("state"),
        tool_calls=st.lists(requested_calls, min_size=1, max_size=4).map(tuple),
        usage=st.just(ONE_CALL),
        new_messages=message_tuples,
    ),
    st.builds(ModelStepCompleted, new_messages=message_tuples, usage=st.just(ONE_CALL)),
    st.builds(
        ModelStepContinued,
        framework_run_state=st.just("state"),
        usage=st.just(ONE_CALL),
        new_messages=message_tuples,
    ),
    st.builds(ModelStepRefused, error_type=st.just("TurnRefusedError"), message=st.just("no"), usage=st.just(ONE_CALL)),
)
tool_outcomes: st.SearchStrategy[ToolOutcome] = st.one_of(
    st.builds(ToolCallSucceeded, output=st.just("ok")),
    st.builds(ToolCallFailed, message=st.just("no")),
)


class SessionMachine(RuleBasedStateMachine):
    """Plays users, the model, tools, workers and time; the invariants are what a session promises."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.deleted: set[str] = set()
        self.model_calls = 0
        self.interrupt_ids: set[str] = set()
        self.final: dict[tuple[str, str], Status] = {}
        self.requires_approval: set[tuple[str, str]] = set()
        self.approved: set[str] = set()
        self.seen_events = 0
        self.deferred: Counter[tuple[str, str]] = Counter()
        self.finished: Counter[tuple[str, str]] = Counter()
        self.raised: Counter[str] = Counter()
        self.resolved: Counter[str] = Counter()
        self.starts: Counter[tuple[str, str]] = Counter()
        self.effects: dict[tuple[str, str], ToolEffect] = {}

    @initialize(has_message=st.booleans(), starts_claims=st.booleans(), builds=st.booleans(), deadline=st.booleans())
    def begin(self, has_message: bool, starts_claims: bool, builds: bool, deadline: bool) -> None:
        options = AgentSessionOptions(
            interrupt_deadline=timedelta(seconds=DEADLINE_SECONDS) if deadline else None,
            max_model_step_continuations=2,
        )
        self.driver = SessionDriver(options, builds_unfinished_turns=builds)
        self.driver.starts_claims = starts_claims
        self.driver.start(self.new_text() if has_message else None)

    def new_text(self) -> str:
        self.sent.append(f"m{len(self.sent)}")
        return self.sent[-1]

    def snapshot(self) -> tuple[AgentState, AgentSnapshot]:
        snapshot = self.driver.snapshot()
        assert snapshot.state is not None
        return snapshot.state, snapshot

    # People

    @rule()
    def send(self) -> None:
        assert self.driver.send(self.new_text())

    @rule(data=st.data())
    def delete_queued(self, data: st.DataObject) -> None:
        queued = {message.message_id: message.text for message in self.snapshot()[1].queued_messages}
        message_id = data.draw(st.sampled_from([*queued, 10_000]))
        deleted = self.driver.call(DELETE_QUEUED_MESSAGE, DeleteQueuedMessageInput(message_id=message_id))
        assert deleted == (message_id in queued)
        if deleted:
            self.deleted.add(queued[message_id])

    @precondition(lambda self: self.interrupt_ids)
    @rule(data=st.data(), approved=st.booleans(), message=st.sampled_from([None, "no"]))
    def resolve(self, data: st.DataObject, approved: bool, message: str | None) -> None:
        interrupt_id = data.draw(st.sampled_from([*sorted(self.interrupt_ids), "turn-1.nothing"]))
        pending = {interrupt.interrupt_id for interrupt in self.snapshot()[1].pending_interrupts}
        decided = self.driver.resolve(interrupt_id, approved, message)
        assert decided == (interrupt_id in pending)
        if decided and approved:
            self.approved.add(interrupt_id)

    # The model and tools

    def claims(self, *step_types: str) -> list[ClaimedAttempt]:
        return [claim for claim in self.driver.running.values() if claim.step_type in step_types]

    @precondition(lambda self: self.claims("RunModel"))
    @rule(outcome=model_outcomes)
    def model_step_ends(self, outcome: ModelStepOutcome) -> None:
        self.driver.succeed(self.driver.attempt_of("RunModel"), outcome)
        self.model_calls += 1

    @precondition(lambda self: self.claims("RunModel", "RecordTurnFailure"))
    @rule(retryable=st.booleans())
    def model_attempt_fails(self, retryable: bool) -> None:
        (claim,) = self.claims("RunModel", "RecordTurnFailure")
        self.driver.fail(claim, is_retryable=retryable)

    @precondition(lambda self: self.claims("RecordTurnFailure"))
    @rule(unfinished=message_tuples)
    def transcript_is_completed(self, unfinished: tuple[FrameworkMessage, ...]) -> None:
        self.driver.succeed(self.driver.attempt_of("RecordTurnFailure"), UnfinishedTurnOutcome(messages=unfinished))

    @precondition(lambda self: self.claims(*TOOL_STEPS))
    @rule(data=st.data(), outcome=tool_outcomes)
    def tool_ends(self, data: st.DataObject, outcome: ToolOutcome) -> None:
        claim = data.draw(st.sampled_from(self.claims(*TOOL_STEPS)))
        if not claim.is_started:
            self.driver.begin(claim)
            claim = self.driver.running[claim.step_execution_id]
        self.driver.succeed(claim, outcome)

    @precondition(lambda self: any(claim.is_started for claim in self.claims(*TOOL_STEPS)))
    @rule(data=st.data())
    def tool_attempt_fails(self, data: st.DataObject) -> None:
        started = [claim for claim in self.claims(*TOOL_STEPS) if claim.is_started]
        self.driver.fail(data.draw(st.sampled_from(started)))

    # Workers and time

    @rule()
    def worker_dies(self) -> None:
        self.driver.lose_worker()

    @rule(seconds=st.sampled_from([0, 1, 2, 50, 100, 2_000]))
    def time_passes(self, seconds: int) -> None:
        self.driver.advance(seconds)

    # Promises

    def watch_events(self) -> None:
        for event in self.driver.events()[self.seen_events :]:
            payload = decode_event_payload(event)
            call = (event.turn_id, payload.get("tool_call_id", ""))
            if event.type == "tool_call_deferred":
                self.deferred[call] += 1
                self.effects[call] = ToolEffect(payload["effect"])
                if payload["requires_approval"]:
                    self.requires_approval.add(call)
            elif event.type == "tool_call_started":
                self.starts[call] += 1
            elif event.type == "tool_call_finished":
                self.finished[call] += 1
                self.final[call] = Status(payload["status"])
            elif event.type == "interrupt_raised":
                self.raised[payload["interrupt_id"]] += 1
                self.interrupt_ids.add(payload["interrupt_id"])
            elif event.type == "interrupt_resolved":
                self.resolved[payload["interrupt_id"]] += 1
        self.seen_events = len(self.driver.events())

    @invariant()
    def messages_have_no_gaps_and_no_user_message_is_lost_or_doubled(self) -> None:
        state, snapshot = self.snapshot()
        assert [message.sequence for message in snapshot.messages] == list(range(1, state.last_message_sequence + 1))
        texts = [
            message.text
            for message in snapshot.messages
            if message.role == "user" and not message.text.startswith(NOTE_PREFIX)
        ]
        texts += [message.text for message in snapshot.queued_messages]
        assert texts == [text for text in self.sent if text not in self.deleted]

    @invariant()
    def every_call_becomes_final_once_with_one_result(self) -> None:
        self.watch_events()
        state, snapshot = self.snapshot()
        assert set(self.deferred.values()) <= {1}
        assert set(self.finished.values()) <= {1}
        assert [record.deferral_order for record in snapshot.tool_calls] == list(range(len(snapshot.tool_calls)))
        for record in snapshot.tool_calls:
            call = (state.active_turn_id or "", record.tool_call_id)
            assert (record.status in FINAL_STATUSES) == (self.finished[call] == 1)
            if call in self.final:
                assert record.status is self.final[call]
        current = [r for r in snapshot.tool_calls if r.model_step_number == state.turn_model_step_count]
        waiting = self.driver.store.message_count("ToolCallResults", "")
        if state.status is AgentStatus.RUNNING_TOOLS:
            assert waiting == sum(record.status in FINAL_STATUSES for record in current) < len(current)
        else:
            assert waiting == 0
            assert all(record.status in FINAL_STATUSES for record in snapshot.tool_calls)
        for call in self.deferred:
            if call[0] != state.active_turn_id:
                assert self.finished[call] == 1

    @invariant()
    def nothing_runs_without_its_approval_or_more_often_than_its_effect_allows(self) -> None:
        self.watch_events()
        for call, count in self.starts.items():
            assert count <= (3 if EFFECT_RULES[self.effects[call]].may_repeat else 1)
            if call in self.requires_approval:
                assert ".".join(call) in self.approved
        for call, status in self.final.items():
            if status is Status.REJECTED:
                assert self.starts[call] == 0

    @invariant()
    def interrupts_are_raised_and_resolved_once(self) -> None:
        self.watch_events()
        pending = {interrupt.interrupt_id for interrupt in self.snapshot()[1].pending_interrupts}
        assert set(self.raised.values()) <= {1}
        for interrupt_id in self.raised:
            assert self.resolved[interrupt_id] == (0 if interrupt_id in pending else 1)

    @invariant()
    def usage_is_counted_once_per_model_step(self) -> None:
        assert self.snapshot()[1].usage.model_calls == self.model_calls

    @invariant()
    def the_session_is_idle_and_clean_or_something_is_going_to_happen(self) -> None:
        state, snapshot = self.snapshot()
        steps = self.driver.header.steps.values()
        assert all(step.failures == 0 for step in steps), "pure code raised"
        if state.status is AgentStatus.WAITING_FOR_USER_MESSAGE:
            assert state.active_turn_id is None
            assert (state.turn_model_step_count, state.turn_tool_call_count, state.turn_continuation_count) == (0, 0, 0)
            assert not snapshot.tool_calls
            assert not snapshot.pending_interrupts
            assert not snapshot.queued_messages
            assert self.driver.open_step_types == ["AwaitUserMessage"]
            assert self.driver.store.channels == {}
            assert ("FrameworkRunState", "") not in self.driver.store.attributes
        else:
            retries = [step for step in steps if step.status == "backoff"]
            assert self.driver.running or snapshot.pending_interrupts or retries

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.starts_claims = True
        for _ in range(1_000):
            self.end_something()
            if self.driver.open_step_types == ["AwaitUserMessage"]:
                break
        self.messages_have_no_gaps_and_no_user_message_is_lost_or_doubled()
        self.every_call_becomes_final_once_with_one_result()
        self.the_session_is_idle_and_clean_or_something_is_going_to_happen()
        assert self.driver.open_step_types == ["AwaitUserMessage"]

    def end_something(self) -> None:
        for interrupt in self.snapshot()[1].pending_interrupts:
            self.driver.resolve(interrupt.interrupt_id, False)
        for claim in list(self.driver.running.values()):
            if claim.step_type == "RunModel":
                self.model_step_ends(ModelStepCompleted(new_messages=(), usage=ONE_CALL))
            elif claim.step_type == "RecordTurnFailure":
                self.driver.succeed(claim, UnfinishedTurnOutcome())
            else:
                if not claim.is_started:
                    self.driver.begin(claim)
                self.driver.succeed(self.driver.running[claim.step_execution_id], ToolCallSucceeded(output="ok"))
        self.driver.advance(60)


SessionMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSessionHistories = SessionMachine.TestCase
