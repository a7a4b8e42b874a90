"""The session Flow of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from agents import Agent, RunConfig, RunHooks

from dex_agents import AgentSessionFlow, create_agent_session_flow
from dex_agents_openai_agents.agent_graph import UnsupportedAgentError
from dex_agents_openai_agents.guardrails import DEFAULT_GUARDRAIL_REFUSAL, GuardrailRefusal
from dex_agents_openai_agents.openai_agents_runner import OpenAIAgentsRunner, SessionStep
from dex_agents_openai_agents.remote_tasks import RemoteTask
from dex_agents_openai_agents.runnable_tool import ToolErrors
from dex_agents_openai_agents.step_model import ModelResolver, model_of_settings

__all__ = ["create_openai_agents_session_flow"]


def create_openai_agents_session_flow(
    agent: Agent[Any],
    flow_type: str,
    *,
    agents: Sequence[Agent[Any]] = (),
    context_factory: Callable[[SessionStep], Any] | None = None,
    run_config: RunConfig | None = None,
    hooks: RunHooks[Any] | None = None,
    resolve_model: ModelResolver = model_of_settings,
    start_each_turn_with: Literal["last_agent", "first_agent"] = "last_agent",
    guardrail_refusal: GuardrailRefusal = DEFAULT_GUARDRAIL_REFUSAL,
    tool_errors: ToolErrors = "report",
    is_streaming: bool = True,
    remote_tasks: Mapping[str, RemoteTask] = MappingProxyType({}),
    **options: Any,
) -> AgentSessionFlow:
    """Build the Flow of an agent's sessions; the agent stays as it is.

    Args:
        agent: Where a session starts.
        flow_type: Durable name of the Flow type; sessions are stored under it, so it never changes.
        agents: Agents that handoffs lead to without saying so.
        context_factory: Makes the context object of a Step, sync or async.
        run_config: As for `Runner.run`.
        hooks: As for `Runner.run`.
        resolve_model: Gives the model for a session's settings; by default the name under `model`.
        start_each_turn_with: Whether a turn starts with the agent that answered the last one, or the first agent.
        guardrail_refusal: The answer when a guardrail trips: a text, a function of the `GuardrailTrip`, or None, which
            fails the turn.
        tool_errors: Whether an exception that the SDK's default would turn into text is that text (`report`), or fails
            the attempt, so that the tool's effect decides (`retry`).
        is_streaming: Whether models are asked to stream; False for models that cannot.
        remote_tasks: How remote work is followed, by name of the tool that starts it with `ToolTaskStarted`.
        options: Fields of `dex_agents.AgentSessionOptions`, such as `tool_policies`.

    Raises:
        UnsupportedAgentError: An agent uses what a durable session cannot make safe; names it and says what to do.
        TypeError: An argument is unknown or of the wrong type; names it.
        ValueError: An argument has a value it cannot have; names it.
    """
    runner = OpenAIAgentsRunner(
        agent,
        agents=agents,
        workflow_name=flow_type,
        context_factory=context_factory,
        run_config=run_config,
        hooks=hooks,
        resolve_model=resolve_model,
        start_each_turn_with=start_each_turn_with,
        guardrail_refusal=guardrail_refusal,
        tool_errors=tool_errors,
        is_streaming=is_streaming,
        remote_tasks=remote_tasks,
    )
    for known in runner.agents.values():
        for name in _static_names(known):
            if name in options.get("built_in_tools", ()):
                raise UnsupportedAgentError(known.name, f"its tool {name!r} has the name of an enabled built-in tool")
    return create_agent_session_flow(runner, flow_type, **options)


def _static_names(agent: Agent[Any]) -> list[str]:
    tools = [getattr(tool, "name", "") for tool in agent.tools]
    return [*tools, *(handoff.tool_name for handoff in agent.handoffs if not isinstance(handoff, Agent))]
