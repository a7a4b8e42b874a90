"""One Flow execution's rows in memory: a `StateReader` for pure tests of Flows on the kernel."""

from __future__ import annotations

import bisect

from dex_flow.kernel import Changes, HistoryRow, StoredRequest

__all__ = ["MemoryStore"]


class MemoryStore:
    """Reads stored rows and applies `Changes`, exactly as an engine does, without I/O."""

    def __init__(self) -> None:
        self.header_data: bytes | None = None
        self.next_due: int | None = None
        self.has_ready = False
        self.attributes: dict[tuple[str, str], bytes] = {}
        self.channels: dict[tuple[str, str], dict[int, bytes]] = {}
        self.bodies: dict[int, bytes] = {}
        self.requests: dict[str, StoredRequest] = {}
        self.events: dict[str, list[bytes]] = {}
        self.history: list[HistoryRow] = []

    def header(self) -> bytes | None:
        """See `StateReader`."""
        return self.header_data

    def attribute(self, name: str, key: str) -> bytes | None:
        """See `StateReader`."""
        return self.attributes.get((name, key))

    def attribute_range(
        self, name: str, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, bytes]]:
        """See `StateReader`."""
        keys = sorted(key for own_name, key in self.attributes if own_name == name)
        start = bisect.bisect_left(keys, at_least)
        end = len(keys) if below is None else bisect.bisect_left(keys, below)
        chosen = keys[start:end]
        if newest_first:
            chosen.reverse()
        return [(key, self.attributes[name, key]) for key in (chosen if limit is None else chosen[:limit])]

    def messages(self, channel: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        """See `StateReader`."""
        rows = sorted(self.channels.get((channel, key), {}).items())
        return rows if limit is None else rows[:limit]

    def message(self, channel: str, key: str, message_id: int) -> bytes | None:
        """See `StateReader`."""
        return self.channels.get((channel, key), {}).get(message_id)

    def message_count(self, channel: str, key: str) -> int:
        """See `StateReader`."""
        return len(self.channels.get((channel, key), {}))

    def step_body(self, step_execution_id: int) -> bytes | None:
        """See `StateReader`."""
        return self.bodies.get(step_execution_id)

    def stored_request(self, request_id: str) -> StoredRequest | None:
        """See `StateReader`."""
        return self.requests.get(request_id)

    def oldest_requests(self, limit: int) -> list[StoredRequest]:
        """See `StateReader`."""
        return sorted(self.requests.values(), key=lambda request: request.number)[:limit]

    def apply(self, changes: Changes) -> None:
        """Store what one command changed."""
        self.header_data = changes.header
        self.next_due = changes.next_due
        self.has_ready = changes.has_ready
        for slot, data in changes.attributes.items():
            if data is None:
                self.attributes.pop(slot, None)
            else:
                self.attributes[slot] = data
        for channel, key, message_id in changes.consumed:
            rows = self.channels[channel, key]
            del rows[message_id]
            if not rows:
                del self.channels[channel, key]
        for channel, key, message_id, data in changes.published:
            self.channels.setdefault((channel, key), {})[message_id] = data
        for step_id, data in changes.step_bodies.items():
            if data is None:
                self.bodies.pop(step_id, None)
            else:
                self.bodies[step_id] = data
        for stream, events in changes.events.items():
            self.events.setdefault(stream, []).extend(events)
        self.history.extend(changes.history)
        if changes.forgotten_history:
            self.history = [row for row in self.history if row.number not in changes.forgotten_history]
        for request in changes.requests:
            self.requests[request.request_id] = request
        for request_id in changes.forgotten_requests:
            self.requests.pop(request_id, None)
