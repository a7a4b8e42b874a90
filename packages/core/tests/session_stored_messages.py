"""What message storage promises without retention: every message is stored once, unchanged, and stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dex_agents.session.message_values import AgentMessageChunk
from dex_agents.session.rpc_values import AgentMessagePage
from dex_agents.session.values import AgentMessage
from dex_flow.codec import decode
from dex_flow.kernel import Changes
from dex_flow.testing import MemoryStore

__all__ = ["StoredMessages", "WatchedStore"]

#: Most chunks that one append moves out of the window; a commit may append more than once.
CHUNKS_PER_APPEND = 4


class WatchedStore(MemoryStore):
    """Shows every commit to a watcher."""

    def __init__(self, watch: Callable[[Changes, MemoryStore], None]) -> None:
        super().__init__()
        self._watch = watch

    def apply(self, changes: Changes) -> None:
        super().apply(changes)
        self._watch(changes, self)


class StoredMessages:
    """Follows window and chunks through their writes; knows nothing of the index.

    Args:
        window_size: Most messages in the window.
        chunk_size: Most messages of a chunk.
        reached: Counts what a history met.
    """

    def __init__(self, window_size: int, chunk_size: int, reached: Counter[str]) -> None:
        self.messages: dict[int, AgentMessage] = {}
        self.last_sequence = 0
        self._window: dict[int, AgentMessage] = {}
        self._chunks: dict[int, tuple[AgentMessage, ...]] = {}
        self._window_size, self._chunk_size = window_size, chunk_size
        self._reached = reached

    def observe(self, written: dict[str, dict[str, bytes | None]]) -> list[AgentMessage]:
        """Check one commit's writes and return its new messages."""
        moved = written.get("AgentMessageChunks", {})
        for key, data in written.get("AgentMessages", {}).items():
            if data is None:
                self._window.pop(int(key), None)  # it may come and go in one commit
            else:
                self._window[int(key)] = decode(AgentMessage, data)
        for key, data in moved.items():
            assert data is not None, "a chunk was deleted without retention"
            self._reached["chunk written"] += 1
            assert int(key) not in self._chunks, "a chunk was written again"
            self._chunks[int(key)] = decode(AgentMessageChunk, data).messages
            assert 0 < len(self._chunks[int(key)]) <= self._chunk_size
        if not written.keys() & {"AgentMessages", "AgentMessageChunks"}:
            return []
        assert len(self._window) <= self._window_size or len(moved) >= CHUNKS_PER_APPEND
        stored = [*self._window.values(), *(message for chunk in self._chunks.values() for message in chunk)]
        return self._replace(sorted(stored, key=lambda message: message.sequence))

    def _replace(self, stored: list[AgentMessage]) -> list[AgentMessage]:
        assert [message.sequence for message in stored] == list(range(1, len(stored) + 1)), "one is gone or doubled"
        for message in stored[: self.last_sequence]:
            before = self.messages[message.sequence]
            assert message is before or message == before, "a stored message changed"
        new = stored[self.last_sequence :]
        self.messages.update((message.sequence, message) for message in stored)
        self.last_sequence = len(stored)
        return new

    def check_page(self, page: AgentMessagePage, before: int | None, limit: int) -> None:
        """A page has the newest messages before a sequence, and says whether there are earlier ones."""
        older = [self.messages[key] for key in sorted(self.messages) if before is None or key < before]
        shown = older[-min(max(limit, 1), 200) :]
        assert list(page.messages) == shown
        has_earlier = bool(shown) and shown[0].sequence > 1
        assert page.next_before_sequence == (shown[0].sequence if has_earlier else None)
        assert page.deleted_before_sequence is None
