"""The scripted model: for demos and tests without a model key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dex_agents import AgentUsage
from dex_agents_stepwise import (
    ModelClient,
    ModelOutput,
    ModelRequest,
    ModelToolCall,
    ModelToolResult,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedReplyHold,
    ScriptedToolCall,
)


def request(*items: Any, **fields: Any) -> ModelRequest:
    return ModelRequest(instructions="", input_items=items, **fields)


def test_answers_sync_and_async_and_reports_what_the_script_says() -> None:
    usage = AgentUsage(input_tokens=3)

    def reply(request: ModelRequest) -> ScriptedModelReply:
        return ScriptedModelReply(text="hi", reasoning="think", usage=usage)

    async def async_reply(request: ModelRequest) -> ScriptedModelReply:
        return reply(request)

    for script in (reply, async_reply):
        response = asyncio.run(ScriptedModelClient(script).generate(request()))
        assert (response.text, response.reasoning_text, response.usage) == ("hi", "think", usage)
        assert response.item is not None
    assert isinstance(ScriptedModelClient(reply), ModelClient)


def test_tool_calls_get_ids_that_are_new_in_the_conversation() -> None:
    client = ScriptedModelClient(
        lambda request: ScriptedModelReply(
            tool_calls=(
                ScriptedToolCall(tool_name="a", arguments={"n": 1}),
                ScriptedToolCall(tool_name="b", arguments="{broken", tool_call_id=""),
                ModelToolCall(tool_call_id="own", tool_name="c", arguments="{}"),
            )
        )
    )
    first = asyncio.run(client.generate(request()))
    assert first.tool_calls == (
        ModelToolCall(tool_call_id="call_1_1", tool_name="a", arguments='{"n": 1}'),
        ModelToolCall(tool_call_id="", tool_name="b", arguments="{broken"),
        ModelToolCall(tool_call_id="own", tool_name="c", arguments="{}"),
    )
    second = asyncio.run(client.generate(request(ModelOutput(item=None, text="x"))))
    assert second.tool_calls[0].tool_call_id == "call_2_1"


def test_deltas_join_to_the_text() -> None:
    text: list[str] = []
    reasoning: list[str] = []
    asked = request(on_text_delta=text.append, on_reasoning_delta=reasoning.append)

    def reply(request: ModelRequest) -> ScriptedModelReply:
        return ScriptedModelReply(text="abcdefg", reasoning="xyz")

    asyncio.run(ScriptedModelClient(reply, delta_characters=3).generate(asked))
    assert (text, reasoning) == (["abc", "def", "g"], ["xyz"])
    text.clear()
    asyncio.run(ScriptedModelClient(reply).generate(asked))
    assert text == ["abcdefg"]


def test_requests_keeps_the_latest() -> None:
    client = ScriptedModelClient(lambda request: ScriptedModelReply(), max_recorded_requests=2)
    asked = [request(ModelUserText(text=str(number))) for number in range(3)]
    for each in asked:
        response = asyncio.run(client.generate(each))
        assert response.item is None
    assert client.requests == tuple(asked[1:])


def test_reading_the_request() -> None:
    asked = request(
        ModelUserText(text="one"),
        ModelToolResult(tool_call_id="c1", tool_name="t", output="old"),
        ModelUserText(text="two"),
        ModelToolResult(tool_call_id="c2", tool_name="t", output="new"),
    )
    assert ScriptedModelClient.user_texts(asked) == ["one", "two"]
    assert [result.output for result in ScriptedModelClient.tool_results(asked)] == ["new"]
    assert ScriptedModelClient.tool_results(request(ModelUserText(text="three"))) == []


@pytest.mark.parametrize(
    ("after_deltas", "sent"),
    [(0, []), (1, ["re"]), (2, ["re", "ab"]), (3, ["re", "ab", "cd"]), (9, ["re", "ab", "cd"])],
)
def test_a_held_reply_goes_on_when_it_is_released(after_deltas: int, sent: list[str]) -> None:
    async def scenario() -> None:
        arrived: list[str] = []
        hold = ScriptedReplyHold(after_deltas=after_deltas)
        client = ScriptedModelClient(
            lambda request: ScriptedModelReply(text="abcd", reasoning="re", hold=hold), delta_characters=2
        )
        asked = request(on_text_delta=arrived.append, on_reasoning_delta=arrived.append)
        call = asyncio.create_task(client.generate(asked))
        await hold.wait_until_reached()
        assert arrived == sent
        assert not call.done()
        hold.release()
        assert (await call).text == "abcd"
        assert arrived == ["re", "ab", "cd"]
        assert (await client.generate(asked)).text == "abcd"  # a released hold stays open
        assert client.cancelled_requests == ()

    asyncio.run(scenario())


def test_a_held_reply_can_be_cancelled_and_is_recorded_so() -> None:
    async def scenario() -> None:
        arrived: list[str] = []
        hold = ScriptedReplyHold(after_deltas=1)
        client = ScriptedModelClient(lambda request: ScriptedModelReply(text="abcd", hold=hold), delta_characters=2)
        asked = request(on_text_delta=arrived.append)
        call = asyncio.create_task(client.generate(asked))
        await hold.wait_until_reached()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert arrived == ["ab"]
        assert client.requests == (asked,)
        assert client.cancelled_requests == (asked,)

    asyncio.run(scenario())


def test_a_cancelled_script_cleans_up() -> None:
    async def scenario() -> None:
        started, cleaned_up = asyncio.Event(), asyncio.Event()

        async def reply(request: ModelRequest) -> ScriptedModelReply:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned_up.set()
            raise AssertionError("nobody sets the event")

        client = ScriptedModelClient(reply)
        call = asyncio.create_task(client.generate(request()))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert cleaned_up.is_set()
        assert len(client.cancelled_requests) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("seconds", [0, 3600])
def test_a_stream_can_be_cancelled_between_two_pieces(seconds: float) -> None:
    async def scenario() -> None:
        arrived: list[str] = []

        def cancel_midway(text: str) -> None:
            arrived.append(text)
            if len(arrived) == (1 if seconds else 2):
                call.cancel()

        client = ScriptedModelClient(
            lambda request: ScriptedModelReply(text="abcdefgh"), delta_characters=1, delta_interval_seconds=seconds
        )
        call = asyncio.create_task(client.generate(request(on_text_delta=cancel_midway)))
        with pytest.raises(asyncio.CancelledError):
            await call
        assert arrived == (["a"] if seconds else ["a", "b"])
        assert len(client.cancelled_requests) == 1

    asyncio.run(scenario())


def test_wrong_values_are_refused() -> None:
    wrong: Any = "not a function"

    def no_reply(request: ModelRequest) -> Any:
        return "text"

    with pytest.raises(TypeError, match="reply must be a function"):
        ScriptedModelClient(wrong)
    with pytest.raises(ValueError, match="delta_characters"):
        ScriptedModelClient(no_reply, delta_characters=0)
    with pytest.raises(ValueError, match="delta_interval_seconds"):
        ScriptedModelClient(no_reply, delta_interval_seconds=-1)
    with pytest.raises(ValueError, match="after_deltas"):
        ScriptedReplyHold(after_deltas=-1)
    with pytest.raises(ValueError, match="max_recorded_requests"):
        ScriptedModelClient(no_reply, max_recorded_requests=-1)
    with pytest.raises(TypeError, match="ScriptedModelReply, not 'text'"):
        asyncio.run(ScriptedModelClient(no_reply).generate(request()))


def test_new_call_ids_keep_clear_of_those_that_compaction_left() -> None:
    client = ScriptedModelClient(lambda request: ScriptedModelReply(tool_calls=[ScriptedToolCall(tool_name="t")]))
    left = ModelOutput(
        item=None, text="", tool_calls=(ModelToolCall(tool_call_id="call_7_2", tool_name="t", arguments="{}"),)
    )
    result = ModelToolResult(tool_call_id="call_7_2", tool_name="t", output="")
    request = ModelRequest(instructions="", input_items=(ModelUserText(text="summary"), left, result))
    assert asyncio.run(client.generate(request)).tool_calls[0].tool_call_id == "call_8_1"
