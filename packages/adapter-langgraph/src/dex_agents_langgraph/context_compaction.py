"""Summaries of earlier messages: where the conversation may be cut, and the model call that summarises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from dex_agents import (
    SUMMARY_REQUEST_TEXT,
    AgentTurnContext,
    ContextSummary,
    ContextSummaryRequest,
    ContextSummaryResult,
    count_omitted_messages,
    select_compaction_cutoff,
)
from dex_agents.session.texts import (
    CONTEXT_SUMMARY_INSTRUCTIONS,
    CONTEXT_SUMMARY_NOTE_HEADER,
    context_summary_omission_note,
)
from dex_agents_langgraph.model_calls import model_call_metadata, model_call_usage
from dex_agents_langgraph.stored_messages import StoredMessages
from dex_agents_langgraph.token_estimate import message_tokens, pending_result_tokens, text_tokens

__all__ = ["SummaryModel", "select_cutoff", "summarize", "summary_note"]

SummaryModel: TypeAlias = BaseChatModel | Callable[[Mapping[str, Any]], BaseChatModel]
"""The model that summarises, or a function of the session's settings that gives it."""


def summary_note(summary: ContextSummary) -> str:
    """What a model reads in place of the messages that a summary stands for."""
    return f"{CONTEXT_SUMMARY_NOTE_HEADER}\n{summary.text}"


def select_cutoff(turn: AgentTurnContext, retained_token_budget: int, *, keeps_state: bool) -> int | None:
    """The sequence of the last message to summarise.

    Args:
        turn: The turn.
        retained_token_budget: About how many tokens may stay.
        keeps_state: Whether the newest message with the graph's state must stay, since nothing else has what it holds.
    """
    messages, following = turn.messages, turn.messages[:0]
    if keeps_state:
        place = StoredMessages(messages).state_place
        if place is not None:
            messages, following = messages[: place + 1], messages[place + 1 :]
    pending = pending_result_tokens(turn) + sum(map(message_tokens, following))
    return select_compaction_cutoff(
        messages, turn.turn_id, retained_token_budget, message_tokens, pending_tokens=pending
    )


async def summarize(model: SummaryModel, request: ContextSummaryRequest) -> ContextSummaryResult:
    """Make one model call without tools; nothing of it streams to the user.

    Raises:
        TurnRefusedError: A message was written by another runner.
        Exception: What the model raised.
    """
    chosen = model if isinstance(model, BaseChatModel) else model(request.session_settings)
    limit = getattr(chosen, "max_tokens", None)
    messages = _summary_messages(request, limit if isinstance(limit, int) else 0)
    answer = await chosen.ainvoke(messages)
    assert isinstance(answer, AIMessage)
    return ContextSummaryResult(
        text=str(answer.text), usage=model_call_usage(answer), model_call_metadata=model_call_metadata(answer)
    )


def _summary_messages(request: ContextSummaryRequest, max_output_tokens: int) -> list[BaseMessage]:
    """What the model reads; the oldest rounds are left out when all would not fit."""
    messages = request.messages
    notes = [] if request.previous_summary is None else [summary_note(request.previous_summary)]
    available = request.input_token_budget - max_output_tokens
    available -= sum(map(text_tokens, (CONTEXT_SUMMARY_INSTRUCTIONS, SUMMARY_REQUEST_TEXT, *notes)))
    if sum(map(message_tokens, messages)) > available:
        available -= text_tokens(context_summary_omission_note(len(messages)))
        omitted = count_omitted_messages(messages, available, message_tokens)
        messages = messages[omitted:]
        if omitted:
            notes.append(context_summary_omission_note(omitted))
    return [
        SystemMessage(CONTEXT_SUMMARY_INSTRUCTIONS),
        *map(HumanMessage, notes),
        *StoredMessages(messages).by_id.values(),
        HumanMessage(SUMMARY_REQUEST_TEXT),
    ]
