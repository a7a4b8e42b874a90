"""One attempt of a task poll and of a task cancellation, with scripted runners."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dex_agents.execution.runner_calls import EscapedCancellationError
from dex_agents.execution.tool_call import RunnerToolCallExecution
from dex_agents.execution.tool_task import RunnerToolTaskCancelExecution, RunnerToolTaskPollExecution
from dex_agents.runner import (
    DeferredToolExecution,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskCancellation,
    ToolTaskPending,
    ToolTaskPoll,
    ToolTaskStarted,
)
from dex_agents.session.ingress import RunnerContractError
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallSnapshot,
    ToolCallSucceeded,
    ToolTaskCancelled,
    ToolTaskOutcome,
    ToolTaskStillPending,
)
from dex_agents.session.tool_values import AgentToolCallRecord, AgentToolCallRecordStatus, QuestionAnswer, ToolEffect
from dex_flow import Stream

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FIRST_ANSWER = QuestionAnswer(question="Which?", answer="7")
SECOND_ANSWER = QuestionAnswer(question="Sure?", resolution="declined", rejection_message="no")


class FakeActivity:
    """An `Activity` that collects what it was told."""

    flow_id = "order-42"
    step_execution_id = 7
    attempt = 2
    deadline: datetime | None = NOW
    heartbeat_checkpoint: str | None = None

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.heartbeats = 0

    def emit(self, stream: Stream[Any], event: Any) -> None:
        self.events.append((event.type, json.loads(event.payload)))

    def heartbeat(self) -> None:
        self.heartbeats += 1

    async def save_heartbeat_checkpoint(self, text: str) -> None:
        raise AssertionError


class TaskRunner:
    """A runner whose task methods are one given function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def build_user_message(self, text: str) -> Any:
        raise AssertionError

    async def run_model_step(self, turn: Any) -> Any:
        raise AssertionError

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> Any:
        return await self._function(call)

    def poll_tool_task(self, poll: ToolTaskPoll) -> Any:
        return self._function(poll)

    def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> Any:
        return self._function(cancellation)


def snapshot(options: AgentSessionOptions | None = None, **changes: Any) -> ToolCallSnapshot:
    values: dict[str, Any] = {
        "tool_call_id": "call-1",
        "tool_name": "report",
        "arguments": '{"year":2026}',
        "effect": ToolEffect.READ,
        "requires_approval": False,
        "status": AgentToolCallRecordStatus.WAITING_FOR_TASK,
        "deferral_order": 0,
        "model_step_number": 1,
        "deferred_at": NOW,
        "task_id": "job-1",
        "input_continuation": "question-1",
    }
    return ToolCallSnapshot(
        record=AgentToolCallRecord(**{**values, **changes}),
        turn_id="turn-1",
        idempotency_key="order-42/turn-1/call-1",
        messages=(),
        framework_run_state=None,
        options=options or AgentSessionOptions(),
    )


def run_poll(
    function: Callable[[ToolTaskPoll], Any], of: ToolCallSnapshot | None = None, activity: FakeActivity | None = None
) -> ToolTaskOutcome:
    execution = RunnerToolTaskPollExecution(TaskRunner(function))
    outcome = asyncio.run(execution.poll_tool_task(activity or FakeActivity(), of or snapshot()))
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=ToolTaskOutcome) == outcome
    return outcome


def test_a_poll_shows_the_task_and_may_write_events() -> None:
    seen: list[ToolTaskPoll] = []
    activity = FakeActivity()

    async def poll_once(poll: ToolTaskPoll) -> ToolTaskPending:
        seen.append(poll)
        poll.heartbeat()
        poll.events.write_event("progress", {"percent": 40})
        return ToolTaskPending(poll_interval_seconds=9.5, continuation="question-2")

    outcome = run_poll(poll_once, activity=activity)
    assert outcome == ToolTaskStillPending(poll_interval_seconds=10, continuation="question-2")
    (poll,) = seen
    assert (poll.flow_id, poll.turn_id, poll.attempt, poll.step_execution_id) == ("order-42", "turn-1", 2, 7)
    assert (poll.tool_call.task_id, poll.tool_call.input_continuation) == ("job-1", "question-1")
    assert (poll.idempotency_key, poll.deadline) == ("order-42/turn-1/call-1", NOW)
    assert (poll.input_answers, poll.pending_answer) == ((), None)
    assert activity.events == [("progress", {"percent": 40})]
    assert activity.heartbeats == 1


@pytest.mark.parametrize(
    ("answers", "is_pending", "pending"),
    [
        ((FIRST_ANSWER,), True, FIRST_ANSWER),
        ((FIRST_ANSWER, SECOND_ANSWER), True, SECOND_ANSWER),
        ((FIRST_ANSWER, SECOND_ANSWER), False, None),
    ],
)
def test_the_newest_answer_is_pending_exactly_when_the_record_says_so(
    answers: tuple[QuestionAnswer, ...], is_pending: bool, pending: QuestionAnswer | None
) -> None:
    seen: list[ToolTaskPoll] = []

    async def poll_once(poll: ToolTaskPoll) -> ToolTaskPending:
        seen.append(poll)
        return ToolTaskPending(poll_interval_seconds=1)

    outcome = run_poll(poll_once, snapshot(input_answers=answers, task_answer_pending=is_pending))
    assert outcome == ToolTaskStillPending(poll_interval_seconds=1)
    assert (seen[0].input_answers, seen[0].pending_answer) == (answers, pending)


def test_a_poll_may_end_the_task_or_ask_the_user() -> None:
    async def finish(poll: ToolTaskPoll) -> ToolExecutionResult:
        return ToolExecutionResult(output="12 pages", framework_result="{}")

    async def ask(poll: ToolTaskPoll) -> ToolInputRequested:
        return ToolInputRequested(question="Which year?", choices=("2025", "2026"), continuation="question-2")

    assert run_poll(finish) == ToolCallSucceeded(output="12 pages", framework_result="{}")
    asked = ToolCallInputRequested(question="Which year?", choices=("2025", "2026"), continuation="question-2")
    assert run_poll(ask) == asked


def test_a_failure_for_the_model_ends_the_task_and_any_other_error_fails_the_attempt() -> None:
    async def fail(poll: ToolTaskPoll) -> Any:
        raise ToolExecutionError("no such year\ud83d")

    async def break_down(poll: ToolTaskPoll) -> Any:
        poll.events.write_text_delta("half")
        raise ConnectionResetError("reports")

    assert run_poll(fail) == ToolCallFailed(message="no such year\ufffd")
    activity = FakeActivity()
    with pytest.raises(ConnectionResetError, match="reports"):
        run_poll(break_down, activity=activity)
    assert activity.events == [("text_delta", {"text": "half"})]


def test_a_result_above_the_limit_is_a_failure_of_the_call() -> None:
    async def finish(poll: ToolTaskPoll) -> ToolExecutionResult:
        return ToolExecutionResult(output="x" * 5_000)

    outcome = run_poll(finish, snapshot(AgentSessionOptions(max_tool_result_bytes=1_024)))
    assert isinstance(outcome, ToolCallFailed)


@pytest.mark.parametrize(
    "outcome", [None, "text", ToolTaskStarted(task_id="job-2", poll_interval_seconds=1), {"output": "x"}]
)
def test_a_poll_outside_the_contract_fails_the_attempt(outcome: Any) -> None:
    async def poll_once(poll: ToolTaskPoll) -> Any:
        return outcome

    with pytest.raises(RunnerContractError, match="poll_tool_task must return"):
        run_poll(poll_once)


def cancel(function: Callable[[ToolTaskCancellation], Any]) -> ToolTaskCancelled:
    execution = RunnerToolTaskCancelExecution(TaskRunner(function))
    return asyncio.run(execution.cancel_tool_task(FakeActivity(), snapshot()))


def test_a_cancellation_names_the_task() -> None:
    seen: list[ToolTaskCancellation] = []

    async def stop(cancellation: ToolTaskCancellation) -> None:
        seen.append(cancellation)

    assert cancel(stop) == ToolTaskCancelled()
    (cancellation,) = seen
    assert (cancellation.flow_id, cancellation.turn_id, cancellation.attempt) == ("order-42", "turn-1", 2)
    assert (cancellation.tool_call.task_id, cancellation.deadline) == ("job-1", NOW)
    assert cancellation.idempotency_key == "order-42/turn-1/call-1"


@pytest.mark.parametrize("error", [ToolExecutionError("gone"), ConnectionResetError("reports")])
def test_a_cancellation_that_raises_fails_its_attempt(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def stop(cancellation: ToolTaskCancellation) -> None:
        raise error

    with pytest.raises(type(error)):
        cancel(stop)
    (logged,) = caplog.records
    assert logged.getMessage().startswith("tool task cancellation 'report' failed in session 'order-42'")


def test_a_failed_poll_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def break_down(poll: ToolTaskPoll) -> Any:
        raise ConnectionResetError("reports")

    with pytest.raises(ConnectionResetError):
        run_poll(break_down)
    (logged,) = caplog.records
    assert logged.getMessage().startswith("tool task poll 'report' failed in session 'order-42'")


def test_methods_that_are_not_async_or_leak_a_cancellation_are_named() -> None:
    def at_once(_: Any) -> ToolExecutionResult:
        return ToolExecutionResult(output="x")

    async def leak(_: Any) -> None:
        inner = asyncio.create_task(asyncio.sleep(1_000))
        inner.cancel()
        await inner

    for run, name in ((run_poll, "poll_tool_task"), (cancel, "cancel_tool_task")):
        with pytest.raises(RunnerContractError, match=f"{name} must be an async method"):
            run(at_once)
        with pytest.raises(EscapedCancellationError, match=f"{name} raised CancelledError"):
            run(leak)


class PollingRunner(TaskRunner):
    """A runner that says it can poll."""


class NonPollingRunner(TaskRunner):
    """A runner that says it cannot."""

    poll_tool_task = None  # type: ignore[assignment]


@pytest.mark.parametrize(("runner_class", "supports"), [(PollingRunner, True), (NonPollingRunner, False)])
def test_a_tool_is_told_whether_tasks_can_be_polled(runner_class: type[TaskRunner], supports: bool) -> None:
    seen: list[bool] = []

    async def tool(call: DeferredToolExecution) -> ToolExecutionResult:
        seen.append(call.supports_tool_tasks)
        return ToolExecutionResult(output="x")

    execution = RunnerToolCallExecution(runner_class(tool))
    asyncio.run(execution.run_tool_call(FakeActivity(), snapshot(task_id=None)))
    assert seen == [supports]
