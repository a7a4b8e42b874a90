"""Field scenarios of text: lone surrogates (F10) and control characters (F47) in every text that enters a session."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dex_agents import ToolExecutionError
from dex_agents_stepwise import (
    FunctionTool,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelToolCall,
    ScriptedModelClient,
    ScriptedModelReply,
    ToolCallContext,
    function_tool,
)
from tests.session_kill.sessions import WAIT_SECONDS, Sessions
from tests.session_kill.strict_model import StrictModel, call, calls, open_sessions, say, script

HIGH, LOW, REPLACEMENT = "\ud83d", "\ude00", "\ufffd"

TEXTS = {
    "high surrogate": (f"a{HIGH}b", f"a{REPLACEMENT}b"),
    "low surrogate": (f"a{LOW}b", f"a{REPLACEMENT}b"),
    "surrogate at the end": (f"ab{HIGH}", f"ab{REPLACEMENT}"),
    "split pair": (f"a{HIGH}{LOW}b", "a😀b"),
    "wrong order": (f"a{LOW}{HIGH}b", f"a{REPLACEMENT}{REPLACEMENT}b"),
    "NUL": ("a\0b", f"a{REPLACEMENT}b"),
    "ANSI escape": ("a\x1b[31mb", "a\x1b[31mb"),
    "line separators": ("a\u2028b\u2029c\x85d", "a\u2028b\u2029c\x85d"),
    "BOM": ("\ufeffab", "\ufeffab"),
    "carriage return": ("a\r\nb\rc\n\nd", "a\r\nb\rc\n\nd"),
    "C0 and DEL": ("a\x01\x08\x1f\x7fb", "a\x01\x08\x1f\x7fb"),
    "noncharacter": ("a\uffff\U0010ffffb", "a\uffff\U0010ffffb"),
}
each_text = pytest.mark.parametrize(("text", "repaired"), TEXTS.values(), ids=TEXTS.keys())


def check_database(directory: Path) -> None:
    """Every stored text and JSON value is valid UTF-8 without NUL and without an escaped lone surrogate."""
    connection = sqlite3.connect(directory / "sessions.db")
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        checked = 0
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):
                for value in row:
                    if isinstance(value, str):
                        value.encode()
                    elif isinstance(value, bytes):
                        text = value.decode()
                        text.encode()
                        if text[:1] in ("{", "["):
                            json.dumps(json.loads(text), ensure_ascii=False).encode()
                            checked += 1
        assert checked
    finally:
        connection.close()


async def check_clients(sessions: Sessions) -> None:
    """What clients read can be encoded, and is one line as a frame of server-sent events."""
    snapshot = await sessions.client.get_agent_snapshot("s")
    for message in snapshot.messages:
        for text in (message.text, message.reasoning_text or "", message.framework_item):
            text.encode()
            assert "\0" not in text
    for event in await sessions.events("s"):
        event.event.payload.encode()
        assert "\n" not in event.event.payload
        assert "\r" not in event.event.payload


def run(tmp_path: Path, scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())
    check_database(tmp_path)


@each_text
def test_f10_f47_what_a_user_writes(tmp_path: Path, text: str, repaired: str) -> None:
    async def scenario() -> None:
        model = StrictModel(script([say("one")], [calls(call("pay")), say("two")]))

        @function_tool(effect="non_idempotent_write")
        def pay() -> str:
            raise AssertionError("it was rejected")

        async with open_sessions(tmp_path, model, [pay]) as sessions:
            client = sessions.client
            await client.start_session("s", initial_message=text, session_settings={text: [text]})
            assert await sessions.completed("s") == "one"
            assert (await client.get_agent_snapshot("s")).session_settings == {repaired: [repaired]}
            assert await client.send_user_message("s", text)
            (interrupt,) = await client.wait_for_interrupts("s", timeout=WAIT_SECONDS)
            assert await client.resolve_interrupt("s", interrupt.interrupt_id, approved=False, rejection_message=text)
            assert await sessions.completed("s") == "two"
            assert ScriptedModelClient.user_texts(model.requests[-1]) == [repaired, repaired]
            assert model.results() == [repaired]
            await check_clients(sessions)

    run(tmp_path, scenario)


@each_text
def test_f10_f47_what_a_model_says(tmp_path: Path, text: str, repaired: str) -> None:
    """Text, reasoning, the provider's own item, a tool's name, a call's ID, and arguments as text and as escapes."""

    async def scenario() -> None:
        received: list[Any] = []

        @function_tool(effect="read", parameters={"type": "object"})
        def look(arguments: dict[str, Any], context: ToolCallContext) -> str:
            received.append(arguments)
            return "seen"

        # Escapes of the lone halves, and the text itself where JSON allows it unescaped.
        escaped = json.dumps({"key": text})
        raw = json.dumps({"key": text}, ensure_ascii=False)
        asked = calls(
            call("look", escaped, f"id{text}"), call("look", raw, "second"), call(f"look{text}", escaped, "third")
        )
        asked = ScriptedModelReply(text=text, reasoning=text, tool_calls=asked.tool_calls)
        model = StrictModel(script([asked, ScriptedModelReply(text=text, reasoning=text)], [say("fine")]))
        async with open_sessions(tmp_path, model, [look]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == repaired
            assert received == [{"key": repaired}, {"key": repaired}]
            assert model.results() == ["seen", "seen", f"unknown tool look{repaired}"]
            (_, asking, *_, answer) = (await sessions.client.get_agent_snapshot("s")).messages
            assert (asking.text, asking.reasoning_text) == (repaired, repaired)
            assert (answer.text, answer.reasoning_text) == (repaired, repaired)
            assert [call.tool_name for call in asking.tool_calls] == ["look", "look", f"look{repaired}"]
            deltas = [event for event in await sessions.events("s") if event.type == "text_delta"]
            assert "".join(delta.payload["text"] for delta in deltas) == repaired * 2
            assert await sessions.client.send_user_message("s", "go on")
            assert await sessions.completed("s") == "fine"
            await check_clients(sessions)

    run(tmp_path, scenario)


@each_text
def test_f10_f47_what_a_tool_returns_or_raises(tmp_path: Path, text: str, repaired: str) -> None:
    async def scenario() -> None:
        @function_tool(effect="read")
        def returns() -> str:
            return text

        @function_tool(effect="read")
        async def returns_json(context: ToolCallContext) -> dict[str, list[str]]:
            context.events.write_event("test.progress", {"text": text})
            await context.save_heartbeat_checkpoint(text)
            return {text: [text]}

        @function_tool(effect="read")
        def refuses() -> str:
            raise ToolExecutionError(text)

        @function_tool(effect="read")
        def breaks() -> str:
            raise ValueError(text)

        names = ("returns", "returns_json", "refuses", "breaks")
        model = StrictModel(script([calls(*(call(name) for name in names)), ValueError(text)], [say("fine")]))
        tools: list[FunctionTool[..., Any]] = [returns, returns_json, refuses, breaks]
        async with open_sessions(tmp_path, model, tools) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            error = (await sessions.idle("s")).last_turn_error
            assert error is not None
            assert (error.type, error.message) == ("ValueError", repaired)
            as_returned, as_json, refused, broken = model.results()
            assert (as_returned, refused) == (repaired, repaired)
            assert json.loads(as_json) == {repaired: [repaired]}
            assert broken == f"ValueError: {repaired}"
            progress = [event.payload for event in await sessions.events("s") if event.type == "test.progress"]
            assert progress == [{"text": repaired}]
            assert await sessions.client.send_user_message("s", "go on")
            assert await sessions.completed("s") == "fine"
            await check_clients(sessions)

    run(tmp_path, scenario)


class _SplitPairModel:
    """Streams a character in two halves, and its tool call IDs are lone halves."""

    provider = "split"
    api = "split"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        for piece in ("a", HIGH, LOW, "b", LOW, "c", HIGH):
            request.on_text_delta(piece)
            request.on_reasoning_delta(piece)
        text = f"a{HIGH}{LOW}b{LOW}c{HIGH}"
        if ScriptedModelClient.tool_results(request):
            return ModelResponse(text=text, reasoning_text=text, item=json.dumps({"text": text}))
        asked = tuple(ModelToolCall(tool_call_id=half, tool_name="look", arguments="{}") for half in (HIGH, LOW))
        return ModelResponse(text=text, reasoning_text=text, tool_calls=asked, item=json.dumps({"text": text}))


def test_f10_a_pair_split_over_two_deltas_is_joined(tmp_path: Path) -> None:
    async def scenario() -> None:
        @function_tool(effect="read")
        def look() -> str:
            return "seen"

        split = _SplitPairModel()
        # It gives the two calls the same ID once their halves are repaired.
        model = StrictModel(lambda request: say("unused"), repeats_ids=True)
        model.generate = split.generate  # type: ignore[method-assign]
        async with open_sessions(tmp_path, model, [look]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            joined = f"a😀b{REPLACEMENT}c{REPLACEMENT}"
            assert await sessions.completed("s") == joined
            for kind in ("text_delta", "reasoning_delta"):
                deltas = [event for event in await sessions.events("s") if event.type == kind]
                assert "".join(delta.payload["text"] for delta in deltas) == joined * 2
            outputs = [item for item in split.requests[-1].input_items if isinstance(item, ModelOutput)]
            items = [json.loads(output.item or "null") for output in outputs]
            assert items == [{"text": joined}]
            await check_clients(sessions)

    run(tmp_path, scenario)


def test_f10_a_cut_inside_a_pair_leaves_no_half(tmp_path: Path) -> None:
    async def scenario() -> None:
        @function_tool(effect="read")
        def look() -> str:
            return "x" + "😀" * 5_000

        model = StrictModel(script([calls(call("look")), say("done")]))
        async with open_sessions(
            tmp_path, model, [look], max_tool_result_bytes=1_024, tool_result_overflow="truncate"
        ) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "done"
            kept, mark, _ = model.results()[0].partition("\n[Dex]")
            assert mark
            assert set(kept) == {"x", "😀"}

    run(tmp_path, scenario)
