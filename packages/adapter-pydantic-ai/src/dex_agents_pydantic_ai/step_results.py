"""What a model step hands back: the response as it is stored, its usage, and the final output."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelRequestPart, ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_core import to_json

from dex_agents import AgentMessageToolCall, AgentUsage, DeferredToolCall, FrameworkMessage, ModelCallMetadata
from dex_agents.session.arguments import check_arguments
from dex_agents.session.sanitizer import sanitize_json_text
from dex_agents_pydantic_ai.framework_messages import StoredItem, encode_item
from dex_agents_pydantic_ai.streamed_events import response_reasoning, response_text
from dex_agents_pydantic_ai.tool_results import return_part

__all__ = [
    "arguments_text",
    "call_usage",
    "final_text",
    "model_call_metadata",
    "repaired_response",
    "response_message",
    "skipped_results",
]

TOOL_NOT_EXECUTED = "Tool not executed - a final result was already processed."
_INVALID_ARGUMENTS_KEY = "INVALID_JSON"
_MAX_KEPT_ARGUMENTS = 2_000


def arguments_text(call: ToolCallPart) -> str:
    """The arguments as the model sent them; some models send an object instead of text."""
    if call.args is None:
        return ""
    return call.args if isinstance(call.args, str) else json.dumps(call.args, ensure_ascii=False)


def repaired_response(response: ModelResponse, step_execution_id: int) -> ModelResponse:
    """The response in a form that every provider takes back: unique IDs of calls, and arguments that are objects.

    Args:
        response: What the model sent.
        step_execution_id: Makes the ID of a call that has none unique in the session.
    """
    used: set[str] = set()
    parts = []
    for position, part in enumerate(response.parts):
        if isinstance(part, ToolCallPart):
            call_id = _unused_id(part.tool_call_id.strip() or f"call_{step_execution_id}_{position}", used)
            used.add(call_id)
            arguments = arguments_text(part)
            changes: dict[str, Any] = {}
            if arguments and not arguments.strip():
                changes["args"] = "{}"
            if call_id != part.tool_call_id:
                changes["tool_call_id"] = call_id
            if check_arguments(part.tool_name, arguments).error is not None:
                # The framework's own form of arguments that are no JSON object.
                changes["args"] = {_INVALID_ARGUMENTS_KEY: sanitize_json_text(arguments[:_MAX_KEPT_ARGUMENTS])}
            if changes:
                part = dataclasses.replace(part, **changes)
        parts.append(part)
    if all(new is old for new, old in zip(parts, response.parts, strict=True)):
        return response
    return dataclasses.replace(response, parts=parts)


def _unused_id(call_id: str, used: set[str]) -> str:
    unused, number = call_id, 1
    while unused in used:
        number += 1
        unused = f"{call_id}~{number}"
    return unused


def response_message(
    response: ModelResponse,
    following: Sequence[ModelRequest],
    added: Sequence[tuple[int, ModelRequestPart]],
    *,
    calls: Iterable[DeferredToolCall] = (),
    text: str | None = None,
) -> FrameworkMessage:
    """The stored form of a response.

    Args:
        response: The response.
        following: What the framework says to it at once.
        added: What the framework added to the request before it.
        calls: Its calls that the session runs.
        text: What users see, the response's text by default.
    """
    reasoning = response_reasoning(response)
    return FrameworkMessage(
        role="assistant",
        text=response_text(response) if text is None else text,
        reasoning_text=reasoning or None,
        tool_calls=tuple(
            AgentMessageToolCall(
                tool_call_id=call.tool_call_id,
                tool_name=call.tool_name,
                arguments=check_arguments(call.tool_name, call.arguments).text,
            )
            for call in calls
        ),
        framework_item=encode_item(StoredItem(messages=[response, *following], inserted=added)),
    )


def skipped_results(calls: Sequence[ToolCallPart]) -> list[ModelRequestPart]:
    """Results of the calls that an output made superfluous."""
    return [return_part(call.tool_name, TOOL_NOT_EXECUTED, call.tool_call_id, "success") for call in calls]


def final_text(output: Any) -> str:
    """What users see of a final output: a text as it is, anything else as JSON."""
    if isinstance(output, str):
        return output
    return to_json(output, serialize_unknown=True, bytes_mode="base64").decode()


def call_usage(response: ModelResponse) -> AgentUsage:
    """The usage of one model call; what the provider does not say counts as 0."""
    usage = response.usage
    details = usage.details or {}
    reasoning = (
        getattr(usage, "output_reasoning_tokens", None)
        or details.get("reasoning_tokens")
        or details.get("thoughts_tokens")
        or 0
    )
    return AgentUsage(
        model_calls=1,
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cached_input_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        reasoning_tokens=reasoning,
        total_tokens=(usage.input_tokens or 0) + (usage.output_tokens or 0),
    )


def model_call_metadata(response: ModelResponse, model: Model | str | None) -> ModelCallMetadata:
    """What the framework says about one model call."""
    return ModelCallMetadata(
        request_model=model.model_name if isinstance(model, Model) else model,
        response_model=response.model_name,
        provider_name=response.provider_name,
        response_id=response.provider_response_id,
        finish_reasons=() if response.finish_reason is None else (response.finish_reason,),
    )
