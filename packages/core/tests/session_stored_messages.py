"""The messages that one commit stored, read from its rows."""

from __future__ import annotations

from collections.abc import Mapping

from dex_agents import AgentMessage, AgentMessageChunk
from dex_flow.codec import decode

__all__ = ["new_messages"]


def new_messages(
    window: Mapping[str, bytes | None], chunks: Mapping[str, bytes | None], last_sequence: int
) -> list[AgentMessage]:
    """The messages behind `last_sequence`, in order; without retention, a message only ever moves into a chunk.

    Args:
        window: Written and deleted rows of the window by key.
        chunks: Written and deleted chunks by key.
        last_sequence: The newest message before the commit.
    """
    assert None not in chunks.values(), "a chunk was deleted without retention"
    archived = [message for data in chunks.values() if data for message in decode(AgentMessageChunk, data).messages]
    moved = {int(key) for key, data in window.items() if data is None}
    assert moved <= {message.sequence for message in archived}, "a message was deleted"
    # One commit can store more messages than the window holds, so new ones stand in chunks too.
    stored = [*archived, *(decode(AgentMessage, data) for data in window.values() if data is not None)]
    return sorted((message for message in stored if message.sequence > last_sequence), key=_sequence)


def _sequence(message: AgentMessage) -> int:
    return message.sequence
