"""What the strictest provider asks of a transcript: a request that breaks a rule would be refused for ever."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dex_agents import AgentMessage
from dex_agents_stepwise import ModelInputItem, ModelOutput, ModelRequest, ModelToolResult, ModelUserText

__all__ = ["check_request", "check_stored_messages"]


def check_request(request: ModelRequest, *, repeats_ids: bool = False) -> None:
    """Raise AssertionError for a request that a strict provider refuses.

    Every tool call has exactly one result, right behind its message, in call order; arguments are JSON objects; IDs are
    new and not blank; no text is empty or impossible to encode.

    Args:
        request: The request.
        repeats_ids: The test's model gives blank or repeated IDs, so position alone tells its calls apart.
    """
    for item in request.input_items:
        _check_encodable(item)
    for tool in request.tools:
        assert tool.name.encode()
    _check_order(request.input_items, repeats_ids)


def _check_order(items: Sequence[ModelInputItem], repeats_ids: bool) -> None:
    assert items, "the input is empty"
    assert isinstance(items[0], ModelUserText), "the input does not begin with a user"
    seen: set[str] = set()
    position = 0
    while position < len(items):
        item = items[position]
        position += 1
        assert not isinstance(item, ModelToolResult), f"a result without a call: {item}"
        if isinstance(item, ModelUserText):
            assert item.text.strip(), "a blank user text"
            continue
        assert item.item is not None or item.text or item.tool_calls, "an empty output"
        for call in item.tool_calls:
            assert isinstance(json.loads(call.arguments), dict), f"the arguments are no object: {call}"
            if not repeats_ids:
                assert call.tool_call_id.strip(), f"a blank ID: {call}"
                assert call.tool_call_id not in seen, f"the ID repeats: {call}"
                seen.add(call.tool_call_id)
        for call in item.tool_calls:
            result = items[position] if position < len(items) else None
            position += 1
            assert isinstance(result, ModelToolResult), f"no result behind {call}"
            assert (result.tool_call_id, result.tool_name) == (call.tool_call_id, call.tool_name)
    assert isinstance(items[-1], (ModelUserText, ModelToolResult)), "nothing to answer"


def _check_encodable(item: ModelInputItem) -> None:
    texts: list[str]
    match item:
        case ModelUserText():
            texts = [item.text]
        case ModelOutput():
            texts = [item.text, item.item or ""]
            for call in item.tool_calls:
                texts += [call.tool_call_id, call.tool_name, call.arguments]
        case ModelToolResult():
            texts = [item.tool_call_id, item.tool_name, item.output]
    for text in texts:
        text.encode()  # a lone surrogate raises
        assert "\0" not in text


def check_stored_messages(messages: Sequence[AgentMessage]) -> None:
    """Raise AssertionError unless sequences have no gap and every call of a turn that ended has exactly one result.

    The results stand behind the assistant message that asked, in call order, under the session's own IDs.
    """
    assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
    expected: list[tuple[str, str]] = []
    for message in messages:
        if message.role == "tool":
            assert expected, f"a result without a call: {message}"
            assert (message.turn_id, message.tool_call_id) == expected.pop(0)
            continue
        assert not expected, f"no result behind the calls {expected}"
        expected = [(message.turn_id, call.tool_call_id) for call in message.tool_calls]
    assert not expected, f"no result behind the calls {expected}"
