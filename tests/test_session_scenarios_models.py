"""Field scenarios of models: empty replies (F08), concurrent messages (F18), missing usage (F20), refusals (F30)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dex_agents import AgentUsage, TurnRefusedError
from dex_agents_stepwise import (
    ModelRequest,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    function_tool,
)
from tests.session_kill.strict_model import StrictModel, call, calls, open_sessions, say, script

EMPTY_REPLIES = {
    "no text": ScriptedModelReply(),
    "whitespace": ScriptedModelReply(text=" \n\t"),
    "reasoning only": ScriptedModelReply(reasoning="Hm."),
    "zero-width space": ScriptedModelReply(text="\u200b"),
}


@function_tool(effect="read")
def look() -> str:
    return "seen"


@pytest.mark.parametrize("reply", EMPTY_REPLIES.values(), ids=EMPTY_REPLIES.keys())
@pytest.mark.parametrize("after_tools", [False, True])
def test_f08_an_empty_reply_ends_the_turn_after_one_model_call(
    tmp_path: Path, reply: ScriptedModelReply, after_tools: bool
) -> None:
    async def scenario() -> None:
        steps = [calls(call("look")), reply] if after_tools else [reply]
        # What is sent back of an empty reply is nothing, so a script by position would lose count.
        answers = iter([*steps, say("fine")])
        model = StrictModel(lambda request: next(answers))
        async with open_sessions(tmp_path, model, [look]) as sessions:
            await sessions.client.start_session("s", initial_message="hi")
            await sessions.completed("s")
            assert len(model.requests) == len(steps)
            history = await sessions.engine.read_step_history("s")
            assert sum((entry.step_type, entry.method) == ("RunModel", "run") for entry in history) == len(steps)
            message = (await sessions.client.get_agent_snapshot("s")).messages[-1]
            assert (message.role, message.text.strip(" \n\t")) == ("assistant", reply.text.strip(" \n\t"))
            assert message.reasoning_text == (reply.reasoning or None)
            assert await sessions.client.send_user_message("s", "still there?")
            assert await sessions.completed("s") == "fine"
            assert ScriptedModelClient.user_texts(model.requests[-1]) == ["hi", "still there?"]

    asyncio.run(scenario())


def test_f18_concurrent_messages_are_strictly_sequential_turns(tmp_path: Path) -> None:
    """20 messages from two clients on two engines of one file."""

    async def scenario() -> None:
        active = 0
        most_active = 0

        async def answer(request: ModelRequest) -> ScriptedModelReply:
            nonlocal active, most_active
            active += 1
            most_active = max(most_active, active)
            for _ in range(5):
                await asyncio.sleep(0)
            active -= 1
            if ScriptedModelClient.tool_results(request):
                return say(f"re: {ScriptedModelClient.user_texts(request)[-1]}")
            return calls(call("look"))

        model = StrictModel(answer)
        async with open_sessions(tmp_path, model, [look]) as first, open_sessions(tmp_path, model, [look]) as second:
            await first.client.start_session("s")
            texts = [f"message {number}" for number in range(20)]
            sends = [
                (first, second)[number % 2].client.send_user_message("s", text) for number, text in enumerate(texts)
            ]
            assert await asyncio.gather(*sends) == [True] * 20
            await second.completed("s")
            messages = (await first.client.get_agent_snapshot("s")).messages
            sent = [message.text for message in messages if message.role == "user"]
            assert sorted(sent) == sorted(texts)
            # What one client sent in order stays in order.
            for parity in (0, 1):
                assert [text for text in sent if int(text.split()[1]) % 2 == parity] == texts[parity::2]
            assert await first.answers("s") == [f"re: {text}" for text in sent]
            assert [message.turn_id for message in messages] == [
                f"turn-{number}" for number in range(1, 21) for _ in range(4)
            ]
            assert most_active == 1
            assert len(model.requests) == 40

    asyncio.run(scenario())


def test_f18_two_sessions_of_one_runner_do_not_mix(tmp_path: Path) -> None:
    async def scenario() -> None:
        both_ask = asyncio.Barrier(2)

        async def answer(request: ModelRequest) -> ScriptedModelReply:
            texts = ScriptedModelClient.user_texts(request)
            await both_ask.wait()
            for item in request.input_items:
                if isinstance(item, ModelUserText):
                    assert item.text.split()[0] == texts[0].split()[0]
            name, number = texts[-1].split()
            usage = AgentUsage(model_calls=1, input_tokens=100 if name == "a" else 1)
            return ScriptedModelReply(text=f"{name} {number}", usage=usage)

        async with open_sessions(tmp_path, StrictModel(answer)) as sessions:
            for name in ("a", "b"):
                await sessions.client.start_session(name)
            for number in range(5):
                for name in ("a", "b"):
                    assert await sessions.client.send_user_message(name, f"{name} {number}")
            for name, tokens in (("a", 500), ("b", 5)):
                await sessions.completed(name)
                assert await sessions.answers(name) == [f"{name} {number}" for number in range(5)]
                usage = (await sessions.client.get_agent_snapshot(name)).usage
                assert (usage.model_calls, usage.input_tokens) == (5, tokens)

    asyncio.run(scenario())


def _odd_usage(**counts: Any) -> AgentUsage:
    """What a client passes on that a provider left open; the declared types say otherwise."""
    return AgentUsage(**counts)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, AgentUsage(model_calls=1)),
        (AgentUsage(), AgentUsage(model_calls=1)),
        (_odd_usage(input_tokens=None, output_tokens=None), AgentUsage(model_calls=1)),
        (_odd_usage(model_calls=None, input_tokens=7), AgentUsage(model_calls=1, input_tokens=7)),
        (_odd_usage(input_tokens=-3, output_tokens=2), AgentUsage(model_calls=1, output_tokens=2)),
        (AgentUsage(model_calls=9, total_tokens=4), AgentUsage(model_calls=1, total_tokens=4)),
    ],
)
def test_f20_missing_usage_counts_a_call_and_no_tokens(
    tmp_path: Path, usage: AgentUsage | None, expected: AgentUsage
) -> None:
    async def scenario() -> None:
        reply = ScriptedModelReply(text="done", usage=usage)
        async with open_sessions(tmp_path, StrictModel(script([reply], [reply]))) as sessions:
            await sessions.client.start_session("s", initial_message="one")
            await sessions.completed("s")
            assert (await sessions.client.get_agent_snapshot("s")).usage == expected
            assert await sessions.client.send_user_message("s", "two")
            await sessions.completed("s")
            total = (await sessions.client.get_agent_snapshot("s")).usage
            assert total == expected.add(expected)
            recorded = [event.payload for event in await sessions.events("s") if event.type == "usage_recorded"]
            assert [payload["recorded"]["model_calls"] for payload in recorded] == [1, 1]
            assert recorded[-1]["session"]["total_tokens"] == total.total_tokens

    asyncio.run(scenario())


def test_f20_failed_attempts_are_not_counted_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        usage = AgentUsage(model_calls=1, input_tokens=10)
        replies: list[ScriptedModelReply | Exception] = [
            ConnectionError("reset"),
            TimeoutError("slow"),
            ScriptedModelReply(text="done", usage=usage),
        ]
        answers = iter(replies)

        def answer(request: ModelRequest) -> ScriptedModelReply:
            reply = next(answers)
            if isinstance(reply, Exception):
                raise reply
            return reply

        async with open_sessions(tmp_path, StrictModel(answer)) as sessions:
            await sessions.client.start_session("s", initial_message="hi")
            assert await sessions.completed("s") == "done"
            assert (await sessions.client.get_agent_snapshot("s")).usage == usage
            assert await sessions.attempts("s", "RunModel") == [(1, "failed"), (2, "failed"), (3, "succeeded")]

    asyncio.run(scenario())


def test_f30_a_refused_turn_ends_after_one_model_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = StrictModel(script([TurnRefusedError("the context is too long")], [say("fine")]))
        async with open_sessions(tmp_path, model) as sessions:
            await sessions.client.start_session("s", initial_message="hi")
            error = (await sessions.idle("s")).last_turn_error
            assert error is not None
            assert (error.type, error.message) == ("TurnRefusedError", "the context is too long")
            assert len(model.requests) == 1
            assert await sessions.client.send_user_message("s", "shorter")
            assert await sessions.completed("s") == "fine"

    asyncio.run(scenario())


def test_f30_a_broken_model_client_is_tried_three_times_and_never_for_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = StrictModel(script([MemoryError("too much")], [say("fine")]))
        async with open_sessions(tmp_path, model) as sessions:
            await sessions.client.start_session("s", initial_message="hi")
            error = (await sessions.idle("s")).last_turn_error
            assert error is not None
            assert (error.type, len(model.requests)) == ("MemoryError", 3)
            assert await sessions.client.send_user_message("s", "again")
            assert await sessions.completed("s") == "fine"

    asyncio.run(scenario())
