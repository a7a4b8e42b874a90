"""Which calls of a response the session runs, and under which policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition

from dex_agents import AgentTurnContext, DeferredToolCall
from dex_agents_pydantic_ai.conversation import StepInput
from dex_agents_pydantic_ai.framework_messages import encode_message
from dex_agents_pydantic_ai.step_results import arguments_text
from dex_agents_pydantic_ai.tool_policies import ToolReference, encode_reference, resolve_policy

__all__ = ["ResponseCalls", "deferred_calls", "sort_calls"]

# The framework's own tools change what a later call may do; their results are parts with a meaning, not text.
_INTERNAL_KINDS = frozenset({"tool-search", "capability-load"})

# Older versions know the results of a search by the tool's name.
_KNOWS_KINDS = hasattr(ToolCallPart("", {}), "tool_kind")
_SEARCH_TOOL = "search_tools"


@dataclass(frozen=True, kw_only=True)
class ResponseCalls:
    """The calls of one response.

    Attributes:
        functions: The session runs them.
        outputs: They give the final output.
        internal: The framework runs them within the model step.
    """

    functions: tuple[ToolCallPart, ...]
    outputs: tuple[ToolCallPart, ...]
    internal: tuple[ToolCallPart, ...]


def sort_calls(response: ModelResponse, definitions: Mapping[str, ToolDefinition]) -> ResponseCalls:
    """Sort a response's calls; one of an unknown tool is the session's, and tells the model so."""
    functions, outputs, internal = [], [], []
    for part in response.parts:
        if not isinstance(part, ToolCallPart):
            continue
        definition = definitions.get(part.tool_name)
        if definition is not None and definition.kind == "output":
            outputs.append(part)
        elif definition is not None and _kind(definition) in _INTERNAL_KINDS:
            internal.append(part)
        else:
            functions.append(part)
    return ResponseCalls(functions=tuple(functions), outputs=tuple(outputs), internal=tuple(internal))


def deferred_calls(
    turn: AgentTurnContext,
    given: StepInput,
    original: ModelResponse,
    response: ModelResponse,
    calls: Sequence[ToolCallPart],
    definitions: Mapping[str, ToolDefinition],
) -> tuple[DeferredToolCall, ...]:
    """The calls the session runs, in call order.

    Args:
        turn: The turn.
        given: What the model step worked with.
        original: What the model sent, with the provider's IDs and the model's arguments.
        response: The response as it is stored.
        calls: The calls of the stored response.
        definitions: The tools that were offered.

    Raises:
        InvalidToolEffectError: A tool's metadata names an effect that does not exist.
    """
    sent = {
        stored.tool_call_id: part
        for stored, part in zip(response.parts, original.parts, strict=True)
        if isinstance(part, ToolCallPart) and isinstance(stored, ToolCallPart)
    }
    return tuple(
        _deferred_call(turn, given, sent[call.tool_call_id], definitions.get(call.tool_name)) for call in calls
    )


def _deferred_call(
    turn: AgentTurnContext, given: StepInput, call: ToolCallPart, definition: ToolDefinition | None
) -> DeferredToolCall:
    policy, is_waived = resolve_policy(turn, call.tool_name, definition)
    reference = ToolReference(
        is_known=definition is not None,
        retry=given.tool_retries.get(call.tool_name, 0),
        is_approval_waived=is_waived,
        evidence=_evidence(definition, given.history),
    )
    schema: Any = None if definition is None else definition.parameters_json_schema
    return DeferredToolCall(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        arguments=arguments_text(call),
        policy=policy,
        tool_source_reference=encode_reference(reference),
        arguments_schema=json.dumps(schema) if schema is not None and policy.requires_approval else None,
    )


def _evidence(definition: ToolDefinition | None, history: Sequence[ModelMessage]) -> tuple[str, ...]:
    """The messages that made a tool available which the model had to search or load first."""
    if definition is None or (
        _KNOWS_KINDS and not (getattr(definition, "defer_loading", False) or getattr(definition, "capability_id", None))
    ):
        return ()
    evidence = []
    for message in history:
        parts: Any = [part for part in message.parts if _reveals(part)]
        if parts:
            evidence.append(encode_message(replace(message, parts=parts)))
    return tuple(evidence)


def _reveals(part: Any) -> bool:
    if not _KNOWS_KINDS:
        return getattr(part, "tool_name", None) == _SEARCH_TOOL
    return _kind(part) in _INTERNAL_KINDS or part.part_kind == "tool-availability-delta"


def _kind(value: Any) -> str | None:
    kind: str | None = getattr(value, "tool_kind", None)
    return kind
