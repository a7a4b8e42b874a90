"""The agents a session can reach, found and checked when its Flow is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from agents import Agent, FunctionTool, Handoff, Tool
from agents.agent import AgentBase

from dex_agents_openai_agents.private_names import agent_of_tool, handoff_target

__all__ = ["UnsupportedAgentError", "find_agents"]

_INSTEAD = {
    "ComputerTool": "it acts inside the model call, where neither an approval nor a retry rule can reach it; "
    "give the agent function tools that drive the computer",
    "LocalShellTool": "it runs commands inside the model call, without approval; use ShellTool instead",
}


class UnsupportedAgentError(ValueError):
    """The agent uses something of the SDK that a durable session cannot make safe.

    Args:
        agent_name: The agent.
        problem: What it is, and what to do instead.
    """

    def __init__(self, agent_name: str, problem: str) -> None:
        super().__init__(f"agent {agent_name!r}: {problem}")


def find_agents(first: Agent[Any], others: Iterable[Agent[Any]] = ()) -> Mapping[str, Agent[Any]]:
    """Every agent that handoffs lead to, by name.

    Args:
        first: Where a session starts.
        others: Agents that handoffs lead to without saying so.

    Raises:
        UnsupportedAgentError: One cannot be run durably; names it and says what to do.
        TypeError: Something is no agent.
    """
    found: dict[str, Agent[Any]] = {}
    waiting = [first, *others]
    while waiting:
        agent = waiting.pop(0)
        _check_agent(agent)
        if found.setdefault(agent.name, agent) is not agent:
            raise UnsupportedAgentError(
                agent.name, "another agent of the session has the same name; messages name agents, so rename one"
            )
        waiting += [target for target in _targets(agent) if found.get(target.name) is not target]
    for agent in found.values():
        for handoff in agent.handoffs:
            if isinstance(handoff, Handoff) and handoff.agent_name not in found:
                raise UnsupportedAgentError(
                    agent.name,
                    f"its handoff {handoff.tool_name!r} does not say which agent {handoff.agent_name!r} is; "
                    "pass that agent in agents=[...]",
                )
    return found


def _targets(agent: Agent[Any]) -> list[Agent[Any]]:
    targets = (handoff if isinstance(handoff, Agent) else handoff_target(handoff) for handoff in agent.handoffs)
    return [target for target in targets if target is not None]


def _check_agent(agent: object) -> None:
    if not isinstance(agent, Agent):
        raise TypeError(f"agent must be an agents.Agent, not {type(agent).__name__}")
    if type(agent).get_all_tools is not AgentBase.get_all_tools or type(agent).get_mcp_tools is not (
        AgentBase.get_mcp_tools
    ):
        raise UnsupportedAgentError(
            agent.name,
            f"its class {type(agent).__name__} overrides get_all_tools or get_mcp_tools, so tools could run inside the "
            "model call; list the tools in Agent.tools or Agent.mcp_servers",
        )
    # Its capabilities add tools when the run starts, which no copy of the agent can defer.
    if any(base.__name__ == "SandboxAgent" for base in type(agent).__mro__):
        raise UnsupportedAgentError(
            agent.name, "a SandboxAgent holds a live sandbox during its run; call the sandbox from function tools"
        )
    for tool in agent.tools:
        _check_tool(agent, tool)
    names = Counter(tool.qualified_name for tool in agent.tools if isinstance(tool, FunctionTool))
    names.update(
        entry.tool_name if isinstance(entry, Handoff) else Handoff.default_tool_name(entry) for entry in agent.handoffs
    )
    if repeated := [name for name, count in names.items() if count > 1]:
        raise UnsupportedAgentError(
            agent.name,
            f"two of its tools and handoffs are named {repeated[0]!r}; calls name what they mean, so rename one",
        )


def _check_tool(agent: Agent[Any], tool: Tool) -> None:
    kind = type(tool).__name__
    if kind in _INSTEAD:
        raise UnsupportedAgentError(agent.name, f"{kind} is not supported: {_INSTEAD[kind]}")
    if not isinstance(tool, FunctionTool):
        return
    nested = agent_of_tool(tool)
    gated = None if nested is None else _gated_tool(nested, {id(agent)})
    if gated is not None:
        raise UnsupportedAgentError(
            agent.name,
            f"its tool {tool.name!r} is an agent whose own tool {gated!r} needs approval, which nobody could give "
            "inside one tool call; give as_tool(needs_approval=True), or hand off to that agent",
        )


def _gated_tool(agent: Agent[Any], seen: set[int]) -> str | None:
    """The first tool behind an agent that always needs approval."""
    if id(agent) in seen:
        return None
    seen.add(id(agent))
    for tool in agent.tools:
        if getattr(tool, "needs_approval", False) is True:
            return str(getattr(tool, "name", type(tool).__name__))
        nested = agent_of_tool(tool) if isinstance(tool, FunctionTool) else None
        found = None if nested is None else _gated_tool(nested, seen)
        if found is not None:
            return found
    for target in _targets(agent):
        found = _gated_tool(target, seen)
        if found is not None:
            return found
    return None
