"""The session's form of a call that a graph's tool node holds back."""

from __future__ import annotations

from langchain_core.tools import BaseTool

from dex_agents import AgentTurnContext, DeferredToolCall, ResolvedToolPolicy, ToolEffect
from dex_agents.session.built_in_tools import BUILT_IN_TOOL_POLICY
from dex_agents_langgraph.model_message_repair import deferred_arguments
from dex_agents_langgraph.tool_deferral import HeldCall
from dex_agents_langgraph.tool_schema import tool_schema_text

__all__ = ["check_tool_metadata", "deferred_call"]

_EFFECT, _REQUIRES_APPROVAL = "effect", "requires_approval"


def check_tool_metadata(tool: BaseTool) -> None:
    """Check what a tool's metadata says to the session.

    Raises:
        ValueError: `metadata["effect"]` is no effect.
        TypeError: `metadata["requires_approval"]` is no bool.
    """
    _declared_effect(tool)
    asks = (tool.metadata or {}).get(_REQUIRES_APPROVAL)
    if asks is not None and not isinstance(asks, bool):
        raise TypeError(f"the metadata of the tool {tool.name!r}: requires_approval must be a bool, not {asks!r}")


def deferred_call(turn: AgentTurnContext, key: str, held: HeldCall, *, graph_asks_approval: bool) -> DeferredToolCall:
    """What the session stores of a held call.

    Args:
        turn: The turn.
        key: The call's key in the graph.
        held: The call.
        graph_asks_approval: Whether middleware of the graph wants a person to approve it.
    """
    name = held.call["name"]
    policy = _policy(turn, held, graph_asks_approval)
    return DeferredToolCall(
        tool_call_id=held.call["id"] or "",
        tool_name=name,
        arguments=deferred_arguments(held.call["args"]),
        policy=policy,
        tool_source_reference=key,
        arguments_schema=tool_schema_text(held.tool) if held.tool is not None and policy.requires_approval else None,
    )


def _policy(turn: AgentTurnContext, held: HeldCall, graph_asks_approval: bool) -> ResolvedToolPolicy:
    name = held.call["name"]
    if name in turn.enabled_built_in_tools:
        return BUILT_IN_TOOL_POLICY
    if held.tool is None and not held.is_wrapped:
        # It only tells the model that there is no such tool; nobody needs to approve that.
        return ResolvedToolPolicy(effect=ToolEffect.UNCLASSIFIED, requires_approval=False)
    metadata = (held.tool.metadata if held.tool is not None else None) or {}
    asks = True if graph_asks_approval else metadata.get(_REQUIRES_APPROVAL)
    effect = None if held.tool is None else _declared_effect(held.tool)
    return turn.resolve_tool_policy(name, effect, framework_requires_approval=asks)


def _declared_effect(tool: BaseTool) -> ToolEffect | None:
    effect = (tool.metadata or {}).get(_EFFECT)
    if effect is None:
        return None
    try:
        return ToolEffect(effect)
    except ValueError:
        known = ", ".join(value.value for value in ToolEffect)
        raise ValueError(f"the metadata of the tool {tool.name!r}: effect must be one of {known}") from None
