"""The model call that summarises earlier messages."""

from __future__ import annotations

from dex_agents import SUMMARY_REQUEST_TEXT, ContextSummaryRequest, count_omitted_messages
from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS, context_summary_omission_note
from dex_agents_stepwise.conversation import input_items, readable_items, summary_note
from dex_agents_stepwise.framework_items import UserTextItem
from dex_agents_stepwise.model_client import ModelClient, ModelRequest, ModelSettings
from dex_agents_stepwise.token_estimate import TokenEstimator

__all__ = ["build_summary_request"]


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
    omitted = 0
    if fixed + estimator.messages(messages) > available:
        fixed += estimator.item(context_summary_omission_note(len(messages)))
        omitted = count_omitted_messages(messages, available - fixed, estimator.message)
    notes = [UserTextItem(text=context_summary_omission_note(omitted))] if omitted else []
    conversation = readable_items(messages[omitted:])
    last = UserTextItem(text=SUMMARY_REQUEST_TEXT)
    return ModelRequest(
        instructions=CONTEXT_SUMMARY_INSTRUCTIONS,
        input_items=input_items(request.previous_summary, (*notes, *conversation, last), model),
        tool_choice="none",
        settings=settings,
    )
