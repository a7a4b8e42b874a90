"""What of a conversation is summarised, and the model call that summarises it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from dex_agents import AgentMessage, ContextSummaryRequest
from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS, NOTE_PREFIX, context_summary_omission_note
from dex_agents_stepwise.conversation import input_items, readable_items, summary_note
from dex_agents_stepwise.framework_items import UserTextItem
from dex_agents_stepwise.model_client import ModelClient, ModelRequest, ModelSettings
from dex_agents_stepwise.token_estimate import TokenEstimator

__all__ = ["SUMMARY_REQUEST_TEXT", "build_summary_request", "compaction_cutoff"]

# A conversation usually ends with an answer, and many providers want the last word to be the user's.
SUMMARY_REQUEST_TEXT = f"{NOTE_PREFIX} Write the summary of the conversation now."


def compaction_cutoff(
    messages: Sequence[AgentMessage],
    turn_id: str,
    retained_token_budget: int,
    estimator: TokenEstimator,
    pending_tokens: int = 0,
) -> int | None:
    """The sequence of the last message to summarise, or None when nothing can or need be.

    What stays begins with a user message or a model response, and right before it every call has its stored result.
    So a call and its results stay together, and a response whose results are still to come always stays. Nothing else
    holds on to a message: the run state of a turn refers to none.

    Args:
        messages: The messages after the current summary, oldest first.
        turn_id: The active turn. Its user message stays, unless the turn alone is larger than the budget.
        retained_token_budget: About how many tokens may stay. More stay when no cut leaves so few.
        estimator: Of the model the input is for.
        pending_tokens: Tokens of what follows the messages and is not stored yet.
    """
    sizes = [estimator.message(message) for message in messages]
    # Tokens that stay when everything before this position is cut off.
    kept = [size + pending_tokens for size in accumulate(reversed(sizes), initial=0)][::-1]
    if kept[0] <= retained_token_budget:
        return None  # summarising again and again would make nothing smaller that is too large besides the messages
    turn_start = next((index for index, message in enumerate(messages) if message.turn_id == turn_id), len(messages))
    positions = _positions_between_rounds(messages)
    if kept[turn_start] <= retained_token_budget:
        positions = [position for position in positions if position <= turn_start]
    if not positions:
        return None
    fitting = (position for position in positions if kept[position] <= retained_token_budget)
    return messages[next(fitting, positions[-1]) - 1].sequence


def build_summary_request(
    request: ContextSummaryRequest, model: ModelClient, settings: ModelSettings, estimator: TokenEstimator
) -> ModelRequest:
    """The model call that summarises: no tools, and nothing of it streams to the user.

    When it would not fit, the oldest messages are left out, whole rounds of a response and its results; the last
    round stays whatever its size.

    Args:
        request: What to summarise.
        model: The client that gets the call.
        settings: Settings of the call; `max_output_tokens` counts towards the budget.
        estimator: Of that client.

    Raises:
        TurnRefusedError: A message was written by another runner.
    """
    messages = request.messages
    available = request.input_token_budget - (settings.max_output_tokens or 0)
    fixed = estimator.item(CONTEXT_SUMMARY_INSTRUCTIONS) + estimator.item(SUMMARY_REQUEST_TEXT)
    fixed += estimator.item(summary_note(request.previous_summary) or "")
    sizes = [estimator.message(message) for message in messages]
    omitted = 0
    if fixed + sum(sizes) > available:
        fixed += estimator.item(context_summary_omission_note(len(messages)))
        omitted = _first_fitting_round(messages, sizes, available - fixed)
    notes = [UserTextItem(text=context_summary_omission_note(omitted))] if omitted else []
    conversation = readable_items(messages[omitted:])
    last = UserTextItem(text=SUMMARY_REQUEST_TEXT)
    return ModelRequest(
        instructions=CONTEXT_SUMMARY_INSTRUCTIONS,
        input_items=input_items(request.previous_summary, (*notes, *conversation, last), model),
        tool_choice="none",
        settings=settings,
    )


def _first_fitting_round(messages: Sequence[AgentMessage], sizes: Sequence[int], available: int) -> int:
    """Where the longest end of the messages begins that fits, always at a round."""
    first = 0
    remaining = sum(sizes)
    for position in _round_starts(messages):
        if remaining <= available:
            break
        remaining -= sum(sizes[first:position])
        first = position
    return first


def _round_starts(messages: Sequence[AgentMessage]) -> list[int]:
    """Positions of messages that are no results, without the first."""
    return [index for index, message in enumerate(messages) if index and message.role != "tool"]


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
