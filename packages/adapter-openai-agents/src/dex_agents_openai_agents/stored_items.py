"""The stored `framework_item` of a message: Responses API input items with the agent and model that made them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dex_agents import AgentMessage, AgentMessageToolCall, DeferredToolCall, FrameworkMessage, TurnRefusedError
from dex_agents.session.arguments import check_arguments
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_text

__all__ = [
    "InputItem",
    "StoredItems",
    "has_content",
    "item_to_json",
    "read_stored_items",
    "response_message",
    "result_message",
    "shown_message",
    "user_message",
]

InputItem = dict[str, Any]

_MAX_WRAPPED_CHARACTERS = 2_000
# What only the provider that made an item can read.
_PROVIDER_BOUND_TYPES = frozenset({"reasoning", "compaction"})


class StoredItems(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one message adds to the model's input.

    Attributes:
        items: Responses API input items, in order.
        agent: Name of the agent whose model wrote them, or whose tool call they answer.
        model: Label of the model that wrote them.
    """

    items: list[InputItem]
    agent: str | None = None
    model: str | None = None

    def for_model(self, model: str) -> list[InputItem]:
        """The items as a model reads them; of another model's, what only that one understands is left out."""
        if self.model is None or self.model == model:
            return self.items
        kept = (item for item in self.items if item.get("type") not in _PROVIDER_BOUND_TYPES)
        return [{key: value for key, value in item.items() if key != "id"} for item in kept]


_decoder = msgspec.json.Decoder(StoredItems)
_encoder = msgspec.json.Encoder()


def read_stored_items(messages: Iterable[AgentMessage | FrameworkMessage]) -> list[StoredItems]:
    """What messages add to the model's input, in order.

    Raises:
        TurnRefusedError: One was written by another runner, or by a newer release with another shape.
    """
    try:
        return [_decoder.decode(message.framework_item) for message in messages]
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise TurnRefusedError(
            f"a stored message is not one of the OpenAI Agents adapter ({error}); a session keeps the runner it was "
            "started with, so start a new session for another runner"
        ) from error


def user_message(text: str) -> FrameworkMessage:
    """A user message, or a note of the session."""
    repaired = sanitize_text(text)
    items: list[InputItem] = [{"role": "user", "content": repaired}]
    return FrameworkMessage(role="user", text=repaired, framework_item=_encode(StoredItems(items=items)))


def result_message(tool_call_id: str, item: InputItem, text: str, agent: str) -> FrameworkMessage:
    """The message with the result of one call, under the session's ID of it."""
    return FrameworkMessage(
        role="tool",
        text=text,
        tool_call_id=tool_call_id,
        framework_item=_encode(StoredItems(items=[item], agent=agent)),
    )


def response_message(
    items: Sequence[InputItem], *, agent: str, model: str | None, calls: Sequence[DeferredToolCall] = ()
) -> FrameworkMessage:
    """The assistant message of one response of a model.

    Providers refuse a history whose call arguments are no JSON object, for ever. Such arguments are wrapped in one.

    Args:
        items: What the model said.
        agent: The agent whose model it is.
        model: Label of the model; None for what no model wrote.
        calls: The calls that become calls of the session.
    """
    repaired = [_with_readable_arguments(sanitize_json_value(item)) for item in items]
    reasoning = [*_texts(repaired, "reasoning", "summary"), *_texts(repaired, "reasoning", "content")]
    return FrameworkMessage(
        role="assistant",
        text="".join(_texts(repaired, "message", "content")),
        reasoning_text="\n".join(reasoning) or None,
        tool_calls=tuple(
            AgentMessageToolCall(
                tool_call_id=call.tool_call_id,
                tool_name=call.tool_name,
                arguments=_readable_arguments(call.tool_name, call.arguments),
            )
            for call in calls
        ),
        framework_item=_encode(StoredItems(items=repaired, agent=agent, model=model)),
    )


def shown_message(text: str, *, agent: str) -> FrameworkMessage:
    """An answer that people read and no model does."""
    repaired = sanitize_text(text)
    return FrameworkMessage(role="assistant", text=repaired, framework_item=_encode(StoredItems(items=[], agent=agent)))


def has_content(items: Iterable[InputItem]) -> bool:
    """Whether there is anything that can be sent back: providers refuse an output of nothing but empty messages."""
    return any(item.get("type", "message") != "message" or _texts([item], "message", "content") for item in items)


def item_to_json(item: Any) -> InputItem:
    """A run item's input form as plain JSON values, the way the SDK itself sends it back."""
    value: InputItem = json.loads(json.dumps(item.to_input_item(), default=_model_to_json))
    if "status" in value and value["status"] is None:
        del value["status"]
    return value


def _model_to_json(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_unset=True)


def _encode(items: StoredItems) -> str:
    return _encoder.encode(items).decode()


def _with_readable_arguments(item: InputItem) -> InputItem:
    if item.get("type") != "function_call":
        return item
    arguments = item.get("arguments")
    return {**item, "arguments": _readable_arguments(str(item.get("name", "")), str(arguments or ""))}


def _readable_arguments(tool_name: str, arguments: str) -> str:
    checked = check_arguments(tool_name, arguments)
    if checked.error is None:
        return arguments if arguments.strip() else checked.text
    shown = arguments if len(arguments) <= _MAX_WRAPPED_CHARACTERS else f"{arguments[:_MAX_WRAPPED_CHARACTERS]}..."
    return json.dumps({"invalid_arguments": shown}, ensure_ascii=False)


def _texts(items: Iterable[InputItem], item_type: str, field: str) -> list[str]:
    """Every text of the items of a type; a refusal to answer counts as text."""
    texts: list[str] = []
    for item in items:
        if item.get("type", "message") != item_type:
            continue
        content = item.get(field)
        parts = [{"text": content}] if isinstance(content, str) else content or []
        texts += [text for part in parts if isinstance(text := part.get("text") or part.get("refusal"), str) and text]
    return texts
