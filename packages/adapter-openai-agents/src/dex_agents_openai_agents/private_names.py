"""The only place that reads names the SDK does not export; each has a reason and a test.

`Handoff._agent_ref`: a `Handoff` made by `handoff()` says the name of its target, and its object only here. Without it
the application would have to list every agent again. Falls back to `agents=`.

`FunctionTool._agent_instance`: which agent an `as_tool()` tool runs, to refuse one whose own tools need approvals.
Without it such a tool fails when it is called instead of when the Flow is built.

`Model._supports_default_prompt_cache_key` and `Model._cleanup_on_run_end`: the runner asks the model for them, so a
model that stands in front of another one passes them on. Without them a session has no prompt cache key.

`agents.tool.resolve_function_tool_failure_error_function` and `set_function_tool_failure_error_function`: public in
name, but not exported from `agents`. They tell a failure that the SDK turned into text from a tool's own text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agents import Agent, FunctionTool, Handoff, Model
from agents.tool import (
    ToolErrorFunction,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)

__all__ = [
    "agent_of_tool",
    "failure_error_function",
    "handoff_target",
    "replace_failure_error_function",
    "run_end_cleanup",
    "supports_default_prompt_cache_key",
]


def handoff_target(handoff: Handoff[Any, Any]) -> Agent[Any] | None:
    """The agent a handoff goes to; None when the SDK does not say."""
    reference = getattr(handoff, "_agent_ref", None)
    target = reference() if callable(reference) else None
    return target if isinstance(target, Agent) else None


def agent_of_tool(tool: FunctionTool) -> Agent[Any] | None:
    """The agent behind a tool made by `as_tool()`; None for every other tool."""
    agent = getattr(tool, "_agent_instance", None)
    return agent if isinstance(agent, Agent) else None


def supports_default_prompt_cache_key(model: Model) -> bool:
    """Whether the SDK's runner gives the model a prompt cache key."""
    supports = getattr(model, "_supports_default_prompt_cache_key", None)
    return bool(supports()) if callable(supports) else False


async def run_end_cleanup(model: Model, owner: object) -> None:
    """Tell a model that a run ended, as the SDK's runner does."""
    cleanup: Callable[[object], Awaitable[None]] | None = getattr(model, "_cleanup_on_run_end", None)
    if cleanup is not None:
        await cleanup(owner)


def failure_error_function(tool: FunctionTool) -> ToolErrorFunction | None:
    """What turns the tool's exceptions into text; None when they leave the run."""
    return resolve_function_tool_failure_error_function(tool)


def replace_failure_error_function(tool: FunctionTool, function: ToolErrorFunction) -> None:
    """Let another function turn the tool's exceptions into text."""
    set_function_tool_failure_error_function(tool, function)
