"""What of a conversation is summarised, and the model call that summarises it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from agents import Agent

from dex_agents import AgentMessage, ContextSummaryRequest
from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS, NOTE_PREFIX, context_summary_omission_note
from dex_agents_openai_agents.conversation import summary_note, with_missing_results
from dex_agents_openai_agents.stored_items import InputItem, read_stored_items
from dex_agents_openai_agents.token_estimate import message_tokens, text_tokens

__all__ = ["SUMMARY_REQUEST_TEXT", "compaction_cutoff", "summary_agent", "summary_items"]

# A conversation usually ends with an answer, and many providers want the last word to be the user's.
SUMMARY_REQUEST_TEXT = f"{NOTE_PREFIX} Write the summary of the conversation now."


def compaction_cutoff(
    messages: Sequence[AgentMessage], turn_id: str, retained_token_budget: int, pending_tokens: int
) -> int | None:
    """The sequence of the last message to summarise, or None when nothing can or need be.

    What stays begins with a user message or a response, and right before it every call has its stored result: a
    response keeps its reasoning, its calls and their results together.

    Args:
        messages: The messages after the current summary, oldest first.
        turn_id: The active turn. Its user message stays, unless the turn alone is larger than the budget.
        retained_token_budget: About how many tokens may stay. More stay when no cut leaves so few.
        pending_tokens: Tokens of what follows the messages and is not stored yet.
    """
    sizes = map(message_tokens, messages)
    # Tokens that stay when everything before this position is cut off.
    kept = [size + pending_tokens for size in accumulate(reversed(list(sizes)), initial=0)][::-1]
    if kept[0] <= retained_token_budget:
        return None
    turn_start = next((index for index, message in enumerate(messages) if message.turn_id == turn_id), len(messages))
    positions = _positions_between_rounds(messages)
    if kept[turn_start] <= retained_token_budget:
        positions = [position for position in positions if position <= turn_start]
    if not positions:
        return None
    fitting = (position for position in positions if kept[position] <= retained_token_budget)
    return messages[next(fitting, positions[-1]) - 1].sequence


def summary_agent(agent: Agent[Any]) -> Agent[Any]:
    """The agent whose model writes the summary: it has nothing but its model and settings."""
    return dataclasses.replace(
        agent,
        instructions=CONTEXT_SUMMARY_INSTRUCTIONS,
        prompt=None,
        tools=[],
        mcp_servers=[],
        handoffs=[],
        input_guardrails=[],
        output_guardrails=[],
        output_type=None,
        hooks=None,
        model_settings=dataclasses.replace(agent.model_settings, tool_choice=None, parallel_tool_calls=None),
    )


def summary_items(request: ContextSummaryRequest, model: str, max_output_tokens: int | None) -> list[InputItem]:
    """The input of the summary's model call.

    When it would not fit, the oldest messages are left out, whole rounds of a response and its results; the last
    round stays whatever its size.

    Args:
        request: What to summarise.
        model: Label of the model that reads it.
        max_output_tokens: Tokens kept free for the summary.

    Raises:
        TurnRefusedError: A message was written by another runner.
    """
    messages, notes = request.messages, list[str]()
    if (note := summary_note(request.previous_summary)) is not None:
        notes.append(note)
    available = request.input_token_budget - (max_output_tokens or 0)
    available -= sum(map(text_tokens, (CONTEXT_SUMMARY_INSTRUCTIONS, SUMMARY_REQUEST_TEXT, *notes)))
    sizes = [message_tokens(message) for message in messages]
    if sum(sizes) > available:
        available -= text_tokens(context_summary_omission_note(len(messages)))
        omitted = _first_fitting_round(messages, sizes, available)
        messages = messages[omitted:]
        if omitted:
            notes.append(context_summary_omission_note(omitted))
    items: list[InputItem] = [{"role": "user", "content": text} for text in notes]
    for stored in read_stored_items(messages):
        items += stored.for_model(model)
    return [*with_missing_results(items), {"role": "user", "content": SUMMARY_REQUEST_TEXT}]


def _first_fitting_round(messages: Sequence[AgentMessage], sizes: Sequence[int], available: int) -> int:
    """Where the longest end of the messages begins that fits, always at a round."""
    first, remaining = 0, sum(sizes)
    for position in _positions_between_rounds(messages):
        if remaining <= available:
            break
        remaining -= sum(sizes[first:position])
        first = position
    return first


def _positions_between_rounds(messages: Sequence[AgentMessage]) -> list[int]:
    """Where a round begins right behind one whose calls all have their results."""
    positions = []
    missing_results = 0
    for index, message in enumerate(messages):
        if message.role == "tool":
            missing_results -= 1
            continue
        if index and missing_results <= 0:
            positions.append(index)
        missing_results = len(message.tool_calls)
    return positions
