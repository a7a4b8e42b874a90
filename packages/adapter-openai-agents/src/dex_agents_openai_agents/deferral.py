"""The calls a model asked for, in the form the session stores: whose tool, which effect, whether a person decides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agents import Agent, FunctionTool, RunContextWrapper, Tool

from dex_agents import AgentTurnContext, DeferredToolCall, ResolvedToolPolicy, ToolEffect
from dex_agents.session.built_in_tools import BUILT_IN_TOOL_POLICY
from dex_agents_openai_agents.model_run import RawCall
from dex_agents_openai_agents.run_state import CallKind, CallReference, encode_call_reference
from dex_agents_openai_agents.step_agent import OfferedTools, find_item_tool

__all__ = ["CallDeferral", "mcp_tool_effects"]

# It only tells the model that there is no such tool; nobody needs to approve that.
_UNKNOWN_TOOL_POLICY = ResolvedToolPolicy(effect=ToolEffect.UNCLASSIFIED, requires_approval=False)
_NON_FUNCTION_KINDS: tuple[CallKind, ...] = ("shell_call", "apply_patch_call", "custom_tool_call")


class CallDeferral:
    """Makes deferred calls of one model step.

    Args:
        turn: The model step.
        agent: The agent whose model asked.
        offered: What it was offered.
        approvals: What approval functions said, by call ID; a call that is missing needs approval.
        mcp_effects: Effects that MCP servers claim, by tool name, for SDK versions whose tools do not carry them.
    """

    def __init__(
        self,
        turn: AgentTurnContext,
        agent: Agent[Any],
        offered: OfferedTools,
        approvals: Mapping[str, bool],
        mcp_effects: Mapping[str, ToolEffect],
    ) -> None:
        self._turn = turn
        self._agent = agent
        self._offered = offered
        self._approvals = approvals
        self._mcp_effects = mcp_effects

    def deferred_calls(self, calls: Iterable[RawCall]) -> tuple[DeferredToolCall, ...]:
        """The calls, in the model's order."""
        return tuple(self._deferred_call(call) for call in calls)

    def _deferred_call(self, call: RawCall) -> DeferredToolCall:
        raw = _fields(call.item)
        kind = str(raw.get("type", "function_call"))
        if kind == "mcp_approval_request":
            return self._hosted_mcp_call(raw)
        if kind in _NON_FUNCTION_KINDS:
            return self._item_call(raw, next(known for known in _NON_FUNCTION_KINDS if known == kind))
        return self._function_call(raw, call.error)

    def _function_call(self, raw: dict[str, Any], error: str | None) -> DeferredToolCall:
        name, call_id = str(raw["name"]), str(raw["call_id"])
        namespace = raw.get("namespace")
        kind: CallKind = "function_call"
        schema: str | None = None
        if error is not None:
            kind, policy = "unknown_tool", _UNKNOWN_TOOL_POLICY
        elif name in self._offered.built_in:
            kind, policy = "built_in", BUILT_IN_TOOL_POLICY
        elif name in self._offered.handoffs and self._offered.find_function_tool(name, namespace) is None:
            kind = "handoff"
            policy = self._turn.resolve_tool_policy(name, ToolEffect.READ, framework_requires_approval=False)
        else:
            tool = self._offered.find_function_tool(name, namespace)
            policy = self._policy(name, tool, call_id)
            if tool is not None and policy.requires_approval:
                schema = _json_text(tool.params_json_schema)
        is_program_call = raw.get("caller") is not None
        return DeferredToolCall(
            tool_call_id=call_id,
            tool_name=name,
            arguments=str(raw.get("arguments") or ""),
            policy=policy,
            tool_source_reference=encode_call_reference(
                CallReference(
                    agent=self._agent.name,
                    kind=kind,
                    call_id=call_id,
                    namespace=namespace,
                    raw={"caller": raw["caller"]} if is_program_call else None,
                    error=error,
                )
            ),
            arguments_schema=schema,
        )

    def _item_call(self, raw: dict[str, Any], kind: CallKind) -> DeferredToolCall:
        call_id = str(raw["call_id"])
        tool = find_item_tool(self._offered.tools, kind, raw.get("name"))
        name = str(raw.get("name") or getattr(tool, "name", kind.removesuffix("_call")))
        shown = {"shell_call": "action", "apply_patch_call": "operation"}.get(kind)
        arguments = {"input": raw.get("input")} if shown is None else raw.get(shown)
        return DeferredToolCall(
            tool_call_id=call_id,
            tool_name=name,
            arguments=_json_text(arguments),
            policy=self._policy(name, tool, call_id),
            tool_source_reference=encode_call_reference(
                CallReference(agent=self._agent.name, kind=kind, call_id=call_id, raw=raw)
            ),
        )

    def _hosted_mcp_call(self, raw: dict[str, Any]) -> DeferredToolCall:
        name, call_id = f"{raw['server_label']}.{raw['name']}", str(raw["id"])
        return DeferredToolCall(
            tool_call_id=call_id,
            tool_name=name,
            arguments=str(raw.get("arguments") or ""),
            # The call of this step only answers the provider, which asked because somebody must.
            policy=self._turn.resolve_tool_policy(name, ToolEffect.READ, framework_requires_approval=True),
            tool_source_reference=encode_call_reference(
                CallReference(agent=self._agent.name, kind="mcp_approval_request", call_id=call_id)
            ),
        )

    def _policy(self, name: str, tool: Tool | None, call_id: str) -> ResolvedToolPolicy:
        asks: Any = True if tool is None else getattr(tool, "needs_approval", False)
        effect = _annotated_effect(tool) or self._mcp_effects.get(name)
        return self._turn.resolve_tool_policy(
            name,
            effect,
            framework_requires_approval=asks if isinstance(asks, bool) else self._approvals.get(call_id, True),
        )


async def mcp_tool_effects(agent: Agent[Any], context: RunContextWrapper[Any]) -> dict[str, ToolEffect]:
    """Effects that the agent's MCP servers claim, by tool name; empty where the SDK's tools carry them.

    The SDK does since 0.24. Before, they are read from the servers, and lost for names that the SDK prefixes.
    """
    if hasattr(FunctionTool, "mcp_annotations"):
        return {}
    effects: dict[str, ToolEffect] = {}
    for server in agent.mcp_servers:
        for tool in await server.list_tools(context, agent):
            effect = effect_of_annotations(tool.annotations)
            if effect is not None:
                effects.setdefault(tool.name, effect)
    return effects


def effect_of_annotations(annotations: Any) -> ToolEffect | None:
    """The effect an MCP server claims for a tool; its names changed with version 2 of the MCP SDK."""
    if annotations is None:
        return None
    if _hint(annotations, "read_only_hint", "readOnlyHint"):
        return ToolEffect.READ
    if _hint(annotations, "idempotent_hint", "idempotentHint"):
        return ToolEffect.IDEMPOTENT_WRITE
    return None


def _annotated_effect(tool: Tool | None) -> ToolEffect | None:
    return effect_of_annotations(getattr(tool, "mcp_annotations", None)) if isinstance(tool, FunctionTool) else None


def _hint(annotations: Any, name: str, earlier_name: str) -> bool:
    return getattr(annotations, name, None) is True or getattr(annotations, earlier_name, None) is True


def _fields(item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    fields: dict[str, Any] = item.model_dump(mode="json", exclude_unset=True)
    return fields


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
