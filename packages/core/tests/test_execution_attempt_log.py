"""Failed attempts are in the log once, with their traceback, and nothing else is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dex_agents.execution.model_step import RunnerModelStepExecution
from dex_agents.execution.tool_call import RunnerToolCallExecution
from dex_agents.execution.unfinished_turn import RunnerUnfinishedTurnExecution
from dex_agents.runner import (
    FrameworkMessage,
    ToolExecutionError,
    ToolExecutionResult,
    TurnCompleted,
    TurnRefusedError,
)
from dex_agents.session.ingress import RunnerContractError
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ModelStepSnapshot, ToolCallSnapshot
from dex_agents.session.tool_values import AgentToolCallRecord, AgentToolCallRecordStatus, ToolEffect
from dex_agents.session.values import AgentState, AgentStatus
from dex_flow import Stream

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOGGER = "dex_agents.execution"
SECRET = "sk-0123456789"


class QuietActivity:
    """An `Activity` whose events nobody reads."""

    flow_id = "order\n42"
    step_execution_id = 7
    attempt = 2
    deadline: datetime | None = None
    heartbeat_checkpoint: str | None = None

    def __init__(self) -> None:
        self.is_running = asyncio.Event()

    def emit(self, stream: Stream[Any], event: Any) -> None:
        raise AssertionError

    def heartbeat(self) -> None:
        self.is_running.set()

    async def save_heartbeat_checkpoint(self, text: str) -> None:
        raise AssertionError


class FunctionRunner:
    """A runner whose methods are one given function."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], unfinished: Any = ()) -> None:
        self._function = function
        self._unfinished = unfinished

    def build_user_message(self, text: str) -> FrameworkMessage:
        raise AssertionError

    async def run_model_step(self, turn: Any) -> Any:
        return await self._function(turn)

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        return await self._function(call)

    def build_unfinished_turn_messages(self, turn: Any) -> Any:
        if isinstance(self._unfinished, Exception):
            raise self._unfinished
        return self._unfinished


def model_snapshot() -> ModelStepSnapshot:
    return ModelStepSnapshot(
        state=AgentState(status=AgentStatus.RUNNING_MODEL, active_turn_id="turn-3", started_at=NOW, updated_at=NOW),
        turn_id="turn-3",
        messages=(),
        tool_calls=(),
        framework_run_state=None,
        options=AgentSessionOptions(),
        session_settings={"key": SECRET},
    )


def tool_snapshot() -> ToolCallSnapshot:
    record = AgentToolCallRecord(
        tool_call_id="call-1",
        tool_name="charge",
        arguments=f'{{"key":"{SECRET}"}}',
        effect=ToolEffect.READ,
        requires_approval=False,
        status=AgentToolCallRecordStatus.APPROVED,
        deferral_order=0,
        model_step_number=1,
        deferred_at=NOW,
    )
    return ToolCallSnapshot(
        record=record,
        turn_id="turn-3",
        idempotency_key="key",
        messages=(),
        framework_run_state=SECRET,
        options=AgentSessionOptions(),
    )


async def run_model(function: Callable[[Any], Awaitable[Any]], activity: QuietActivity) -> Any:
    return await RunnerModelStepExecution(FunctionRunner(function)).run_model_step(activity, model_snapshot())


async def run_tool(function: Callable[[Any], Awaitable[Any]], activity: QuietActivity) -> Any:
    return await RunnerToolCallExecution(FunctionRunner(function)).run_tool_call(activity, tool_snapshot())


Run = Callable[[Callable[[Any], Awaitable[Any]], QuietActivity], Awaitable[Any]]
RUNS: list[Run] = [run_model, run_tool]


def attempt(run: Run, function: Callable[[Any], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await run(function, QuietActivity())

    return asyncio.run(main())


def only_record(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    (logged,) = [record for record in caplog.records if record.name == LOGGER]
    return logged


@pytest.mark.parametrize(
    ("run", "named", "tool_name"), [(run_model, "model step", None), (run_tool, "tool call 'charge'", "charge")]
)
@pytest.mark.parametrize("error", [ConnectionResetError("peer"), SystemExit(3), RunnerContractError("no text")])
def test_a_failed_attempt_is_logged_once_with_its_traceback(
    caplog: pytest.LogCaptureFixture, run: Run, named: str, tool_name: str | None, error: BaseException
) -> None:
    async def charge_the_card(_: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        attempt(run, charge_the_card)
    logged = only_record(caplog)
    assert logged.levelno == logging.WARNING
    assert logged.getMessage() == (f"{named} failed in session 'order\\n42': turn-3, step execution 7, attempt 2")
    fields = ("session_id", "turn_id", "step_execution_id", "attempt", "tool_name")
    assert [getattr(logged, field) for field in fields] == ["order\n42", "turn-3", 7, 2, tool_name]
    text = logging.Formatter().format(logged)
    assert "charge_the_card" in text
    assert type(error).__name__ in text
    assert SECRET not in text


@pytest.mark.parametrize("run", RUNS)
def test_a_result_outside_the_contract_is_logged(caplog: pytest.LogCaptureFixture, run: Run) -> None:
    async def return_nothing(_: Any) -> None:
        return None

    with pytest.raises(RunnerContractError):
        attempt(run, return_nothing)
    assert "RunnerContractError" in logging.Formatter().format(only_record(caplog))


def test_a_refused_turn_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(_: Any) -> Any:
        raise TurnRefusedError("bad credentials")

    attempt(run_model, refuse)
    assert only_record(caplog).levelno == logging.WARNING


def test_a_failure_for_the_model_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: Any) -> Any:
        raise ToolExecutionError("no such order")

    with caplog.at_level(logging.INFO, LOGGER):
        attempt(run_tool, fail)
    logged = only_record(caplog)
    assert logged.levelno == logging.INFO
    assert "tool call 'charge' reported a failure to the model" in logged.getMessage()


def test_a_text_that_no_utf8_log_file_takes_is_repaired_and_keeps_its_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class UnreadableError(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    async def say_half_a_character(_: Any) -> Any:
        raise ConnectionResetError("peer \ud83d said")

    async def say_nothing(_: Any) -> Any:
        raise UnreadableError

    class StrictFileHandler(logging.FileHandler):
        def handleError(self, record: logging.LogRecord) -> None:
            raise AssertionError(f"the record is lost: {record!r}")

    handler = StrictFileHandler(tmp_path / "agents.log", encoding="utf-8")
    logging.getLogger(LOGGER).addHandler(handler)
    try:
        for function in (say_half_a_character, say_nothing):
            with pytest.raises((ConnectionResetError, UnreadableError)):
                attempt(run_tool, function)
    finally:
        logging.getLogger(LOGGER).removeHandler(handler)
        handler.close()
    text = (tmp_path / "agents.log").read_text(encoding="utf-8")
    assert "tool call 'charge' failed in session" in text
    assert "ConnectionResetError: peer \ufffd said" in text
    assert "in say_half_a_character" in text
    assert "in say_nothing" in text


def test_success_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(_: Any) -> Any:
        return TurnCompleted(new_messages=())

    async def act(_: Any) -> Any:
        return ToolExecutionResult(output="done")

    with caplog.at_level(logging.DEBUG, LOGGER):
        attempt(run_model, answer)
        attempt(run_tool, act)
    assert caplog.records == []


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("is_swallowed", [False, True])
def test_a_cancelled_attempt_is_not_logged_as_a_failure(
    caplog: pytest.LogCaptureFixture, run: Run, is_swallowed: bool
) -> None:
    async def hang(context: Any) -> Any:
        context.heartbeat()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            if is_swallowed:
                raise ConnectionAbortedError("the framework turned it into something else") from error
            raise

    async def main() -> None:
        activity = QuietActivity()
        task = asyncio.ensure_future(run(hang, activity))
        await activity.is_running.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() is not is_swallowed

    with caplog.at_level(logging.DEBUG, LOGGER):
        asyncio.run(main())
    assert [record for record in caplog.records if record.name == LOGGER] == []


@pytest.mark.parametrize(
    ("result", "logged"), [(LookupError("no item"), "LookupError: no item"), (("text",), "must be a FrameworkMessage")]
)
def test_a_builder_of_unfinished_turns_that_fails_is_logged(
    caplog: pytest.LogCaptureFixture, result: Any, logged: str
) -> None:
    async def unused(_: Any) -> Any:
        raise AssertionError

    async def main() -> None:
        execution = RunnerUnfinishedTurnExecution(FunctionRunner(unused, result))
        outcome = await execution.build_unfinished_turn_messages(QuietActivity(), model_snapshot())
        assert logged in (outcome.error or "")

    asyncio.run(main())
    record = only_record(caplog)
    assert record.levelno == logging.WARNING
    assert logged in logging.Formatter().format(record)
