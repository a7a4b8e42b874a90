"""Stored messages: a small window of single messages, and immutable chunks of older ones.

An append writes only what is new. When it takes the window past its size, the oldest messages move into chunks in the
same commit, a bounded number of them; a message too large for a chunk is written straight into one of its own, so that
its first store is the largest value it ever needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from dex_agents.session.message_values import AgentMessageChunk, AgentMessageIndex, AgentMessageRange
from dex_agents.session.message_window import (
    CHUNK_OVERHEAD_BYTES,
    ROLLOVER_MAX_BYTES_PER_COMMIT,
    ROLLOVER_MAX_CHUNKS_PER_COMMIT,
    MessageStorageLimits,
    expired_chunk_count,
    window_message_count,
)
from dex_agents.session.persistence import (
    AGENT_MESSAGE_CHUNKS,
    AGENT_MESSAGE_INDEX,
    AGENT_MESSAGES,
    CONTEXT_SUMMARY,
)
from dex_agents.session.rpc_values import AgentMessagePage
from dex_agents.session.tool_values import AgentToolCallRecord
from dex_agents.session.values import AgentMessage, AgentMessageToolCall, FrameworkMessage, message_sequence_key
from dex_flow import StateView, Transaction

__all__ = ["MessageStore", "first_stored_sequence", "load_messages", "load_page"]

MAX_PAGE_SIZE = 200

#: The JSON around the texts of one tool call of a message, in sixths of its bytes.
_CALL_OVERHEAD = 10

_NO_INDEX = AgentMessageIndex()


class MessageStore:
    """Appends messages within the limits of a session's options.

    Args:
        limits: Sizes of window and chunks, and what retention keeps.
    """

    def __init__(self, limits: MessageStorageLimits) -> None:
        self._limits = limits

    def append(
        self,
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
            records: The calls the messages may ask for, in call order; they put the session's own IDs into the
                messages' `tool_calls`, which runners fill with the provider's.
        """
        before = index = tx.get(AGENT_MESSAGE_INDEX) or _NO_INDEX
        sequence = last_sequence
        unnamed = list(records)
        for message in messages:
            sequence += 1
            stored = _stored_message(tx, turn_id, sequence, message, unnamed)
            if self._needs_own_chunk(stored):
                index = _archive(tx, index, [stored])
            else:
                tx.set_instance(AGENT_MESSAGES, message_sequence_key(sequence), stored)
        index = self._roll_over(tx, index, sequence)
        index = self._retain(tx, index, sequence)
        if index is not before:
            tx.set(AGENT_MESSAGE_INDEX, index)
        return sequence

    def apply_retention(self, tx: Transaction, last_sequence: int) -> None:
        """Delete what the summary made superfluous and the limit does not keep."""
        index = tx.get(AGENT_MESSAGE_INDEX)
        if index is None:
            return
        retained = self._retain(tx, index, last_sequence)
        if retained is not index:
            tx.set(AGENT_MESSAGE_INDEX, retained)

    def _needs_own_chunk(self, message: AgentMessage) -> bool:
        limit = self._limits.chunk_max_bytes
        # Escapes make a character six bytes at most; few messages come near enough to be measured.
        if _character_count(message) * 6 + 1024 <= limit:
            return False
        return len(msgspec.json.encode(message)) + CHUNK_OVERHEAD_BYTES > limit

    def _roll_over(self, tx: Transaction, index: AgentMessageIndex, last_sequence: int) -> AgentMessageIndex:
        moved_bytes = 0
        for _ in range(ROLLOVER_MAX_CHUNKS_PER_COMMIT):
            if window_message_count(index, last_sequence) <= self._limits.window_size:
                break
            messages, size = self._oldest_of_window(tx, index)
            if moved_bytes and moved_bytes + size > ROLLOVER_MAX_BYTES_PER_COMMIT:
                break
            moved_bytes += size
            for message in messages:
                tx.delete_instance(AGENT_MESSAGES, message_sequence_key(message.sequence))
            index = _archive(tx, index, messages)
            index = replace(index, window_first_sequence=_next_of_window(index, messages[-1].sequence + 1))
        return index

    def _oldest_of_window(self, tx: Transaction, index: AgentMessageIndex) -> tuple[list[AgentMessage], int]:
        """The messages of the next chunk and its bytes; never across a gap that an oversized message leaves."""
        first = message_sequence_key(index.window_first_sequence)
        chosen: list[AgentMessage] = []
        size = CHUNK_OVERHEAD_BYTES
        for _, message in tx.read_range(AGENT_MESSAGES, at_least=first, limit=self._limits.chunk_size):
            if chosen and message.sequence != chosen[-1].sequence + 1:
                break
            message_size = len(msgspec.json.encode(message)) + (1 if chosen else 0)
            if chosen and size + message_size > self._limits.chunk_max_bytes:
                break
            size += message_size
            chosen.append(message)
        return chosen, size

    def _retain(self, tx: Transaction, index: AgentMessageIndex, last_sequence: int) -> AgentMessageIndex:
        limit = self._limits.retained_message_limit
        if limit is None or not index.chunks:
            return index
        summary = tx.get(CONTEXT_SUMMARY)
        if summary is None:
            return index
        count = expired_chunk_count(index, summary.last_sequence, last_sequence, limit)
        if count == 0:
            return index
        for chunk in index.chunks[:count]:
            tx.delete_instance(AGENT_MESSAGE_CHUNKS, message_sequence_key(chunk.first_sequence))
        first = index.chunks[count - 1].last_sequence + 1
        window_first = max(index.window_first_sequence, first)
        return replace(index, chunks=index.chunks[count:], first_sequence=first, window_first_sequence=window_first)


def _stored_message(
    tx: Transaction,
    turn_id: str,
    sequence: int,
    message: FrameworkMessage,
    unnamed: list[AgentToolCallRecord],
) -> AgentMessage:
    return AgentMessage(
        sequence=sequence,
        turn_id=turn_id,
        role=message.role,
        framework_item=message.framework_item,
        created_at=tx.now,
        text=message.text,
        reasoning_text=message.reasoning_text,
        tool_calls=tuple(_own_id(call, unnamed) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
    )


def _own_id(call: AgentMessageToolCall, unnamed: list[AgentToolCallRecord]) -> AgentMessageToolCall:
    for position, record in enumerate(unnamed):
        if record.provider_tool_call_id == call.tool_call_id and record.tool_name == call.tool_name:
            del unnamed[position]
            return AgentMessageToolCall(
                tool_call_id=record.tool_call_id, tool_name=record.tool_name, arguments=record.arguments
            )
    return call


def _character_count(message: AgentMessage) -> int:
    calls = sum(
        len(call.tool_call_id) + len(call.tool_name) + len(call.arguments) + _CALL_OVERHEAD
        for call in message.tool_calls
    )
    names = len(message.turn_id) + len(message.tool_call_id or "")
    return len(message.framework_item) + len(message.text) + len(message.reasoning_text or "") + names + calls


def _archive(tx: Transaction, index: AgentMessageIndex, messages: Sequence[AgentMessage]) -> AgentMessageIndex:
    """Write one chunk and put it into the index, in order."""
    first, last = messages[0].sequence, messages[-1].sequence
    tx.set_instance(AGENT_MESSAGE_CHUNKS, message_sequence_key(first), AgentMessageChunk(messages=tuple(messages)))
    position = bisect_right(index.chunks, first, key=lambda chunk: chunk.first_sequence)
    added = AgentMessageRange(first_sequence=first, last_sequence=last)
    return replace(index, chunks=(*index.chunks[:position], added, *index.chunks[position:]))


def _next_of_window(index: AgentMessageIndex, sequence: int) -> int:
    """The first sequence from `sequence` on that no chunk holds."""
    for chunk in index.chunks:
        if chunk.first_sequence == sequence:
            sequence = chunk.last_sequence + 1
    return sequence


def first_stored_sequence(view: StateView) -> int:
    """The oldest stored message; 1 until retention deletes some."""
    index = view.get(AGENT_MESSAGE_INDEX)
    return 1 if index is None else index.first_sequence


def load_messages(view: StateView, after_sequence: int = 0) -> tuple[AgentMessage, ...]:
    """The stored messages after a sequence, oldest first; reads only the chunks that overlap them."""
    at_least = message_sequence_key(after_sequence + 1)
    window = [message for _, message in view.read_range(AGENT_MESSAGES, at_least=at_least)]
    index = view.get(AGENT_MESSAGE_INDEX)
    if index is None:
        return tuple(window)
    archived = [
        message
        for chunk in index.chunks
        if chunk.last_sequence > after_sequence
        for message in _load_chunk(view, chunk)
        if message.sequence > after_sequence
    ]
    if archived and window and archived[-1].sequence > window[0].sequence:
        return tuple(sorted((*archived, *window), key=lambda message: message.sequence))
    return (*archived, *window)


def load_page(view: StateView, before_sequence: int | None, limit: int) -> AgentMessagePage:
    """The newest messages before `before_sequence` (None: of all), at most `limit` clamped to 1..200."""
    count = min(max(limit, 1), MAX_PAGE_SIZE)
    below = None if before_sequence is None else message_sequence_key(max(before_sequence, 0))
    newest_first = view.read_range(AGENT_MESSAGES, below=below, limit=count, newest_first=True)
    found = [message for _, message in newest_first]
    index = view.get(AGENT_MESSAGE_INDEX) or _NO_INDEX
    for chunk in reversed(index.chunks):
        if len(found) >= count and chunk.last_sequence < min(message.sequence for message in found):
            break
        if before_sequence is None or chunk.first_sequence < before_sequence:
            found += [
                message
                for message in _load_chunk(view, chunk)
                if before_sequence is None or message.sequence < before_sequence
            ]
    page = tuple(sorted(found, key=lambda message: message.sequence)[-count:])
    has_earlier = bool(page) and page[0].sequence > index.first_sequence
    return AgentMessagePage(
        messages=page,
        next_before_sequence=page[0].sequence if has_earlier else None,
        deleted_before_sequence=index.first_sequence if index.first_sequence > 1 else None,
    )


def _load_chunk(view: StateView, chunk: AgentMessageRange) -> tuple[AgentMessage, ...]:
    stored = view.get_instance(AGENT_MESSAGE_CHUNKS, message_sequence_key(chunk.first_sequence))
    if stored is None:
        raise LookupError(f"the chunk of messages {chunk.first_sequence} to {chunk.last_sequence} is not stored")
    return stored.messages
