"""How many messages the window and a chunk hold, and which of the window's messages move: pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dex_agents.session.message_values import AgentMessageIndex, AgentMessageRange

__all__ = ["CHUNK_OVERHEAD_BYTES", "MessageStorageLimits", "expired_chunk_count", "window_message_count"]

#: What a chunk's JSON has around the text of one message: `{"messages":[` and `]}`.
CHUNK_OVERHEAD_BYTES = 15

ROLLOVER_MAX_CHUNKS_PER_COMMIT = 4
ROLLOVER_MAX_BYTES_PER_COMMIT = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStorageLimits:
    """How a session stores its messages.

    Attributes:
        window_size: Most messages in the window once a commit's rollover is done.
        chunk_size: Most messages of a chunk.
        chunk_max_bytes: Most bytes of a chunk's JSON; a larger message has a chunk of its own.
        retained_message_limit: Messages that retention always keeps; None keeps all.
    """

    window_size: int = 64
    chunk_size: int = 32
    chunk_max_bytes: int = 1024 * 1024
    retained_message_limit: int | None = None


def window_message_count(index: AgentMessageIndex, last_sequence: int) -> int:
    """How many messages have an instance of their own in the window."""
    oversized = sum(chunk.first_sequence >= index.window_first_sequence for chunk in newest_chunks(index))
    return last_sequence - index.window_first_sequence + 1 - oversized


def newest_chunks(index: AgentMessageIndex) -> Iterator[AgentMessageRange]:
    """The chunks of oversized messages among the window's, newest first."""
    for chunk in reversed(index.chunks):
        if chunk.first_sequence < index.window_first_sequence:
            return
        yield chunk


def expired_chunk_count(
    index: AgentMessageIndex, summarized_through: int, last_sequence: int, retained_message_limit: int
) -> int:
    """How many of the oldest chunks retention deletes.

    A chunk goes when nothing older is stored, the summary covers all of it, and at least `retained_message_limit`
    messages come after it.

    Args:
        index: Where messages are.
        summarized_through: The last message the summary covers, 0 without one.
        last_sequence: The newest stored message.
        retained_message_limit: Messages that always stay.
    """
    count = 0
    first = index.first_sequence
    for chunk in index.chunks:
        is_kept = last_sequence - chunk.last_sequence < retained_message_limit
        if chunk.first_sequence != first or chunk.last_sequence > summarized_through or is_kept:
            break
        first = chunk.last_sequence + 1
        count += 1
    return count
