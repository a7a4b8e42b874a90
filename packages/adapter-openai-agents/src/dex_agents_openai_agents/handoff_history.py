"""What the agent behind a handoff reads of the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import Agent, HandoffInputData, RunConfig, RunContextWrapper
from agents import handoff as make_handoff

from dex_agents_openai_agents.step_agent import resolve_maybe_awaitable
from dex_agents_openai_agents.stored_items import InputItem

__all__ = ["HandoffFilterError", "filtered_history", "find_handoff", "has_input_filter"]

from agents import Handoff


class HandoffFilterError(TypeError):
    """A handoff's input filter returned something that no model input can be made of.

    Args:
        tool_name: The handoff's tool.
        problem: What it returned.
    """

    def __init__(self, tool_name: str, problem: str) -> None:
        super().__init__(f"the input filter of the handoff {tool_name!r} {problem}")


def find_handoff(agent: Agent[Any], tool_name: str) -> Handoff[Any, Any] | None:
    """The handoff of an agent by the name of its tool, also while it is disabled: it was offered."""
    for entry in agent.handoffs:
        handoff = entry if isinstance(entry, Handoff) else make_handoff(entry)
        if handoff.tool_name == tool_name:
            return handoff
    return None


def has_input_filter(handoff: Handoff[Any, Any] | None, run_config: RunConfig) -> bool:
    """Whether later model calls of the turn read a filtered conversation."""
    return (handoff is not None and handoff.input_filter is not None) or run_config.handoff_input_filter is not None


async def filtered_history(
    handoff: Handoff[Any, Any] | None,
    tool_name: str,
    run_config: RunConfig,
    items: Sequence[InputItem],
    context: RunContextWrapper[Any],
) -> list[InputItem]:
    """The items a handoff's filter leaves. The filter gets all of them as `input_history`.

    Raises:
        HandoffFilterError: The filter returned something else than `HandoffInputData` of input items.
    """
    input_filter = (handoff.input_filter if handoff is not None else None) or run_config.handoff_input_filter
    if input_filter is None:
        return list(items)
    data = HandoffInputData(input_history=tuple(items), pre_handoff_items=(), new_items=(), run_context=context)  # type: ignore[arg-type]
    filtered = await resolve_maybe_awaitable(input_filter(data))
    if not isinstance(filtered, HandoffInputData):
        raise HandoffFilterError(tool_name, f"returned {type(filtered).__name__}, not HandoffInputData")
    history = filtered.input_history
    kept: list[Any] = [{"role": "user", "content": history}] if isinstance(history, str) else list(history)
    added = filtered.new_items if filtered.input_items is None else filtered.input_items
    return [*kept, *(item.to_input_item() for item in (*filtered.pre_handoff_items, *added))]
