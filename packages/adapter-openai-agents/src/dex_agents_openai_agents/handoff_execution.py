"""A handoff as a call of its own: the application's callback, and which agent comes next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from agents import Agent, RunContextWrapper, RunHooks
from agents.exceptions import ModelBehaviorError

from dex_agents import DeferredToolExecution, ToolExecutionError, ToolExecutionResult
from dex_agents.session.texts import unknown_tool_text
from dex_agents_openai_agents.handoff_history import find_handoff

__all__ = ["execute_handoff"]


async def execute_handoff(
    call: DeferredToolExecution,
    agent: Agent[Any],
    agents: Mapping[str, Agent[Any]],
    context: RunContextWrapper[Any],
    hooks: RunHooks[Any] | None,
) -> ToolExecutionResult:
    """Run a handoff's callback and hooks.

    Args:
        call: The call.
        agent: The agent that hands off.
        agents: The session's agents by name.
        context: The step's context.
        hooks: The application's run hooks.

    Raises:
        ToolExecutionError: The agent has no such handoff any more, the arguments do not fit, or the handoff leads to an
            agent that the session does not know.
        Exception: Whatever the callback raised; the attempt failed.
    """
    handoff = find_handoff(agent, call.tool_call.tool_name)
    if handoff is None:
        raise ToolExecutionError(unknown_tool_text(call.tool_call.tool_name))
    try:
        target: Any = await handoff.on_invoke_handoff(context, call.tool_call.arguments_to_run)
    except ModelBehaviorError as error:
        raise ToolExecutionError(f"The handoff did not take place: {error}") from error
    name = getattr(target, "name", "")
    known = agents.get(name)
    if known is None or known is not target:
        raise ToolExecutionError(
            f"The handoff did not take place: it leads to an agent {name!r} that the session does not know; the "
            "application must pass it in agents=[...]."
        )
    announcements = []
    if hooks is not None:
        announcements.append(hooks.on_handoff(context, agent, known))
    if agent.hooks is not None:
        announcements.append(agent.hooks.on_handoff(context, known, agent))
    await asyncio.gather(*announcements)
    return ToolExecutionResult(
        output=handoff.get_transfer_message(known), framework_result=json.dumps({"agent": known.name})
    )
