"""Sending a message and waiting for its turn, on the embedded engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dex_agents import (
    AgentSessionClient,
    AgentSessionFlow,
    AgentTurnContext,
    DeferredToolCall,
    DeferredToolExecution,
    FrameworkMessage,
    ResolvedToolPolicy,
    SendResult,
    ToolCallsRequested,
    ToolEffect,
    ToolExecutionResult,
    TurnCompleted,
    TurnRefusedError,
    create_agent_session_flow,
)
from dex_agents.client_results import AnswerResult, CancelResult, MessageRefusedError, SteerResult, TurnStatus
from dex_flow import FlowClosedError, FlowNotFoundError, RequestIdReusedError
from dex_flow.embedded import EmbeddedEngine

WAIT_SECONDS = 60
GATED = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=True)
FREE = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)

ModelStep = Callable[[AgentTurnContext], Awaitable[Any]]


def message(role: Any, text: str) -> FrameworkMessage:
    return FrameworkMessage(role=role, framework_item=json.dumps({role: text}), text=text)


def say(text: str) -> TurnCompleted:
    return TurnCompleted(new_messages=(message("assistant", text),))


def ask(tool_name: str, policy: ResolvedToolPolicy, **arguments: Any) -> ToolCallsRequested:
    call = DeferredToolCall(tool_call_id="c1", tool_name=tool_name, arguments=json.dumps(arguments), policy=policy)
    return ToolCallsRequested(framework_run_state="asked", tool_calls=(call,))


class ScriptedRunner:
    """A runner whose model is a function."""

    def __init__(self, step: ModelStep) -> None:
        self._step = step

    def build_user_message(self, text: str) -> FrameworkMessage:
        return message("user", text)

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        return (message("assistant", "unfinished"),)

    async def run_model_step(self, turn: AgentTurnContext) -> Any:
        return await self._step(turn)

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> ToolExecutionResult:
        return ToolExecutionResult(output="done")


class Opened:
    """An open engine with one session and a client."""

    def __init__(self, engine: EmbeddedEngine, flow: AgentSessionFlow) -> None:
        self.engine = engine
        self.flow = flow
        self.client = AgentSessionClient(engine, flow)


@contextlib.asynccontextmanager
async def opened(folder: Path, step: ModelStep, **options: Any) -> AsyncIterator[Opened]:
    flow = create_agent_session_flow(ScriptedRunner(step), "ScriptedAgent", **options)
    async with EmbeddedEngine(folder / "agents.db", flows=[flow], durability="process") as engine:
        session = Opened(engine, flow)
        await session.client.start_session("s")
        yield session


def run(scenario: Awaitable[None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await scenario

    asyncio.run(main())


async def answer_with_turn(turn: AgentTurnContext) -> TurnCompleted:
    return say(f"answer of {turn.turn_id}")


def test_the_result_is_the_turns_answer_and_messages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, answer_with_turn) as session:
            result = await session.client.send_and_wait("s", "hi")
            assert (result.status, result.turn_id, result.text) == (TurnStatus.COMPLETED, "turn-1", "answer of turn-1")
            assert [(stored.sequence, stored.role) for stored in result.messages] == [(2, "assistant")]
            assert (result.pending_interrupts, result.error) == ((), None)
            again = await session.client.send_and_wait("s", "hi")
            assert (again.turn_id, again.text) == ("turn-2", "answer of turn-2")
            assert await session.client.wait_for_turn(result.sent_message) == result

    run(scenario())


def test_senders_of_one_text_each_get_the_answer_to_their_own_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, answer_with_turn) as session:
            clients = [session.client, AgentSessionClient(session.engine, session.flow)]
            results = await asyncio.gather(
                *(clients[number % 2].send_and_wait("s", "continue", request_id=str(number)) for number in range(20))
            )
            by_message = sorted(results, key=lambda result: result.sent_message.receipt.message_id)
            assert [result.turn_id for result in by_message] == [f"turn-{number}" for number in range(1, 21)]
            assert all(result.text == f"answer of {result.turn_id}" for result in results)

    run(scenario())


def test_a_client_without_a_worker_waits_for_turns_that_another_engine_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            opened(tmp_path, answer_with_turn) as session,
            EmbeddedEngine(tmp_path / "agents.db", flows=[session.flow], runs_worker=False) as remote,
        ):
            client = AgentSessionClient(remote, session.flow)
            for number in range(1, 4):
                result = await client.send_and_wait("s", "continue")
                assert (result.turn_id, result.text) == (f"turn-{number}", f"answer of turn-{number}")

    run(scenario())


def test_a_repeated_call_sends_nothing_and_returns_the_same_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, answer_with_turn) as session:
            first = await session.client.send_and_wait("s", "continue", request_id="r-1")
            await session.client.send_and_wait("s", "continue", request_id="r-2")
            assert await session.client.send_and_wait("s", "continue", request_id="r-1") == first
            assert (await session.client.get_agent_snapshot("s")).state.turn_count == 2  # type: ignore[union-attr]
            with pytest.raises(RequestIdReusedError):
                await session.client.send_user_message("s", "continue", request_id="r-1")

    run(scenario())


@pytest.mark.parametrize(
    ("text", "plan_mode", "reason"),
    [(" \u2003", False, SendResult.BLANK_TEXT), ("hi", True, SendResult.PLAN_MODE_UNAVAILABLE)],
)
def test_a_refused_message_is_an_error_with_its_reason(
    tmp_path: Path, text: str, plan_mode: bool, reason: SendResult
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, answer_with_turn) as session:
            with pytest.raises(MessageRefusedError, match=reason.value) as raised:
                await session.client.send_and_wait("s", text, plan_mode=plan_mode)
            assert raised.value.reason is reason
            with pytest.raises(FlowNotFoundError):
                await session.client.send_and_wait("unknown", "hi")

    run(scenario())


def test_a_failed_turn_is_a_result_with_its_error(tmp_path: Path) -> None:
    async def refuse_once(turn: AgentTurnContext) -> TurnCompleted:
        if turn.turn_id == "turn-1":
            raise TurnRefusedError("bad credentials")
        return say("fine")

    async def scenario() -> None:
        async with opened(tmp_path, refuse_once) as session:
            failed = await session.client.send_and_wait("s", "hi")
            assert (failed.status, failed.turn_id, failed.text) == (TurnStatus.FAILED, "turn-1", "")
            assert failed.error is not None
            assert (failed.error.type, failed.error.message) == ("TurnRefusedError", "bad credentials")
            assert (await session.client.send_and_wait("s", "again")).status is TurnStatus.COMPLETED
            later = await session.client.wait_for_turn(failed.sent_message)
            assert (later.status, later.error) == (TurnStatus.FAILED, failed.error)

    run(scenario())


async def ask_then_answer(turn: AgentTurnContext) -> Any:
    if turn.framework_run_state is None and turn.turn_id == "turn-1":
        return ask("refund", GATED)
    return say(f"answer of {turn.turn_id}")


def test_a_turn_that_needs_an_approval_returns_and_can_be_waited_for_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, ask_then_answer) as session:
            waiting = await session.client.send_and_wait("s", "refund it")
            assert (waiting.status, waiting.turn_id) == (TurnStatus.WAITING_FOR_PERSON, "turn-1")
            behind = await session.client.send_and_wait("s", "and then")
            assert (behind.status, behind.turn_id) == (TurnStatus.WAITING_FOR_PERSON, None)
            (interrupt,) = waiting.pending_interrupts
            assert behind.pending_interrupts == (interrupt,)
            assert await session.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
            done = await session.client.wait_for_turn(waiting.sent_message)
            assert (done.status, done.text) == (TurnStatus.COMPLETED, "answer of turn-1")
            done = await session.client.wait_for_turn(behind.sent_message)
            assert (done.status, done.text) == (TurnStatus.COMPLETED, "answer of turn-2")

    run(scenario())


def test_a_turn_that_asks_a_question_returns_and_goes_on_after_the_answer(tmp_path: Path) -> None:
    async def question_then_answer(turn: AgentTurnContext) -> Any:
        assert turn.enabled_built_in_tools == ("ask_user",)
        if turn.framework_run_state is None:
            return ask("ask_user", FREE, question="Which?", choices=["7", "8"], allows_free_text=False)
        return say(turn.tool_calls[0].output or "")

    async def scenario() -> None:
        async with opened(tmp_path, question_then_answer, built_in_tools=["ask_user"]) as session:
            waiting = await session.client.send_and_wait("s", "refund it")
            (question,) = waiting.pending_interrupts
            assert (question.kind, question.question) == ("question", "Which?")
            answer = session.client.answer_question_with_reason
            assert await answer("s", question.interrupt_id, "9") is AnswerResult.NOT_A_CHOICE
            assert await answer("s", question.interrupt_id, " ") is AnswerResult.BLANK_ANSWER
            assert await answer("s", question.interrupt_id, "8") is AnswerResult.ACCEPTED
            assert await answer("s", question.interrupt_id, "8") is AnswerResult.NOT_PENDING
            done = await session.client.wait_for_turn(waiting.sent_message)
            assert json.loads(done.text) == {"status": "answered", "answer": "8"}

    run(scenario())


class HeldModel:
    """A model that answers the first turn only when it is let go."""

    def __init__(self) -> None:
        self.is_running = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self, turn: AgentTurnContext) -> TurnCompleted:
        if turn.turn_id == "turn-1":
            self.is_running.set()
            await self.release.wait()
        return say(f"answer of {turn.turn_id}")


def test_a_stopped_turn_is_a_result_and_the_queue_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = HeldModel()
        async with opened(tmp_path, model) as session:
            stop = session.client.cancel_turn_with_reason
            assert await stop("s") is CancelResult.NO_ACTIVE_TURN
            first = await session.client.send_with_receipt("s", "continue")
            second = asyncio.create_task(session.client.send_and_wait("s", "continue"))
            await model.is_running.wait()
            assert await stop("s", "turn-2") is CancelResult.ANOTHER_TURN
            assert await stop("s", "turn-1") is CancelResult.ACCEPTED
            stopped = await session.client.wait_for_turn(first)
            assert (stopped.status, stopped.turn_id, stopped.text) == (TurnStatus.CANCELLED, "turn-1", "")
            assert [stored.text for stored in stopped.messages] == ["unfinished"]
            assert (await second).text == "answer of turn-2"
            await session.client.wait_until_idle("s")
            assert await stop("s", "turn-1") is CancelResult.NO_ACTIVE_TURN

    run(scenario())


def test_a_steered_turn_is_a_result_and_so_is_the_message_that_steered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, ask_then_answer) as session:
            first = await session.client.send_and_wait("s", "refund it")
            behind = await session.client.send_with_receipt("s", "stop that")
            steer = session.client.steer_user_message_with_reason
            assert await steer("s", message_id=behind.receipt.message_id) is SteerResult.ACCEPTED
            assert await steer("s", message_id=behind.receipt.message_id) is SteerResult.NOT_QUEUED
            steered = await session.client.wait_for_turn(first.sent_message)
            assert (steered.status, steered.turn_id, steered.text) == (TurnStatus.STEERED, "turn-1", "")
            assert (await session.client.wait_for_turn(behind)).text == "answer of turn-2"
            await session.client.wait_until_idle("s")
            assert await steer("s", "and now") is SteerResult.ACCEPTED
            assert await steer("s", " ") is SteerResult.BLANK_TEXT
            await session.client.wait_until_idle("s")
            assert (await session.client.list_agent_messages("s", limit=1)).messages[0].text == "answer of turn-3"

    run(scenario())


def test_a_deleted_message_is_withdrawn_while_somebody_waits_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = HeldModel()
        async with opened(tmp_path, model) as session:
            await session.client.send_user_message("s", "hold")
            sent = await session.client.send_with_receipt("s", "never mind")
            waiting = asyncio.create_task(session.client.wait_for_turn(sent))
            await model.is_running.wait()
            assert await session.client.delete_queued_message("s", sent.receipt.message_id)
            withdrawn = await waiting
            assert (withdrawn.status, withdrawn.turn_id, withdrawn.messages) == (TurnStatus.WITHDRAWN, None, ())
            model.release.set()
            await session.client.wait_until_idle("s")
            assert (await session.client.wait_for_turn(sent)).status is TurnStatus.WITHDRAWN

    run(scenario())


def test_a_wait_that_times_out_says_what_the_session_does_and_may_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = HeldModel()
        async with opened(tmp_path, model) as session:
            with pytest.raises(TimeoutError) as raised:
                await session.client.send_and_wait("s", "hi", timeout=0, request_id="r-1")
            assert str(raised.value) == (
                "session 's' did not reach the end of the turn that takes message 1 within 0 s: "
                "turn-1 is at model step 1"
            )
            model.release.set()
            assert (await session.client.send_and_wait("s", "hi", request_id="r-1")).text == "answer of turn-1"

    run(scenario())


def test_a_session_that_is_stopped_ends_every_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, ask_then_answer) as session:
            waiting = await session.client.send_and_wait("s", "refund it")
            idle = asyncio.create_task(session.client.wait_until_idle("s"))
            events = asyncio.create_task(collect(session.client.stream_events("s")))
            await session.engine.stop_flow("s")
            with pytest.raises(FlowClosedError):
                await idle
            with pytest.raises(FlowClosedError):
                await session.client.wait_for_turn(waiting.sent_message)
            with pytest.raises(FlowClosedError):
                await session.client.wait_for_interrupts("s")
            with pytest.raises(FlowClosedError):
                await session.client.send_and_wait("s", "hi")
            types = [event.type for event in await events]
            assert types[0] == "turn_started"
            assert "interrupt_raised" in types

    run(scenario())


async def collect(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


def test_events_of_a_stopped_session_are_iterated_from_any_position_and_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, answer_with_turn) as session:
            await session.client.send_and_wait("s", "hi")
            await session.engine.stop_flow("s")
            every = await collect(session.client.stream_events("s"))
            assert [event.position for event in every] == list(range(1, len(every) + 1))
            assert await collect(session.client.stream_events("s", after=2)) == every[2:]
            assert await collect(session.client.stream_events("s", after=every[-1].position)) == []
            assert await collect(session.client.stream_events("s", after=1_000)) == []
            with pytest.raises(FlowNotFoundError):
                await collect(session.client.stream_events("unknown"))

    run(scenario())


def test_without_its_live_events_a_turn_still_has_its_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, answer_with_turn, event_stream_capacity_bytes=1) as session:
            result = await session.client.send_and_wait("s", "hi")
            assert (result.status, result.text) == (TurnStatus.ENDED, "answer of turn-1")

    run(scenario())


def test_a_flow_without_receipts_is_named(tmp_path: Path) -> None:
    from dex_agents.testing import SessionDriver
    from dex_flow import UnknownRpcError

    async def scenario() -> None:
        flow = SessionDriver().flow
        async with EmbeddedEngine(tmp_path / "agents.db", flows=[flow], runs_worker=False) as engine:
            with pytest.raises(UnknownRpcError, match="send_user_message_with_receipt"):
                await AgentSessionClient(engine, flow).send_and_wait("s", "hi")

    run(scenario())
