"""Field scenario of cancellation (F40): nothing is left behind, the next turn works, partial text is no answer."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dex_agents.session.texts import TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT
from dex_agents_stepwise import (
    ModelRequest,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedReplyHold,
    function_tool,
)
from tests.session_kill.sessions import Sessions
from tests.session_kill.strict_model import StrictModel, call, calls, open_sessions, say, script
from tests.token_server import token_server

CANCELS = 100
WAIT_SECONDS = 60.0


def resources() -> tuple[int, int, int]:
    """Tasks, threads and file descriptors of this process."""
    return len(asyncio.all_tasks()), threading.active_count(), len(os.listdir("/dev/fd"))


async def reached(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait until something is so that nobody tells of."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"still not: {what()}") from None


async def send(sessions: Sessions, text: str, session_id: str = "s") -> None:
    """A message that must be accepted."""
    assert await sessions.client.send_user_message(session_id, text)


async def run_attempts(sessions: Sessions, session_id: str = "s") -> int:
    """How often `RunModel` ran, cancelled runs included."""
    return len(await sessions.attempts(session_id, "RunModel"))


def test_f40_a_hundred_cancelled_streams_leave_no_task_thread_or_socket(tmp_path: Path) -> None:
    async def scenario() -> None:
        streams = asyncio.Event()

        async with token_server() as tokens:

            async def answer(request: ModelRequest) -> ScriptedModelReply:
                if ScriptedModelClient.user_texts(request)[-1] == "hi":
                    return say("hello")
                return await tokens.stream(request, streams)

            async def cancel_stream(sessions: Sessions) -> None:
                streams.clear()
                await send(sessions, "stream")
                await streams.wait()
                assert await sessions.client.cancel_turn("s")
                assert (await sessions.idle("s")).last_turn_error is None

            model = StrictModel(answer)
            async with open_sessions(tmp_path, model) as sessions:
                await sessions.client.start_session("s")
                # What the first ones make, such as connections to the database, is kept.
                for _ in range(5):
                    await cancel_stream(sessions)
                await reached(lambda: tokens.open_connections == 0, lambda: tokens.open_connections)
                before = resources()
                for _ in range(CANCELS):
                    await cancel_stream(sessions)
                await reached(lambda: tokens.open_connections == 0, lambda: tokens.open_connections)
                await reached(lambda: resources() == before, lambda: (resources(), before))
                assert tokens.connections == len(model.requests) == CANCELS + 5
                assert await run_attempts(sessions) == len(model.requests)
                assert await sessions.endings("s") == ["turn_cancelled"] * (CANCELS + 5)

                await send(sessions, "hi")
                assert await sessions.completed("s") == "hello"
                snapshot = await sessions.client.get_agent_snapshot("s")
                assert [message.text for message in snapshot.messages if message.role == "assistant"] == ["hello"]
                # What a cancelled call used is unknown and not counted.
                assert snapshot.usage.model_calls == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("after_deltas", [1, 3])
def test_f40_partial_text_is_not_stored_as_an_answer(tmp_path: Path, after_deltas: int) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold(after_deltas=after_deltas)
        partial = ScriptedModelReply(text="abcdef", hold=hold)
        model = StrictModel(script([partial], [say("fine")]), delta_characters=2)
        async with open_sessions(tmp_path, model) as sessions:
            await sessions.client.start_session("s", initial_message="tell")
            await hold.wait_until_reached()
            async for event in sessions.client.stream_events("s"):
                if event.type == "text_delta":
                    break
            assert await sessions.client.cancel_turn("s", "turn-1")
            await sessions.idle("s")
            assert [message.text for message in (await sessions.client.get_agent_snapshot("s")).messages] == ["tell"]
            await send(sessions, "go on")
            assert await sessions.completed("s") == "fine"
            assert ScriptedModelClient.user_texts(model.requests[-1]) == ["tell", "go on"]
            assert len(model.requests[-1].input_items) == 2
            types = [event.type for event in await sessions.events("s")]
            assert "text_delta" not in types[types.index("turn_cancelled") : types.index("turn_started", 2)]

    asyncio.run(scenario())


def test_f40_a_second_cancel_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        started, released = asyncio.Event(), asyncio.Event()

        @function_tool(effect="non_idempotent_write", requires_approval=False)
        async def pay() -> str:
            started.set()
            await released.wait()
            return "paid"

        model = StrictModel(script([calls(call("pay"), call("ask_user", {"question": "Sure?"}))], [say("fine")]))
        async with open_sessions(tmp_path, model, [pay], built_in_tools=["ask_user"]) as sessions:
            await sessions.client.start_session("s", initial_message="pay")
            await started.wait()
            assert await sessions.client.cancel_turn("s")
            snapshot, events = await sessions.client.get_agent_snapshot("s"), await sessions.events("s")
            assert await sessions.client.cancel_turn("s", "turn-1")
            assert await sessions.client.get_agent_snapshot("s") == snapshot
            assert await sessions.events("s") == events
            released.set()
            await sessions.idle("s")
            assert await sessions.statuses("s") == [("pay", "succeeded"), ("ask_user", "rejected")]
            assert not await sessions.client.cancel_turn("s")
            assert not await sessions.client.cancel_turn("s", "turn-1")
            await send(sessions, "and now?")
            assert await sessions.completed("s") == "fine"
            assert await sessions.endings("s") == ["turn_cancelled", "turn_completed"]
            results = [item for item in (await sessions.client.get_agent_snapshot("s")).messages if item.role == "tool"]
            assert [item.text for item in results] == ["paid", TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT]

    asyncio.run(scenario())


def test_f40_a_cancel_with_an_old_turn_id_leaves_the_running_turn_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold()
        model = StrictModel(script([say("one")], [ScriptedModelReply(text="two", hold=hold)]))
        async with open_sessions(tmp_path, model) as sessions:
            await sessions.client.start_session("s", initial_message="1")
            assert await sessions.completed("s") == "one"
            await send(sessions, "2")
            await hold.wait_until_reached()
            for turn_id in ("turn-1", "turn-3", ""):
                assert not await sessions.client.cancel_turn("s", turn_id)
            hold.release()
            assert await sessions.completed("s") == "two"
            assert await sessions.endings("s") == ["turn_completed", "turn_completed"]
            assert await sessions.attempts("s", "RunModel") == [(1, "succeeded"), (1, "succeeded")]

    asyncio.run(scenario())


def test_f40_a_cancel_during_a_durable_wait_ends_it_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        wait = call("durable_wait", {"duration_seconds": 3600, "reason": "the parcel"})
        model = StrictModel(script([calls(wait)], [say("fine")]))
        async with open_sessions(tmp_path, model, built_in_tools=["durable_wait"]) as sessions:
            await sessions.client.start_session("s", initial_message="wait")
            await sessions.record("s", "durable_wait", "waiting_for_timer")
            assert await sessions.client.cancel_turn("s")
            await sessions.idle("s")
            assert await sessions.statuses("s") == [("durable_wait", "rejected")]
            await send(sessions, "hi")
            assert await sessions.completed("s") == "fine"
            (step,) = (await sessions.engine.describe_flow("s")).open_steps
            assert (step.step_type, step.due) == ("AwaitUserMessage", None)

    asyncio.run(scenario())
