"""One attempt of a model step, of a tool call and of an unfinished turn, with scripted runners."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dex_agents.execution.model_step import RunnerModelStepExecution
from dex_agents.execution.runner_calls import EscapedCancellationError
from dex_agents.execution.tool_call import RunnerToolCallExecution
from dex_agents.execution.unfinished_turn import RunnerUnfinishedTurnExecution
from dex_agents.runner import (
    AgentTurnContext,
    AgentUsage,
    DeferredToolCall,
    DeferredToolExecution,
    FrameworkMessage,
    ModelStepContinues,
    ResolvedToolPolicy,
    ToolCallsRequested,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskStarted,
    TurnCompleted,
    TurnRefusedError,
)
from dex_agents.session.ingress import RunnerContractError
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepOutcome,
    ModelStepRefused,
    ModelStepSnapshot,
    ModelStepToolCallsRequested,
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallSnapshot,
    ToolCallSucceeded,
    ToolCallTaskStarted,
    ToolOutcome,
)
from dex_agents.session.tool_values import (
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    AgentToolCallStatus,
    QuestionAnswer,
    ToolEffect,
    ToolPolicy,
)
from dex_agents.session.values import AgentMessage, AgentState, AgentStatus, InteractionMode
from dex_flow import Stream

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ANSWER = FrameworkMessage(role="assistant", framework_item='{"role":"assistant"}', text="done")
USER_MESSAGE = AgentMessage(sequence=1, turn_id="turn-1", role="user", framework_item='"hi"', created_at=NOW, text="hi")
READ = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)


class FakeActivity:
    """An `Activity` that collects what it was told."""

    flow_id = "order-42"
    step_execution_id = 7
    attempt = 2
    deadline: datetime | None = NOW
    heartbeat_checkpoint: str | None = "row 17"

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.heartbeats = 0
        self.checkpoints: list[str] = []

    def emit(self, stream: Stream[Any], event: Any) -> None:
        self.events.append((event.type, json.loads(event.payload)))

    def heartbeat(self) -> None:
        self.heartbeats += 1

    async def save_heartbeat_checkpoint(self, text: str) -> None:
        self.checkpoints.append(text)


class FunctionRunner:
    """A runner whose two coroutines are given functions."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]]) -> None:
        self._function = function

    def build_user_message(self, text: str) -> FrameworkMessage:
        return FrameworkMessage(role="user", framework_item=json.dumps(text), text=text)

    async def run_model_step(self, turn: AgentTurnContext) -> Any:
        return await self._function(turn)

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> Any:
        return await self._function(call)


def model_snapshot(**changes: Any) -> ModelStepSnapshot:
    values: dict[str, Any] = {
        "state": AgentState(
            status=AgentStatus.RUNNING_MODEL,
            interaction_mode=InteractionMode.PLANNING,
            active_turn_id="turn-1",
            turn_model_step_count=1,
            started_at=NOW,
            updated_at=NOW,
        ),
        "turn_id": "turn-1",
        "messages": (USER_MESSAGE,),
        "tool_calls": (record(status=AgentToolCallRecordStatus.SUCCEEDED, output="42").to_tool_call(),),
        "framework_run_state": '{"model_calls":1}',
        "options": AgentSessionOptions(tool_policies={"refund": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE)}),
        "session_settings": {"model": "small"},
    }
    return ModelStepSnapshot(**{**values, **changes})


def record(**changes: Any) -> AgentToolCallRecord:
    values: dict[str, Any] = {
        "tool_call_id": "call-1",
        "tool_name": "lookup",
        "arguments": "{}",
        "effect": ToolEffect.READ,
        "requires_approval": False,
        "status": AgentToolCallRecordStatus.APPROVED,
        "deferral_order": 0,
        "model_step_number": 1,
        "deferred_at": NOW,
    }
    return AgentToolCallRecord(**{**values, **changes})


def tool_snapshot(**changes: Any) -> ToolCallSnapshot:
    values: dict[str, Any] = {
        "record": record(input_answers=(QuestionAnswer(question="Which?", answer="7"),)),
        "turn_id": "turn-1",
        "idempotency_key": "order-42/turn-1/call-1",
        "messages": (USER_MESSAGE,),
        "framework_run_state": "state",
        "options": AgentSessionOptions(),
    }
    return ToolCallSnapshot(**{**values, **changes})


def run_model(
    function: Callable[[AgentTurnContext], Awaitable[Any]], activity: FakeActivity | None = None
) -> ModelStepOutcome:
    execution = RunnerModelStepExecution(FunctionRunner(function))
    outcome = asyncio.run(execution.run_model_step(activity or FakeActivity(), model_snapshot()))
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=ModelStepOutcome) == outcome
    return outcome


def run_tool(
    function: Callable[[DeferredToolExecution], Awaitable[Any]],
    activity: FakeActivity | None = None,
    **changes: Any,
) -> ToolOutcome:
    execution = RunnerToolCallExecution(FunctionRunner(function))
    outcome = asyncio.run(execution.run_tool_call(activity or FakeActivity(), tool_snapshot(**changes)))
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=ToolOutcome) == outcome
    return outcome


def test_a_runner_sees_the_whole_snapshot() -> None:
    seen: list[AgentTurnContext] = []

    async def step(turn: AgentTurnContext) -> TurnCompleted:
        seen.append(turn)
        return TurnCompleted(new_messages=(ANSWER,))

    run_model(step)
    turn = seen[0]
    snapshot = model_snapshot()
    assert (turn.flow_id, turn.turn_id, turn.attempt, turn.step_execution_id) == ("order-42", "turn-1", 2, 7)
    assert (turn.messages, turn.tool_calls) == (snapshot.messages, snapshot.tool_calls)
    assert (turn.framework_run_state, turn.model_step_count, turn.deadline) == ('{"model_calls":1}', 1, NOW)
    assert turn.interaction_mode is InteractionMode.PLANNING
    assert turn.previous_step_tool_calls == snapshot.tool_calls
    assert turn.resolve_tool_policy("refund").effect is ToolEffect.IDEMPOTENT_WRITE
    assert dict(turn.session_settings) == {"model": "small"}
    with pytest.raises(TypeError):
        turn.session_settings["model"] = "large"  # type: ignore[index]


def test_each_outcome_of_a_model_step_becomes_its_storable_form() -> None:
    async def complete(turn: AgentTurnContext) -> TurnCompleted:
        return TurnCompleted(new_messages=(ANSWER,), usage=AgentUsage(model_calls=1, input_tokens=5))

    async def ask(turn: AgentTurnContext) -> ToolCallsRequested:
        call = DeferredToolCall(tool_call_id="x", tool_name="lookup", arguments='{"order":7}', policy=READ)
        return ToolCallsRequested(framework_run_state="s", tool_calls=(call,))

    async def go_on(turn: AgentTurnContext) -> ModelStepContinues:
        return ModelStepContinues(framework_run_state="s2")

    completed = run_model(complete)
    assert isinstance(completed, ModelStepCompleted)
    assert completed.new_messages == (ANSWER,)
    assert completed.usage == AgentUsage(model_calls=1, input_tokens=5)
    asked = run_model(ask)
    assert isinstance(asked, ModelStepToolCallsRequested)
    assert [(call.tool_name, call.arguments) for call in asked.tool_calls] == [("lookup", '{"order":7}')]
    assert (asked.framework_run_state, asked.new_messages, asked.usage.model_calls) == ("s", (), 1)
    continued = run_model(go_on)
    assert isinstance(continued, ModelStepContinued)
    assert continued.framework_run_state == "s2"


def test_a_refusal_is_an_outcome_and_any_other_error_an_attempt_failure() -> None:
    async def refuse(turn: AgentTurnContext) -> TurnCompleted:
        raise TurnRefusedError("the context is too long")

    async def break_down(turn: AgentTurnContext) -> TurnCompleted:
        raise ConnectionResetError("peer")

    refused = run_model(refuse)
    assert isinstance(refused, ModelStepRefused)
    assert (refused.error_type, refused.message) == ("TurnRefusedError", "the context is too long")
    with pytest.raises(ConnectionResetError, match="peer"):
        run_model(break_down)


@pytest.mark.parametrize(
    ("outcome", "named"),
    [
        (None, "run_model_step must return"),
        ("text", "run_model_step must return"),
        (ToolExecutionResult(output="x"), "run_model_step must return"),
        (ToolCallsRequested(framework_run_state="s", tool_calls=()), "at least one tool call"),
        (ModelStepContinues(framework_run_state=""), "framework_run_state"),
        (ModelStepContinues(framework_run_state=None), "framework_run_state"),  # type: ignore[arg-type]
        (TurnCompleted(new_messages=("hi",)), "FrameworkMessage"),  # type: ignore[arg-type]
    ],
)
def test_a_model_step_outside_the_contract_fails_the_attempt_and_names_the_fault(outcome: Any, named: str) -> None:
    async def step(turn: AgentTurnContext) -> Any:
        return outcome

    with pytest.raises(RunnerContractError, match=named):
        run_model(step)


def test_a_method_that_is_not_async_is_named() -> None:
    class SyncRunner(FunctionRunner):
        def run_model_step(self, turn: AgentTurnContext) -> Any:
            return TurnCompleted(new_messages=(ANSWER,))

        def execute_deferred_tool_call(self, call: DeferredToolExecution) -> Any:
            return ToolExecutionResult(output="x")

    async def unused(_: Any) -> None:
        raise AssertionError

    runner = SyncRunner(unused)
    with pytest.raises(RunnerContractError, match="run_model_step must be an async method; it returned TurnCompleted"):
        asyncio.run(RunnerModelStepExecution(runner).run_model_step(FakeActivity(), model_snapshot()))
    with pytest.raises(RunnerContractError, match="execute_deferred_tool_call must be an async method"):
        asyncio.run(RunnerToolCallExecution(runner).run_tool_call(FakeActivity(), tool_snapshot()))


def test_events_of_an_attempt_are_flushed_also_when_it_fails() -> None:
    activity = FakeActivity()

    async def step(turn: AgentTurnContext) -> TurnCompleted:
        for piece in ("par", "ti", "al"):
            turn.events.write_text_delta(piece)
        turn.heartbeat()
        raise ConnectionResetError("peer")

    with pytest.raises(ConnectionResetError):
        run_model(step, activity)
    assert activity.events == [("text_delta", {"text": "par"}), ("text_delta", {"text": "tial"})]
    assert activity.heartbeats == 1


@pytest.mark.parametrize("swallowing", [False, True])
def test_cancelling_an_attempt_never_reads_as_completion(swallowing: bool) -> None:
    async def hang(call: Any) -> Any:
        call.heartbeat()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            if swallowing:
                raise ConnectionAbortedError("the framework turned it into something else") from error
            raise

    class SignallingActivity(FakeActivity):
        def __init__(self) -> None:
            super().__init__()
            self.is_running = asyncio.Event()

        def heartbeat(self) -> None:
            self.is_running.set()

    async def cancel_when_running(run: Callable[[FakeActivity], Coroutine[Any, Any, Any]]) -> object:
        activity = SignallingActivity()
        task = asyncio.create_task(run(activity))
        await activity.is_running.wait()
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        return results[0]

    runner = FunctionRunner(hang)
    runs: list[Callable[[FakeActivity], Coroutine[Any, Any, Any]]] = [
        lambda activity: RunnerModelStepExecution(runner).run_model_step(activity, model_snapshot()),
        lambda activity: RunnerToolCallExecution(runner).run_tool_call(activity, tool_snapshot()),
    ]
    for run in runs:
        assert type(asyncio.run(cancel_when_running(run))) is (
            ConnectionAbortedError if swallowing else asyncio.CancelledError
        )


def test_a_cancelled_error_that_nobody_asked_for_fails_the_attempt() -> None:
    async def leak(_: Any) -> Any:
        inner = asyncio.create_task(asyncio.sleep(1_000))
        inner.cancel()
        await inner

    with pytest.raises(EscapedCancellationError, match="run_model_step raised CancelledError"):
        run_model(leak)
    with pytest.raises(EscapedCancellationError, match="execute_deferred_tool_call raised CancelledError"):
        run_tool(leak)


def test_a_tool_sees_its_call_and_may_save_a_checkpoint() -> None:
    seen: list[DeferredToolExecution] = []
    activity = FakeActivity()

    async def tool(call: DeferredToolExecution) -> ToolExecutionResult:
        seen.append(call)
        await call.save_heartbeat_checkpoint("row 18")
        call.heartbeat()
        call.events.write_event("progress", {"row": 18})
        return ToolExecutionResult(output="shipped", framework_result='{"parts":[]}')

    outcome = run_tool(tool, activity)
    assert outcome == ToolCallSucceeded(output="shipped", framework_result='{"parts":[]}')
    call = seen[0]
    assert (call.flow_id, call.turn_id, call.attempt, call.step_execution_id) == ("order-42", "turn-1", 2, 7)
    assert (call.tool_call.tool_call_id, call.tool_call.status) == ("call-1", AgentToolCallStatus.APPROVED)
    assert (call.idempotency_key, call.heartbeat_checkpoint, call.deadline) == ("order-42/turn-1/call-1", "row 17", NOW)
    assert [answer.answer for answer in call.input_answers] == ["7"]
    assert (call.framework_run_state, call.messages, call.supports_tool_tasks) == ("state", (USER_MESSAGE,), False)
    assert (activity.checkpoints, activity.heartbeats) == (["row 18"], 1)
    assert activity.events == [("progress", {"row": 18})]


def test_a_tool_may_start_a_task() -> None:
    async def tool(call: DeferredToolExecution) -> ToolTaskStarted:
        return ToolTaskStarted(task_id="job-1", poll_interval_seconds=1.2)

    assert run_tool(tool) == ToolCallTaskStarted(task_id="job-1", poll_interval_seconds=2)


def test_a_tool_failure_for_the_model_is_an_outcome_and_any_other_error_an_attempt_failure() -> None:
    async def fail(call: DeferredToolExecution) -> ToolExecutionResult:
        raise ToolExecutionError("no such order\ud83d")

    async def break_down(call: DeferredToolExecution) -> ToolExecutionResult:
        raise TimeoutError("payments")

    assert run_tool(fail) == ToolCallFailed(message="no such order\ufffd")
    with pytest.raises(TimeoutError, match="payments"):
        run_tool(break_down)


def test_a_tool_may_ask_the_user() -> None:
    async def ask(call: DeferredToolExecution) -> ToolInputRequested:
        return ToolInputRequested(question="Which order?", choices=("7", "8"), allows_free_text=False)

    expected = ToolCallInputRequested(question="Which order?", choices=("7", "8"), allows_free_text=False)
    assert run_tool(ask) == expected


def test_a_result_above_the_limit_is_a_failure_of_the_call_and_not_of_the_attempt() -> None:
    async def tool(call: DeferredToolExecution) -> ToolExecutionResult:
        return ToolExecutionResult(output="x" * 5_000)

    outcome = run_tool(tool, options=AgentSessionOptions(max_tool_result_bytes=1_024))
    assert isinstance(outcome, ToolCallFailed)
    assert "lookup" in outcome.message
    assert "5000" in outcome.message.replace(",", "")


@pytest.mark.parametrize("outcome", [None, "text", {"output": "x"}, TurnCompleted(new_messages=())])
def test_a_tool_result_outside_the_contract_fails_the_attempt(outcome: Any) -> None:
    async def tool(call: DeferredToolExecution) -> Any:
        return outcome

    with pytest.raises(RunnerContractError, match="execute_deferred_tool_call must return"):
        run_tool(tool)


class TranscriptRunner(FunctionRunner):
    """A runner that completes unfinished turns, or cannot."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], result: Any) -> None:
        super().__init__(function)
        self._result = result

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> Any:
        assert turn.tool_calls == model_snapshot().tool_calls
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


async def ask_and_store(turn: AgentTurnContext) -> ToolCallsRequested:
    call = DeferredToolCall(tool_call_id="x", tool_name="lookup", arguments="{}", policy=READ)
    return ToolCallsRequested(framework_run_state="s", tool_calls=(call,), new_messages=(ANSWER,))


def test_only_a_runner_that_completes_unfinished_turns_may_store_messages_during_one() -> None:
    with pytest.raises(RunnerContractError, match="build_unfinished_turn_messages"):
        run_model(ask_and_store)
    execution = RunnerModelStepExecution(TranscriptRunner(ask_and_store, ()))
    outcome = asyncio.run(execution.run_model_step(FakeActivity(), model_snapshot()))
    assert isinstance(outcome, ModelStepToolCallsRequested)
    assert outcome.new_messages == (ANSWER,)


@pytest.mark.parametrize(
    ("result", "messages", "error"),
    [
        ((ANSWER,), (ANSWER,), None),
        ((), (), None),
        (LookupError("no item"), (), "LookupError: no item"),
        (("text",), (), "RunnerContractError: a message must be a FrameworkMessage, not str"),
    ],
)
def test_an_unfinished_turn_gets_its_messages_or_the_builders_error(
    result: Any, messages: tuple[FrameworkMessage, ...], error: str | None
) -> None:
    execution = RunnerUnfinishedTurnExecution(TranscriptRunner(ask_and_store, result))
    outcome = asyncio.run(execution.build_unfinished_turn_messages(FakeActivity(), model_snapshot()))
    assert (outcome.messages, outcome.error) == (messages, error)
