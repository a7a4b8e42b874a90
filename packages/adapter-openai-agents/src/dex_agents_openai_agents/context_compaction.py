"""The model call that summarises earlier messages."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from agents import Agent

from dex_agents import SUMMARY_REQUEST_TEXT, ContextSummaryRequest, count_omitted_messages
from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS, context_summary_omission_note
from dex_agents_openai_agents.conversation import summary_note, with_missing_results
from dex_agents_openai_agents.stored_items import InputItem, read_stored_items
from dex_agents_openai_agents.summary_agent_note import without_agent_note
from dex_agents_openai_agents.token_estimate import message_tokens, messages_tokens, text_tokens

__all__ = ["summary_agent", "summary_items"]


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
    if (summary := request.previous_summary) is not None:
        # Which agent comes next is this adapter's to say, and not the model's.
        notes.append(summary_note(msgspec.structs.replace(summary, text=without_agent_note(summary.text))))
    available = request.input_token_budget - (max_output_tokens or 0)
    available -= sum(map(text_tokens, (CONTEXT_SUMMARY_INSTRUCTIONS, SUMMARY_REQUEST_TEXT, *notes)))
    if messages_tokens(messages) > available:
        available -= text_tokens(context_summary_omission_note(len(messages)))
        omitted = count_omitted_messages(messages, available, message_tokens)
        messages = messages[omitted:]
        if omitted:
            notes.append(context_summary_omission_note(omitted))
    items: list[InputItem] = [{"role": "user", "content": text} for text in notes]
    for stored in read_stored_items(messages):
        items += stored.for_model(model)
    return [*with_missing_results(items), {"role": "user", "content": SUMMARY_REQUEST_TEXT}]
