"""What one tool call may do next, written from the contract's table, not from the session's code.

The caller says what happens to the call; `expected` then names the statuses it must end in, if it must end at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED
from dex_agents.session.tool_values import AgentToolCallRecord, CancellationReason, ToolEffect
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.transition_rules import ALLOWED_STATUS_MOVES

__all__ = ["SECOND", "CallModel", "Phase"]

SECOND = 1_000_000
RETRY_WINDOW = 30 * 60 * SECOND
ATTEMPTS = 3
#: Microseconds before the second and the third attempt.
BACKOFFS = (1 * SECOND, 2 * SECOND)
REPEATABLE = frozenset({ToolEffect.READ, ToolEffect.IDEMPOTENT_WRITE})


class Phase(Enum):
    """Where a call is."""

    APPROVAL = "waits for an approval"
    QUESTION = "waits for the answer to its own or its tool's question"
    TIMER = "waits for a time"
    READY = "free to start"
    RUNNING = "an attempt runs"
    RETRY = "an attempt failed and another one follows"
    TASK = "its remote work is polled"
    TASK_QUESTION = "its remote work waits for an answer"
    ABANDONED = "its remote work is being stopped"
    ENDING = "has to become final in this commit"
    FINAL = "final"


STATUSES = {
    Phase.APPROVAL: {Status.AWAITING_APPROVAL},
    Phase.QUESTION: {Status.AWAITING_ANSWER},
    Phase.TIMER: {Status.WAITING_FOR_TIMER},
    Phase.READY: {Status.APPROVED},
    Phase.RUNNING: {Status.APPROVED},
    Phase.RETRY: {Status.APPROVED},
    Phase.TASK: {Status.WAITING_FOR_TASK},
    Phase.TASK_QUESTION: {Status.AWAITING_ANSWER},
    Phase.ABANDONED: {Status.WAITING_FOR_TASK, Status.AWAITING_ANSWER},
}

#: Where a record may be after one commit, which may hold several moves.
LATER_STATUSES: dict[Status, set[Status]] = {}
for _status in Status:
    _reachable, _open = {_status}, [_status]
    while _open:
        _new = ALLOWED_STATUS_MOVES[_open.pop()] - _reachable
        _reachable |= _new
        _open += _new
    LATER_STATUSES[_status] = _reachable


@dataclass
class CallModel:
    """One tool call of a turn."""

    turn_id: str
    tool_call_id: str
    tool_name: str
    arguments: str
    effect: ToolEffect
    requires_approval: bool
    asks_by_itself: bool
    phase: Phase
    expected: frozenset[Status] = frozenset()
    reason: CancellationReason | None = None
    text: str | None = None
    status: Status | None = None
    is_approved: bool = False
    attempts: int = 0
    first_attempt_at: int = 0
    runs_with_effect: int = 0
    has_failed: bool = False
    ends_at: int | None = None
    answers: list[tuple[str, str | None]] = field(default_factory=list)
    continuation: str | None = None
    task_id: str | None = None
    poll_due: int = 0
    polls: int = 0
    first_poll_at: int = 0
    has_new_answer: bool = False
    cancel_attempts: int = 0
    has_schema: bool = False
    executed_arguments: dict[str, Any] | None = None

    @property
    def arguments_to_run(self) -> str:
        return self.arguments if self.executed_arguments is None else json.dumps(self.executed_arguments)

    @property
    def is_repeatable(self) -> bool:
        return self.effect in REPEATABLE

    @property
    def status_when_lost(self) -> Status:
        return Status.FAILED if self.effect is ToolEffect.READ else Status.OUTCOME_UNKNOWN

    @property
    def status_when_stopped(self) -> Status:
        """Of a call of which nothing runs: an attempt that failed may have taken effect, and a read has none."""
        return self.status_when_lost if self.has_failed and self.effect is not ToolEffect.READ else Status.REJECTED

    @property
    def is_open(self) -> bool:
        return self.phase not in (Phase.ENDING, Phase.FINAL)

    def end(self, *statuses: Status, reason: CancellationReason | None = None, text: str | None = None) -> None:
        """The call has to become final now."""
        assert self.is_open, f"{self} ended twice"
        self.phase = Phase.ENDING
        self.expected, self.reason, self.text = frozenset(statuses), reason, text

    def control(self, reason: CancellationReason) -> None:
        """The turn was steered or cancelled, or a call came up in such a turn."""
        match self.phase:
            case Phase.APPROVAL | Phase.QUESTION | Phase.TIMER:
                self.end(self.status_when_stopped, reason=reason)
            case Phase.RETRY:
                self.end(self.status_when_lost, reason=reason)
            case Phase.TASK | Phase.TASK_QUESTION if reason == "turn_cancelled":
                self.phase = Phase.ABANDONED

    def start(self, attempt: int, now: int) -> None:
        """An attempt starts."""
        assert self.phase in (Phase.READY, Phase.RETRY), f"{self} started"
        assert self.is_approved or not self.requires_approval, f"{self} started without its approval"
        if self.phase is Phase.READY:
            self.attempts, self.first_attempt_at = 0, now
        self.attempts += 1
        assert attempt == self.attempts <= (ATTEMPTS if self.is_repeatable else 1)
        assert now - self.first_attempt_at <= RETRY_WINDOW
        self.runs_with_effect += 1
        assert self.is_repeatable or self.runs_with_effect == 1, f"{self} ran twice"
        self.phase = Phase.RUNNING

    def attempt_failed(self, now: int, *, may_retry: bool, is_lost: bool, control: CancellationReason | None) -> None:
        """The running attempt raised, or its worker died."""
        assert self.phase is Phase.RUNNING
        delay = 0 if is_lost or self.attempts > len(BACKOFFS) else BACKOFFS[self.attempts - 1]
        may_retry = may_retry and self.is_repeatable and self.attempts < ATTEMPTS
        if may_retry and now + delay - self.first_attempt_at <= RETRY_WINDOW:
            self.phase, self.has_failed = Phase.RETRY, True
            if control is not None:
                self.control(control)
        else:
            self.end(self.status_when_lost)

    def is_past_window(self, now: int) -> bool:
        """Whether an attempt or a poll that follows a failed one comes too late."""
        if self.phase is Phase.RETRY:
            return now - self.first_attempt_at > RETRY_WINDOW
        return self.phase is Phase.TASK and self.polls > 0 and now - self.first_poll_at > RETRY_WINDOW

    def asked(self, continuation: str | None, control: CancellationReason | None) -> None:
        """The tool or the task asked a question."""
        self.continuation = continuation
        if self.phase is Phase.TASK:
            self.polls, self.has_new_answer = 0, False
            self.phase = Phase.TASK_QUESTION
            return
        self.runs_with_effect -= 1
        self.phase = Phase.QUESTION
        if control is not None:
            self.control(control)

    def question_ended(self, resolution: str, text: str | None, now: int) -> None:
        """The question was answered or declined, or its deadline passed; `text` is what a person said."""
        if self.phase is Phase.TASK_QUESTION:
            self.answers.append((resolution, text))
            self.phase, self.has_new_answer, self.poll_due = Phase.TASK, True, now
        elif resolution == "deadline_passed":
            self.end(self.status_when_stopped, text=QUESTION_DEADLINE_PASSED)
        elif resolution == "declined":
            self.end(self.status_when_stopped, text=text or QUESTION_DECLINED)
        elif self.asks_by_itself:
            self.end(Status.SUCCEEDED)
        else:
            self.answers.append((resolution, text))
            self.phase = Phase.READY

    def decided(self, approved: bool, text: str | None) -> None:
        """The approval was given or refused, or its deadline passed; `text` is what a person said."""
        if approved:
            self.phase, self.is_approved = Phase.READY, True
        else:
            self.end(Status.REJECTED, text=text)

    def task_started(self, task_id: str, interval: int, now: int, control: CancellationReason | None) -> None:
        """The tool started remote work that is followed."""
        self.task_id, self.continuation = task_id, None
        self.phase, self.poll_due = Phase.TASK, now + interval * SECOND
        if control is not None:
            self.control(control)

    def still_pending(self, continuation: str | None, interval: int, now: int) -> None:
        """A poll found the remote work going on."""
        self.continuation, self.has_new_answer, self.polls = continuation, False, 0
        self.poll_due = now + interval * SECOND

    def poll_begins(self, attempt: int, now: int) -> None:
        """A poll attempt is claimed."""
        assert self.phase is Phase.TASK, f"{self} is polled"
        self.polls += 1
        assert attempt == self.polls <= ATTEMPTS
        if attempt == 1:
            self.first_poll_at = now
            assert now >= self.poll_due, f"{self} is polled too early"
        assert now - self.first_poll_at <= RETRY_WINDOW

    def poll_failed(self, now: int, *, may_retry: bool, is_lost: bool) -> None:
        """A poll attempt raised, or its worker died."""
        delay = 0 if is_lost or self.polls > len(BACKOFFS) else BACKOFFS[self.polls - 1]
        if not may_retry or self.polls >= ATTEMPTS or now + delay - self.first_poll_at > RETRY_WINDOW:
            self.end(self.status_when_lost)

    def finished(self, status: Status, control: CancellationReason | None, now: int, *, stops_tasks: bool) -> None:
        """The record became final."""
        match self.phase:
            case Phase.ENDING:
                assert status in self.expected, f"{self} ended {status}"
            case Phase.READY:
                assert control is not None, f"{self} ended {status} before it started"
                assert status is self.status_when_stopped
                self.reason = control
            case Phase.ABANDONED:
                assert status is Status.OUTCOME_UNKNOWN
                assert self.cancel_attempts or not stops_tasks, f"{self}: nobody was asked to stop its work"
                self.reason = "turn_cancelled"
            case Phase.RETRY | Phase.TASK if self.is_past_window(now):
                assert status is self.status_when_lost
            case _:
                raise AssertionError(f"{self} ended {status}")
        assert self.task_id is None or status is not Status.REJECTED, f"{self} has a task and is rejected"
        self.phase, self.status = Phase.FINAL, status

    def check(self, record: AgentToolCallRecord) -> None:
        """The stored record says what the call model says."""
        assert (record.tool_call_id, record.tool_name, record.effect, record.requires_approval) == (
            self.tool_call_id,
            self.tool_name,
            self.effect,
            self.requires_approval,
        )
        assert record.arguments == self.arguments
        executed = None if record.executed_arguments is None else json.loads(record.executed_arguments)
        assert executed == self.executed_arguments, f"{self} runs with {executed}"
        may_change = self.has_schema and self.phase is Phase.APPROVAL
        assert (record.arguments_schema is not None) == may_change, f"{self} keeps its schema"
        answers = [(answer.resolution, answer.answer or answer.rejection_message) for answer in record.input_answers]
        assert (record.task_id, answers) == (self.task_id, self.answers), self
        assert record.is_running == (self.phase is Phase.RUNNING), self
        if self.phase is Phase.FINAL:
            assert record.status is self.status
            assert record.cancellation_reason == self.reason, f"{self} is recorded {record.cancellation_reason}"
            if self.text is not None:
                assert self.text in (record.output, record.error, record.rejection_message), self
            elif record.status is Status.REJECTED:
                assert record.rejection_message is None
            return
        assert record.status in STATUSES[self.phase], f"{self} is stored {record.status}"
        assert record.task_answer_pending == self.has_new_answer, self
        assert record.input_continuation == self.continuation, self
