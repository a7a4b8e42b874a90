"""A model's message made storable before the graph reads it: broken calls stay visible, texts are repaired."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AIMessageChunk

from dex_agents.session.arguments import check_arguments
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_name, sanitize_text

__all__ = ["StreamedCall", "StreamedCalls", "deferred_arguments", "repair_message"]

INVALID_ARGUMENTS = "invalid_arguments"


class StreamedCall(NamedTuple):
    """A call as its provider streamed it."""

    tool_call_id: str | None
    tool_name: str
    arguments: str


class StreamedCalls:
    """Collects the calls of one streamed message. Their raw arguments show what LangChain completes by itself."""

    def __init__(self) -> None:
        self._parts: dict[int | str, list[Any]] = {}

    def add(self, chunk: AIMessageChunk) -> None:
        """Take the parts of calls in one chunk."""
        for part in chunk.tool_call_chunks:
            place = part.get("index")
            known = self._parts.setdefault(len(self._parts) if place is None else place, [None, "", ""])
            known[0] = known[0] or part.get("id")
            known[1] += part.get("name") or ""
            known[2] += part.get("args") or ""

    def calls(self) -> tuple[StreamedCall, ...]:
        """The calls, in the order they came."""
        return tuple(StreamedCall(*parts) for parts in self._parts.values())


def repair_message(message: AIMessage, streamed: Sequence[StreamedCall], call_prefix: str) -> None:
    """Repair a model's message in place; the object is the one that the graph's node receives.

    LangChain sets calls with broken arguments aside, and a graph that looks at `tool_calls` alone would end its turn
    without a word. It also completes arguments that were cut off, so that half of a text would be written somewhere.
    Both become calls whose only argument is `invalid_arguments`: they are deferred like any other, and fail.

    Args:
        message: The model's message.
        streamed: Its calls as they were streamed; empty when they were not.
        call_prefix: Begins the ID of a call that has none.
    """
    message.content = (
        sanitize_text(message.content) if isinstance(message.content, str) else sanitize_json_value(message.content)
    )
    calls = list(_calls(message, streamed))
    for number, call in enumerate(calls):
        call["name"] = sanitize_name(call["name"] or "")
        call["id"] = sanitize_name(call["id"] or "") or f"{call_prefix}-{number}"
    message.tool_calls = calls
    message.invalid_tool_calls = []


def deferred_arguments(arguments: dict[str, Any]) -> str:
    """The arguments' text as the session checks it: what the model really sent where that is broken."""
    text = json.dumps(arguments, ensure_ascii=False)
    raw = arguments.get(INVALID_ARGUMENTS)
    if len(arguments) == 1 and isinstance(raw, str) and check_arguments("", raw).error is not None:
        return raw
    return text


def _calls(message: AIMessage, streamed: Sequence[StreamedCall]) -> Any:
    valid = [(call.get("id"), call["name"], call["args"]) for call in message.tool_calls]
    invalid = [(call.get("id"), call.get("name") or "", call.get("args") or "") for call in message.invalid_tool_calls]
    if len(streamed) != len(valid) + len(invalid):
        for call_id, name, arguments in (*valid, *invalid):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
            yield _call(call_id, name, text, arguments)
        return
    for call in streamed:
        yield _call(call.tool_call_id, call.tool_name, call.arguments, None)


def _call(call_id: str | None, name: str, text: str, parsed: Any) -> Any:
    checked = check_arguments(name, text)
    if checked.error is not None:
        arguments = {INVALID_ARGUMENTS: sanitize_text(text)}
    else:
        arguments = sanitize_json_value(parsed if isinstance(parsed, dict) else json.loads(checked.text))
    return {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}
