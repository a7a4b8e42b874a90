"""The session Flow of an agent definition."""

from __future__ import annotations

from typing import Any

from dex_agents import AgentSessionFlow, create_agent_session_flow
from dex_agents_stepwise.agent_definition import AgentDefinition
from dex_agents_stepwise.stepwise_agent_runner import StepwiseAgentRunner

__all__ = ["create_stepwise_agent_session_flow"]


def create_stepwise_agent_session_flow(definition: AgentDefinition, flow_type: str, **options: Any) -> AgentSessionFlow:
    """Build the Flow of an agent's sessions, with the session options the definition gives.

    Args:
        definition: The agent.
        flow_type: Durable name of the Flow type; sessions are stored under it, so it never changes.
        options: Further fields of `dex_agents.AgentSessionOptions`.

    Raises:
        TypeError: An option is unknown, has the wrong type, or belongs into the definition; names it.
        ValueError: An option has a value it cannot have; names it.
    """
    from_definition: dict[str, Any] = {
        "tool_policies": definition.tool_policies,
        "default_tool_effect": definition.default_tool_effect,
        "interrupt_deadline": definition.interrupt_deadline,
        "built_in_tools": definition.built_in_tools,
        "plan_mode_enabled": definition.plan_mode_enabled,
        "compaction": definition.compaction,
    }
    if definition.max_durable_wait is not None:
        from_definition["max_durable_wait"] = definition.max_durable_wait
    if definition.event_stream_capacity_bytes is not None:
        from_definition["event_stream_capacity_bytes"] = definition.event_stream_capacity_bytes
    if repeated := sorted(from_definition.keys() & options.keys()):
        raise TypeError(f"set {', '.join(repeated)} in the AgentDefinition, not in the options of the Flow")
    return create_agent_session_flow(StepwiseAgentRunner(definition), flow_type, **{**from_definition, **options})
