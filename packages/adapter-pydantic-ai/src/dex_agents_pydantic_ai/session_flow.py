"""The session Flow of a Pydantic AI agent, and what is refused when it is built."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits

from dex_agents import BUILT_IN_TOOL_DEFINITIONS, AgentSessionFlow, create_agent_session_flow
from dex_agents_pydantic_ai.agent_runs import AgentRuns, DepsFactory, ResolveModel
from dex_agents_pydantic_ai.pydantic_ai_runner import PydanticAIRunner
from dex_agents_pydantic_ai.remote_tasks import RemoteTask
from dex_agents_pydantic_ai.tool_policies import declared_effect

__all__ = ["create_pydantic_ai_session_flow"]

_LOG = logging.getLogger(__name__)
_DURABLE_AGENTS = frozenset({"TemporalAgent", "DBOSAgent", "PrefectAgent"})


def create_pydantic_ai_session_flow(
    agent: AbstractAgent[Any, Any],
    flow_type: str,
    *,
    deps: Any = None,
    deps_factory: DepsFactory | None = None,
    resolve_model: ResolveModel | None = None,
    usage_limits: UsageLimits | None = None,
    stream: bool = True,
    remote_tasks: Mapping[str, RemoteTask] = MappingProxyType({}),
    **options: Any,
) -> AgentSessionFlow:
    """Build the Flow of an agent's sessions.

    Args:
        agent: The agent, unchanged.
        flow_type: Durable name of the Flow type; sessions are stored under it, so it never changes.
        deps: The agent's dependencies, the same object for every Step. It is never stored.
        deps_factory: Makes them for every Step instead: a function of a `SessionContext`, sync or async.
        resolve_model: Function of the turn's session settings that returns the model instead of the agent's own. It
            must be quick: choose from models that exist.
        usage_limits: The framework's limits, counted over all model steps of a turn.
        stream: Whether the model is asked to stream; a model that cannot is not, whatever this says.
        remote_tasks: How remote work is followed, by name of the tool that starts it with `ToolTaskStarted`.
        options: Further fields of `dex_agents.AgentSessionOptions`.

    Raises:
        TypeError: The agent or an argument cannot be used, or an option is unknown or has the wrong type; names it.
        ValueError: An option has a value it cannot have, or a tool a name or an effect; names it.
    """
    _check_agent(agent, flow_type)
    if deps is not None and deps_factory is not None:
        raise TypeError("pass deps or deps_factory, not both")
    if agent.model is None and resolve_model is None:
        raise TypeError(f"the agent of {flow_type!r} has no model; pass resolve_model, or give the agent one")
    if agent.deps_type not in (type(None), object) and deps is None and deps_factory is None:
        raise TypeError(
            f"the agent of {flow_type!r} has deps_type {agent.deps_type.__name__}; pass deps or deps_factory"
        )
    for toolset in agent.toolsets:
        _check_toolset(toolset, tuple(options.get("built_in_tools", ())), flow_type)
    runs = AgentRuns(
        agent=agent,
        deps=deps,
        deps_factory=deps_factory,
        resolve_model=resolve_model,
        usage_limits=usage_limits,
        stream=stream,
    )
    return create_agent_session_flow(PydanticAIRunner(runs, remote_tasks=remote_tasks), flow_type, **options)


def _check_agent(agent: object, flow_type: str) -> None:
    if isinstance(agent, type) or not isinstance(agent, AbstractAgent):
        raise TypeError(f"create_pydantic_ai_session_flow needs an Agent, not {agent!r}")
    name = type(agent).__name__
    if name in _DURABLE_AGENTS:
        raise TypeError(f"{name} makes the agent of {flow_type!r} durable in another engine; pass the agent it wraps")


def _check_toolset(toolset: AbstractToolset[Any], built_in_tools: tuple[str, ...], flow_type: str) -> None:
    """Check tools that are known without a session; those of dynamic and remote toolsets are checked in the turn."""
    if not isinstance(toolset, FunctionToolset):
        return
    for name, tool in toolset.tools.items():
        if name in built_in_tools and name in BUILT_IN_TOOL_DEFINITIONS:
            raise ValueError(f"tool {name!r} uses the name of an enabled built-in tool")
        declared_effect(tool.tool_def)
        if tool.sequential:
            _LOG.warning(
                "%s: tool %r is sequential=True, but every call of a session runs in a Step of its own, beside others",
                flow_type,
                name,
            )
