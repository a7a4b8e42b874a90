"""The messages a Stepwise turn stores, as it goes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from dex_agents import (
    AgentMessage,
    AgentMessageToolCall,
    AgentToolCall,
    AgentTurnContext,
    FrameworkMessage,
    tool_result_text,
)
from dex_agents.session.arguments import check_arguments
from dex_agents.session.sanitizer import sanitize_json_text, sanitize_name, sanitize_text
from dex_agents_stepwise.framework_items import (
    ModelOutputItem,
    StoredItem,
    StoredToolCall,
    ToolResultItem,
    UserTextItem,
    decode_framework_item,
    encode_framework_item,
)
from dex_agents_stepwise.model_client import ModelClient, ModelResponse, ModelToolCall

__all__ = [
    "model_output_message",
    "repaired_response",
    "stored_items",
    "tool_result_message",
    "unstored_result_messages",
    "user_message",
]

MAX_WRAPPED_CHARACTERS = 2_000


def stored_items(messages: Iterable[AgentMessage | FrameworkMessage]) -> list[StoredItem]:
    """The items of messages, in order.

    Raises:
        UnreadableFrameworkItemError: Another runner wrote one of them.
    """
    return [decode_framework_item(message.framework_item) for message in messages]


def user_message(text: str) -> FrameworkMessage:
    """A user message, or a note of the session."""
    repaired = sanitize_text(text)
    return FrameworkMessage(
        role="user", text=repaired, framework_item=encode_framework_item(UserTextItem(text=repaired))
    )


def repaired_response(response: ModelResponse) -> ModelResponse:
    """The response with every text repaired, so that what is stored of it can be sent back."""
    return replace(
        response,
        text=sanitize_text(response.text),
        reasoning_text=sanitize_text(response.reasoning_text),
        tool_calls=tuple(
            ModelToolCall(
                tool_call_id=sanitize_name(call.tool_call_id),
                tool_name=sanitize_name(call.tool_name),
                arguments=sanitize_json_text(call.arguments),
            )
            for call in response.tool_calls
        ),
        item=None if response.item is None else sanitize_json_text(response.item),
    )


def model_output_message(model: ModelClient, response: ModelResponse) -> FrameworkMessage:
    """The assistant message of a repaired response.

    A provider refuses a history whose call arguments are no JSON object, for ever. Of a response with such arguments
    only text and calls are kept, with what the model sent wrapped in an object.
    """
    checked = [check_arguments(call.tool_name, call.arguments) for call in response.tool_calls]
    can_be_sent_back = all(arguments.error is None for arguments in checked)
    calls = [
        StoredToolCall(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=arguments.text if arguments.error is None else _wrapped(call.arguments),
        )
        for call, arguments in zip(response.tool_calls, checked, strict=True)
    ]
    item = ModelOutputItem(
        provider=model.provider,
        api=model.api,
        item=response.item if can_be_sent_back else None,
        text=response.text,
        tool_calls=tuple(calls),
    )
    return FrameworkMessage(
        role="assistant",
        text=response.text,
        reasoning_text=response.reasoning_text or None,
        tool_calls=tuple(
            AgentMessageToolCall(tool_call_id=call.tool_call_id, tool_name=call.tool_name, arguments=call.arguments)
            for call in calls
        ),
        framework_item=encode_framework_item(item),
    )


def _wrapped(arguments: str) -> str:
    shown = arguments if len(arguments) <= MAX_WRAPPED_CHARACTERS else f"{arguments[:MAX_WRAPPED_CHARACTERS]}..."
    return json.dumps({"invalid_arguments": shown}, ensure_ascii=False)


def tool_result_message(tool_call_id: str, tool_name: str, output: str) -> FrameworkMessage:
    """The tool message with the result of one call, under the session's ID of it."""
    item = ToolResultItem(tool_call_id=tool_call_id, tool_name=tool_name, output=output)
    return FrameworkMessage(
        role="tool", text=output, tool_call_id=tool_call_id, framework_item=encode_framework_item(item)
    )


def unstored_result_messages(turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
    """The results of the calls that the turn's previous model step asked for, in call order.

    They are stored together with the next model output, or when the turn ends without one.
    """
    return tuple(
        tool_result_message(call.tool_call_id, call.tool_name, tool_result_text(call))
        for call in sorted(turn.previous_step_tool_calls, key=_deferral_order)
    )


def _deferral_order(call: AgentToolCall) -> int:
    return call.deferral_order
