"""The conversation a model call gets: the summary, the stored messages, and the plan before the active turn's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dex_agents import AgentMessage, AgentTurnContext, ContextSummary, FrameworkMessage, TurnRefusedError
from dex_agents.session.plans import build_plan_note
from dex_agents.session.texts import CONTEXT_SUMMARY_NOTE_HEADER, OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_stepwise.framework_items import (
    StoredItem,
    ToolResultItem,
    UnreadableFrameworkItemError,
    UserTextItem,
)
from dex_agents_stepwise.input_items import build_input_items
from dex_agents_stepwise.model_client import ModelClient, ModelInputItem
from dex_agents_stepwise.turn_transcript import stored_items

__all__ = ["conversation_items", "input_items", "plan_note", "readable_items", "summary_note"]


def summary_note(summary: ContextSummary | None) -> str | None:
    """What the model reads in place of the messages that were summarised."""
    return None if summary is None else f"{CONTEXT_SUMMARY_NOTE_HEADER}\n{summary.text}"


def plan_note(turn: AgentTurnContext) -> str | None:
    """What the model reads about the session's plan."""
    return build_plan_note(turn.plan, turn.interaction_mode)


def conversation_items(
    turn: AgentTurnContext, results: Sequence[FrameworkMessage], model: ModelClient
) -> tuple[ModelInputItem, ...]:
    """The input of a turn's model call.

    Args:
        turn: The turn.
        results: Results of the turn's latest calls, which are not stored yet.
        model: The client that gets the input.

    Raises:
        TurnRefusedError: The session's messages were written by another runner.
    """
    stored = readable_items((*turn.messages, *results))
    note = plan_note(turn)
    if note is not None:
        stored.insert(_plan_note_position(turn, stored), UserTextItem(text=note))
    return input_items(turn.context_summary, stored, model)


def input_items(
    summary: ContextSummary | None, stored: Iterable[StoredItem], model: ModelClient
) -> tuple[ModelInputItem, ...]:
    """The input of a call: stored items behind the summary of what came before them."""
    note = summary_note(summary)
    summarized = [] if note is None else [UserTextItem(text=note)]
    return build_input_items(
        (*summarized, *stored), provider=model.provider, api=model.api, missing_result=OUTCOME_UNKNOWN_TOOL_RESULT
    )


def readable_items(messages: Iterable[AgentMessage | FrameworkMessage]) -> list[StoredItem]:
    """The items of messages, in order.

    Raises:
        TurnRefusedError: One was written by another runner.
    """
    try:
        return stored_items(messages)
    except UnreadableFrameworkItemError as error:
        raise TurnRefusedError(str(error)) from error


def _plan_note_position(turn: AgentTurnContext, stored: Sequence[StoredItem]) -> int:
    """Before the turn's first message, but never between a call and its result."""
    position = next((index for index, message in enumerate(turn.messages) if message.turn_id == turn.turn_id), None)
    if position is None:
        position = len(turn.messages)
    while 0 < position < len(stored) and isinstance(stored[position], ToolResultItem):
        position -= 1
    return position
