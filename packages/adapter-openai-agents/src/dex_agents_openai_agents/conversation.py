"""The input items of a model call: the summary, the stored messages, the plan before the turn's own messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents import Agent, RunConfig, RunContextWrapper

from dex_agents import AgentTurnContext, ContextSummary, FrameworkMessage, build_plan_note
from dex_agents.session.texts import CONTEXT_SUMMARY_NOTE_HEADER, OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_openai_agents.handoff_history import filtered_history, find_handoff
from dex_agents_openai_agents.run_state import HandoffTaken
from dex_agents_openai_agents.stored_items import InputItem, read_stored_items

__all__ = ["conversation_items", "last_sequence", "plan_note", "summary_note", "with_missing_results"]

_OUTPUT_TYPES = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}


def summary_note(summary: ContextSummary) -> str:
    """What the model reads in place of the messages that were summarised."""
    return f"{CONTEXT_SUMMARY_NOTE_HEADER}\n{summary.text}"


def plan_note(turn: AgentTurnContext) -> str | None:
    """What the model reads about the session's plan."""
    return build_plan_note(turn.plan, turn.interaction_mode)


def last_sequence(turn: AgentTurnContext) -> int:
    """The sequence of the newest stored message, 0 without one."""
    if turn.messages:
        return turn.messages[-1].sequence
    return 0 if turn.context_summary is None else turn.context_summary.last_sequence


async def conversation_items(
    turn: AgentTurnContext,
    results: Sequence[FrameworkMessage],
    handoffs: Sequence[HandoffTaken],
    *,
    model: str,
    agents: Mapping[str, Agent[Any]],
    run_config: RunConfig,
    context: RunContextWrapper[Any],
) -> list[InputItem]:
    """The input of a turn's model call.

    Args:
        turn: The turn.
        results: Results of the turn's latest calls, which are not stored yet.
        handoffs: The turn's handoffs whose filter applies, oldest first.
        model: Label of the model that reads it.
        agents: The session's agents by name.
        run_config: The step's run config.
        context: The step's context.

    Raises:
        TurnRefusedError: The session's messages were written by another runner.
        HandoffFilterError: A handoff's filter returned what it must not.
    """
    stored = read_stored_items((*turn.messages, *results))
    sequences = [message.sequence for message in turn.messages]
    sequences += range(last_sequence(turn) + 1, last_sequence(turn) + 1 + len(results))
    items: list[InputItem] = []
    if turn.context_summary is not None:
        items.append({"role": "user", "content": summary_note(turn.context_summary)})
    note = plan_note(turn)
    note_sequence = next((message.sequence for message in turn.messages if message.turn_id == turn.turn_id), None)
    waiting = list(handoffs)
    for entry, sequence in zip(stored, sequences, strict=True):
        while waiting and waiting[0].through_sequence < sequence:
            items = await _filtered(waiting.pop(0), items, agents, run_config, context)
        if note is not None and sequence == note_sequence:
            items.append({"role": "user", "content": note})
        items += entry.for_model(model)
    for handoff in waiting:
        items = await _filtered(handoff, items, agents, run_config, context)
    if note is not None and note_sequence is None:
        items.append({"role": "user", "content": note})
    if run_config.reasoning_item_id_policy == "omit":
        items = [_without_id(item) if item.get("type") == "reasoning" else item for item in items]
    return with_missing_results(items)


def _without_id(item: InputItem) -> InputItem:
    return {key: value for key, value in item.items() if key != "id"}


async def _filtered(
    taken: HandoffTaken,
    items: list[InputItem],
    agents: Mapping[str, Agent[Any]],
    run_config: RunConfig,
    context: RunContextWrapper[Any],
) -> list[InputItem]:
    source = agents.get(taken.source_agent)
    handoff = None if source is None else find_handoff(source, taken.tool_name)
    return await filtered_history(handoff, taken.tool_name, run_config, items, context)


def with_missing_results(items: Sequence[InputItem]) -> list[InputItem]:
    """The items with a result for every call that has none: providers refuse a call without its result."""
    answered = {item.get("call_id") for item in items if str(item.get("type", "")).endswith("_output")}
    complete: list[InputItem] = []
    missing: list[InputItem] = []
    for item in items:
        output_type = _OUTPUT_TYPES.get(str(item.get("type", "")))
        if output_type is None and missing:
            complete += missing
            missing = []
        complete.append(item)
        if output_type is not None and item.get("call_id") not in answered:
            missing.append({"call_id": item["call_id"], "output": OUTCOME_UNKNOWN_TOOL_RESULT, "type": output_type})
    return [*complete, *missing]
