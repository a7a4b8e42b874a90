"""What message storage promises: every message is stored once, unchanged, and stays until retention may delete it."""

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
        retained: Messages that retention keeps; None keeps all.
        reached: Counts what a history met.

    Attributes:
        messages: Every message there was, also those that are deleted.
        first_sequence: The oldest message that is still stored.
        summarized: The last message that the summary covers.
    """

    def __init__(self, window_size: int, chunk_size: int, retained: int | None, reached: Counter[str]) -> None:
        self.messages: dict[int, AgentMessage] = {}
        self.first_sequence = 1
        self.summarized = 0
        self._retained = retained
        self.last_sequence = 0
        self._window: dict[int, AgentMessage] = {}
        self._chunks: dict[int, tuple[AgentMessage, ...]] = {}
        self._window_size, self._chunk_size = window_size, chunk_size
        self._reached = reached

    def after(self, sequence: int) -> list[AgentMessage]:
        """The stored messages after this one."""
        return [message for key, message in self.messages.items() if key > sequence and key >= self.first_sequence]

    def observe(self, written: dict[str, dict[str, bytes | None]]) -> list[AgentMessage]:
        """Check one commit's writes and return its new messages."""
        moved = written.get("AgentMessageChunks", {})
        for key, data in written.get("AgentMessages", {}).items():
            if data is None:
                self._window.pop(int(key), None)  # it may come and go in one commit
            else:
                self._window[int(key)] = decode(AgentMessage, data)
        for key, data in moved.items():
            if data is None:
                self._reached["chunk deleted"] += 1
                self._chunks.pop(int(key), None)
                continue
            self._reached["chunk written"] += 1
            assert int(key) not in self._chunks, "a chunk was written again"
            self._chunks[int(key)] = decode(AgentMessageChunk, data).messages
            assert 0 < len(self._chunks[int(key)]) <= self._chunk_size
        if not written.keys() & {"AgentMessages", "AgentMessageChunks"}:
            self._check_retention()  # a summary may make messages superfluous without a new one
            return []
        has_appended = any(data is not None for data in written.get("AgentMessages", {}).values())
        has_room = len(self._window) <= self._window_size or len(moved) >= CHUNKS_PER_APPEND
        assert has_room or not has_appended
        stored = [*self._window.values(), *(message for chunk in self._chunks.values() for message in chunk)]
        return self._replace(sorted(stored, key=lambda message: message.sequence))

    def _replace(self, stored: list[AgentMessage]) -> list[AgentMessage]:
        first = stored[0].sequence
        assert [message.sequence for message in stored] == list(range(first, first + len(stored))), "one is gone"
        for message in stored:
            before = self.messages.get(message.sequence, message)
            assert message is before or message == before, "a stored message changed"
        new = [message for message in stored if message.sequence > self.last_sequence]
        self.messages.update((message.sequence, message) for message in new)
        self.last_sequence = stored[-1].sequence
        if first != self.first_sequence:
            assert self._may_delete(first - 1), f"messages before {first} were deleted too early"
            self.first_sequence = first
        self._check_retention()
        return new

    def _check_retention(self) -> None:
        oldest = self._chunks.get(self.first_sequence, ())
        assert not oldest or not self._may_delete(oldest[-1].sequence), "a chunk stays that retention does not keep"

    def _may_delete(self, through: int) -> bool:
        if self._retained is None:
            return False
        return through <= self.summarized and self.last_sequence - through >= self._retained

    def check_page(self, page: AgentMessagePage, before: int | None, limit: int) -> None:
        """A page has the newest messages before a sequence, and says whether there are earlier ones."""
        older = [message for message in self.after(0) if before is None or message.sequence < before]
        shown = older[-min(max(limit, 1), 200) :]
        assert list(page.messages) == shown
        has_earlier = bool(shown) and shown[0].sequence > self.first_sequence
        assert page.next_before_sequence == (shown[0].sequence if has_earlier else None)
        assert page.deleted_before_sequence == (self.first_sequence if self.first_sequence > 1 else None)
