"""Values of message storage: archive chunks, and the index that says where messages are."""

from __future__ import annotations

import msgspec

from dex_agents.session.values import AgentMessage

__all__ = ["AgentMessageChunk", "AgentMessageIndex", "AgentMessageRange"]


class AgentMessageChunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Older messages without a gap, oldest first; never rewritten."""

    messages: tuple[AgentMessage, ...]


class AgentMessageRange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first and the last sequence of a chunk."""

    first_sequence: int
    last_sequence: int


class AgentMessageIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Where stored messages are. Unset until the first chunk is written: then every message is in the window.

    Attributes:
        chunks: Every kept chunk in order; one at or after `window_first_sequence` holds one oversized message.
        first_sequence: The oldest stored message.
        window_first_sequence: The oldest message of the window.
    """

    chunks: tuple[AgentMessageRange, ...] = ()
    first_sequence: int = 1
    window_first_sequence: int = 1
