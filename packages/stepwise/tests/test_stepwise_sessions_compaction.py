"""Compaction from end to end: small windows, retention, and summaries that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dex_agents import AgentStatus, CompactionPolicy
from dex_agents.session.texts import CONTEXT_SUMMARY_NOTE_HEADER
from dex_agents_stepwise import (
    ModelRequest,
    ModelToolResult,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedReplyHold,
)

from .stepwise_agent import ask, call, note, say
from .stepwise_sessions import LiveSession, live_session

WINDOW = CompactionPolicy(context_window_tokens=1_000, trigger_ratio=0.8, retained_ratio=0.3)


class ChattyModel:
    """Calls two tools at once, a number of times per turn, then answers; summarises as it is told.

    Args:
        batches: How often it calls tools before it answers.
        summarize: What it says to a summary request.
    """

    def __init__(self, batches: int, summarize: Callable[[], ScriptedModelReply]) -> None:
        self.batches = batches
        self.summarize = summarize
        self.calls = 0
        self.answers = 0
        self.summary_requests: list[ModelRequest] = []

    def reply(self, request: ModelRequest) -> ScriptedModelReply:
        if ScriptedModelClient.is_summary_request(request):
            self.summary_requests.append(request)
            return self.summarize()
        if self.calls % (self.batches + 1) < self.batches:
            self.calls += 1
            words = [f"{self.calls}.{number} ".ljust(150, "x") for number in (1, 2)]
            return ask(*(call("note", {"text": text}) for text in words))
        self.calls += 1
        self.answers += 1
        return say(f"answer {self.answers}")


def results(request: ModelRequest) -> list[str]:
    return [item.output[6:].split(" ")[0] for item in request.input_items if isinstance(item, ModelToolResult)]


def every_call(model: ChattyModel) -> list[str]:
    """The results of all tool calls so far, in order."""
    steps = [step for step in range(1, model.calls + 1) if step % (model.batches + 1)]
    return [f"{step}.{number}" for step in steps for number in (1, 2)]


async def status_left_compaction(session: LiveSession) -> None:
    state = await session.ended_state()
    assert state.status is AgentStatus.WAITING_FOR_USER_MESSAGE
    assert state.turn_compaction_error is None


@pytest.mark.parametrize("batches", [0, 1, 6])
def test_a_session_goes_on_and_on_in_a_small_window(tmp_path: Path, batches: int) -> None:
    """With six batches the turn itself is larger than the window, and is cut in its middle."""

    async def scenario() -> None:
        model = ChattyModel(batches, lambda: say(f"summary {len(model.summary_requests)}"))
        options = {"message_window_size": 4, "message_chunk_size": 2, "retained_message_limit": 6}
        async with live_session(
            tmp_path, model.reply, flow_options=options, tools=[note], compaction=WINDOW
        ) as session:
            for number in range(1, 9 if batches else 17):
                await session.say(f"message {number} " + "y" * 300)
                assert await session.idle() == f"answer {number}"
                seen = results(session.model.requests[-1])
                assert seen == every_call(model)[len(every_call(model)) - len(seen) :]
                if batches:
                    assert seen[-1] == every_call(model)[-1]
            snapshot = await session.snapshot()
            summary = snapshot.context_summary
            assert summary is not None
            assert len(model.summary_requests) == summary.generation > 1
            assert session.users_seen()[0] == f"{CONTEXT_SUMMARY_NOTE_HEADER}\nsummary {summary.generation}"
            # Each summary was told the one before it.
            for generation, request in enumerate(model.summary_requests[1:], start=1):
                first = ScriptedModelClient.user_texts(request)[0]
                assert first == f"{CONTEXT_SUMMARY_NOTE_HEADER}\nsummary {generation}"
            assert snapshot.messages[0].sequence > 1
            assert snapshot.messages[0].sequence <= summary.last_sequence + 1
            assert snapshot.usage.model_calls == len(session.model.requests)

    asyncio.run(scenario())


def broken() -> ScriptedModelReply:
    raise ConnectionResetError("reset")


@pytest.mark.parametrize(
    "summarize", [lambda: say(" "), lambda: say("z" * 9_000), broken], ids=["blank", "long", "raises"]
)
def test_a_turn_goes_on_without_a_summary_while_it_fits(
    tmp_path: Path, summarize: Callable[[], ScriptedModelReply]
) -> None:
    """F39."""

    async def scenario() -> None:
        model = ChattyModel(4, summarize)
        policy = CompactionPolicy(context_window_tokens=4_000, trigger_ratio=0.15, retained_ratio=0.1)
        async with live_session(tmp_path, model.reply, tools=[note], compaction=policy) as session:
            await session.say("go")
            assert await session.idle() == "answer 1"
            assert len(model.summary_requests) == 3  # the attempts of one compaction, and no second one in the turn
            assert results(session.model.requests[-1]) == every_call(model)
            await status_left_compaction(session)
            model.summarize = lambda: say("a summary")
            await session.say("go on")
            assert await session.idle() == "answer 2"
            assert (await session.snapshot()).context_summary is not None

    asyncio.run(scenario())


@pytest.mark.parametrize("summarize", [lambda: say(""), broken], ids=["blank", "raises"])
def test_a_turn_that_does_not_fit_without_a_summary_fails_named(
    tmp_path: Path, summarize: Callable[[], ScriptedModelReply]
) -> None:
    """F39: and keeps the results it has."""

    async def scenario() -> None:
        model = ChattyModel(30, summarize)
        async with live_session(tmp_path, model.reply, tools=[note], compaction=WINDOW) as session:
            await session.say("go")
            state = await session.ended_state()
            assert state.last_turn_error is not None
            assert state.last_turn_error.type == "ContextTooLargeError"
            await status_left_compaction(session)
            stored = [m.text[6:].split(" ")[0] for m in (await session.snapshot()).messages if m.role == "tool"]
            assert stored == every_call(model)
            model.summarize = lambda: say("a summary")
            model.batches = 0
            await session.say("go on")
            assert await session.idle() == "answer 1"

    asyncio.run(scenario())


def test_a_turn_is_stopped_while_it_is_compacted(tmp_path: Path) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold()
        model = ChattyModel(8, lambda: ScriptedModelReply(text="never stored", hold=hold))
        async with live_session(tmp_path, model.reply, tools=[note], compaction=WINDOW) as session:
            await session.say("go")
            await hold.wait_until_reached()
            assert (await session.snapshot()).state.status is AgentStatus.COMPACTING_CONTEXT  # type: ignore[union-attr]
            await session.cancel_turn()
            await status_left_compaction(session)
            assert (await session.snapshot()).context_summary is None
            assert len(session.model.cancelled_requests) == 1
            model.summarize = lambda: say("a summary")
            model.batches = 0
            await session.say("go on")
            assert await session.idle() == "answer 1"
            assert (await session.snapshot()).context_summary is not None

    asyncio.run(scenario())


@pytest.mark.parametrize("is_steered", [False, True])
def test_a_worker_stops_while_it_summarises(tmp_path: Path, is_steered: bool) -> None:
    """F39: the next one makes the summary call again; a steered turn turns to its new message first."""

    async def scenario() -> None:
        hold = ScriptedReplyHold()
        model = ChattyModel(8, lambda: ScriptedModelReply(text="never stored", hold=hold))
        async with live_session(tmp_path, model.reply, tools=[note], compaction=WINDOW) as session:
            await session.say("go")
            await hold.wait_until_reached()
            if is_steered:
                await session.steer("stop it")
        before = every_call(model)
        model.summarize = lambda: say("a summary")
        if is_steered:
            model.batches, model.calls = 0, 0
        async with live_session(tmp_path, model.reply, tools=[note], compaction=WINDOW) as session:
            assert await session.idle() == "answer 1"
            await status_left_compaction(session)
            stored = [m.text[6:].split(" ")[0] for m in (await session.snapshot()).messages if m.role == "tool"]
            assert stored[: len(before)] == before
            if is_steered:
                assert session.users_seen()[-1] == "stop it"
            summary = (await session.snapshot()).context_summary
            assert summary is not None
            assert summary.generation == len(model.summary_requests) - 1

    asyncio.run(scenario())


def test_nothing_of_a_summary_streams_to_the_user(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = ChattyModel(8, lambda: ScriptedModelReply(text="for the model alone", reasoning="hm"))
        async with live_session(tmp_path, model.reply, tools=[note], compaction=WINDOW) as session:
            await session.say("go")
            assert await session.idle() == "answer 1"
            assert model.summary_requests
            events = await session.engine.read_stream("s", session.flow.streams["AgentEvents"], after=0, limit=1_000)
            written = [event.value for event in events]
            assert "answer 1" in str(written)
            assert "for the model alone" not in str([event for event in written if "delta" in event.type])
            assert [event.type for event in written].count("compaction_finished") == len(model.summary_requests)

    asyncio.run(scenario())
