"""Field scenario of hangs (F49): a model that never answers or stalls, tools that do not stop, one slot for all."""

from __future__ import annotations

import asyncio
import functools
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents.execution import model_step, tool_call
from dex_agents.execution.heartbeats import BackgroundHeartbeats
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_stepwise import (
    FunctionTool,
    ModelRequest,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedReplyHold,
    function_tool,
)
from dex_flow import Retry
from tests.session_kill.sessions import Sessions
from tests.session_kill.strict_model import Script, StrictModel, call, calls, open_sessions, say

ONE_SLOT = {"max_concurrent_steps": 1}
TIMEOUT = timedelta(seconds=0.6)
#: Far shorter than the attempt: only heartbeats can keep it alive for so long.
SHORT_SILENCE = timedelta(seconds=0.2)
SHORT_TIMEOUTS = {"attempt_timeout": TIMEOUT, "heartbeat_timeout": SHORT_SILENCE}


def hanging(reply: ScriptedModelReply) -> Script:
    """Say this to `hang`, and answer everything else."""

    def answer(request: ModelRequest) -> ScriptedModelReply:
        if ScriptedModelClient.tool_results(request):
            return say("told")
        return reply if ScriptedModelClient.user_texts(request)[-1] == "hang" else say("hello")

    return answer


async def check_slot_is_free(sessions: Sessions) -> None:
    """The only slot runs another session, and the session itself."""
    await sessions.client.start_session("other", initial_message="hi")
    assert await sessions.completed("other") == "hello"
    assert await sessions.client.send_user_message("s", "hi")
    assert await sessions.completed("s") == "hello"


@pytest.fixture
def quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session beats every few milliseconds instead of every 20 seconds."""
    quick = functools.partial(BackgroundHeartbeats, interval_seconds=0.01)
    for module in (model_step, tool_call):
        monkeypatch.setattr(module, "BackgroundHeartbeats", quick)


@pytest.mark.parametrize("after_deltas", [0, 1], ids=["no first token", "stalls mid-stream"])
def test_f49_cancel_works_at_once_on_a_model_that_hangs(tmp_path: Path, after_deltas: int) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold(after_deltas=after_deltas)
        model = StrictModel(hanging(ScriptedModelReply(text="abcd", hold=hold)), delta_characters=2)
        async with open_sessions(tmp_path, model, engine_options=ONE_SLOT) as sessions:
            await sessions.client.start_session("s", initial_message="hang")
            await hold.wait_until_reached()
            assert await sessions.client.cancel_turn("s")
            await sessions.idle("s")
            assert await sessions.attempts("s", "RunModel") == [(1, "cancelled")]
            await check_slot_is_free(sessions)
            assert await sessions.endings("s") == ["turn_cancelled", "turn_completed"]

    asyncio.run(scenario())


@pytest.mark.usefixtures("quick_heartbeats")
@pytest.mark.parametrize("after_deltas", [0, 1], ids=["no first token", "stalls mid-stream"])
def test_f49_heartbeats_keep_a_model_call_alive_until_its_attempt_timeout(tmp_path: Path, after_deltas: int) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold(after_deltas=after_deltas)
        model = StrictModel(hanging(ScriptedModelReply(text="abcd", hold=hold)), delta_characters=2)
        step_options = {"RunModel": {**SHORT_TIMEOUTS, "retry": Retry(attempts=2, backoff=timedelta(0))}}
        async with open_sessions(tmp_path, model, engine_options=ONE_SLOT, step_options=step_options) as sessions:
            await sessions.client.start_session("s", initial_message="hang")
            state = await sessions.idle("s")
            assert state.last_turn_error is not None
            assert state.last_turn_error.type == "StepAttemptTimeoutError"
            assert await sessions.attempts("s", "RunModel") == [(1, "failed"), (2, "failed")]
            assert len(model.requests) == 2
            for entry in await sessions.engine.read_step_history("s"):
                if (entry.step_type, entry.method) == ("RunModel", "run"):
                    assert entry.finished_at - entry.started_at >= TIMEOUT
            await check_slot_is_free(sessions)

    asyncio.run(scenario())


def test_f49_a_silent_model_call_ends_at_its_heartbeat_timeout(tmp_path: Path) -> None:
    """The session beats every 20 seconds, which is too seldom here."""

    async def scenario() -> None:
        hold = ScriptedReplyHold()
        model = StrictModel(hanging(ScriptedModelReply(text="a", hold=hold)))
        step_options = {"RunModel": {"heartbeat_timeout": SHORT_SILENCE, "retry": Retry(attempts=1)}}
        async with open_sessions(tmp_path, model, engine_options=ONE_SLOT, step_options=step_options) as sessions:
            await sessions.client.start_session("s", initial_message="hang")
            state = await sessions.idle("s")
            assert state.last_turn_error is not None
            assert state.last_turn_error.type == "HeartbeatTimeoutError"
            await check_slot_is_free(sessions)

    asyncio.run(scenario())


def test_f49_a_model_call_that_ignores_its_cancellation_holds_nobody_up(tmp_path: Path) -> None:
    """What it still streams and returns is dropped."""

    async def scenario() -> None:
        streams, ignored, released, done = (asyncio.Event() for _ in range(4))

        async def answer(request: ModelRequest) -> ScriptedModelReply:
            if ScriptedModelClient.user_texts(request)[-1] != "hang":
                return say("hello")
            request.on_text_delta("early")
            streams.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ignored.set()
            await released.wait()
            request.on_text_delta("late")
            done.set()
            return say("too late")

        model = StrictModel(answer)
        async with open_sessions(tmp_path, model, engine_options=ONE_SLOT) as sessions:
            await sessions.client.start_session("s", initial_message="hang")
            await streams.wait()
            assert await sessions.client.cancel_turn("s")
            await sessions.idle("s")
            await ignored.wait()
            assert not done.is_set()
            await check_slot_is_free(sessions)
            released.set()
            await done.wait()
            assert await sessions.client.send_user_message("s", "hi again")
            assert await sessions.completed("s") == "hello"
            texts = [message.text for message in (await sessions.client.get_agent_snapshot("s")).messages]
            assert texts == ["hang", "hi", "hello", "hi again", "hello"]
            events = await sessions.events("s")
            assert "late" not in "".join(event.payload["text"] for event in events if event.type == "text_delta")

    asyncio.run(scenario())


@pytest.mark.usefixtures("quick_heartbeats")
@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("is_cancelled", [False, True], ids=["left alone", "turn cancelled"])
def test_f49_a_tool_that_does_not_stop_ends_at_its_attempt_timeout(
    tmp_path: Path, kind: str, is_cancelled: bool
) -> None:
    """A cancelled turn lets it run until then; what it returns afterwards is dropped, and it frees its slot."""

    async def scenario() -> None:
        started, released, ended = threading.Event(), threading.Event(), threading.Event()
        # The cancellation must come before the timeout, even on a machine that is busy with something else.
        timeout = timedelta(seconds=4) if is_cancelled else TIMEOUT
        step_options = {"CallSingleAttemptTool": {**SHORT_TIMEOUTS, "attempt_timeout": timeout}}
        model = StrictModel(hanging(calls(call("pay"))))
        tool = stubborn_tool(kind, started, released, ended)
        async with open_sessions(
            tmp_path, model, [tool], engine_options=ONE_SLOT, step_options=step_options
        ) as sessions:
            try:
                await sessions.client.start_session("s", initial_message="hang")
                await asyncio.to_thread(started.wait)
                if is_cancelled:
                    assert await sessions.client.cancel_turn("s")
                await sessions.idle("s")
                assert not ended.is_set()
                assert await sessions.statuses("s") == [("pay", "outcome_unknown")]
                assert await sessions.attempts("s", "CallSingleAttemptTool") == [(1, "failed")]
                assert await sessions.endings("s") == ["turn_cancelled" if is_cancelled else "turn_completed"]
                await check_slot_is_free(sessions)
            finally:
                released.set()
            await asyncio.to_thread(ended.wait)
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert [message.text for message in messages if message.role == "tool"] == [OUTCOME_UNKNOWN_TOOL_RESULT]
            assert await sessions.client.send_user_message("s", "hi")
            assert await sessions.completed("s") == "hello"

    asyncio.run(scenario())


def stubborn_tool(
    kind: str, started: threading.Event, released: threading.Event, ended: threading.Event
) -> FunctionTool[..., Any]:
    """A tool that goes on until it is released, whatever is asked of it."""

    def pay() -> str:
        started.set()
        released.wait()
        ended.set()
        return "paid"

    async def pay_async() -> str:
        work = asyncio.ensure_future(asyncio.to_thread(pay))
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                continue
        return work.result()

    function: Any = pay if kind == "sync" else pay_async
    return function_tool(function, name="pay", effect="non_idempotent_write", requires_approval=False)
