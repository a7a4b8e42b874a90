"""Stored messages, one instance each, so that an append writes only what is new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dex_agents.session.persistence import AGENT_MESSAGES
from dex_agents.session.rpc_values import AgentMessagePage
from dex_agents.session.tool_values import AgentToolCallRecord
from dex_agents.session.values import AgentMessage, AgentMessageToolCall, FrameworkMessage, message_sequence_key
from dex_flow import StateView, Transaction

__all__ = ["append_messages", "load_messages", "load_page"]

MAX_PAGE_SIZE = 200


def append_messages(
    tx: Transaction,
    turn_id: str,
    last_sequence: int,
    messages: Iterable[FrameworkMessage],
    records: Sequence[AgentToolCallRecord] = (),
) -> int:
    """Store messages after `last_sequence` and return the new last sequence.

    Args:
        tx: The transaction.
        turn_id: The turn they belong to.
        last_sequence: Sequence of the newest stored message.
        messages: Repaired messages, in order.
        records: The calls the messages may ask for, in call order; they put the session's own IDs into the messages'
            `tool_calls`, which runners fill with the provider's.
    """
    sequence = last_sequence
    created_at = tx.now
    unnamed = list(records)
    for message in messages:
        sequence += 1
        stored = AgentMessage(
            sequence=sequence,
            turn_id=turn_id,
            role=message.role,
            framework_item=message.framework_item,
            created_at=created_at,
            text=message.text,
            reasoning_text=message.reasoning_text,
            tool_calls=tuple(_own_id(call, unnamed) for call in message.tool_calls),
            tool_call_id=message.tool_call_id,
        )
        tx.set_instance(AGENT_MESSAGES, message_sequence_key(sequence), stored)
    return sequence


def _own_id(call: AgentMessageToolCall, unnamed: list[AgentToolCallRecord]) -> AgentMessageToolCall:
    for index, record in enumerate(unnamed):
        if record.provider_tool_call_id == call.tool_call_id and record.tool_name == call.tool_name:
            del unnamed[index]
            return AgentMessageToolCall(
                tool_call_id=record.tool_call_id, tool_name=record.tool_name, arguments=record.arguments
            )
    return call


def load_messages(view: StateView) -> tuple[AgentMessage, ...]:
    """Every stored message, oldest first."""
    return tuple(message for _, message in view.read_range(AGENT_MESSAGES))


def load_page(view: StateView, before_sequence: int | None, limit: int) -> AgentMessagePage:
    """The newest messages before `before_sequence` (None: of all), at most `limit` clamped to 1..200."""
    below = None if before_sequence is None else message_sequence_key(max(before_sequence, 0))
    count = min(max(limit, 1), MAX_PAGE_SIZE)
    newest_first = view.read_range(AGENT_MESSAGES, below=below, limit=count, newest_first=True)
    messages = tuple(message for _, message in reversed(newest_first))
    has_earlier = bool(messages) and messages[0].sequence > 1
    return AgentMessagePage(messages=messages, next_before_sequence=messages[0].sequence if has_earlier else None)
