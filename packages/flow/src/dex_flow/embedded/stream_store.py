"""Stream events: appended in batches of one row, read by position, trimmed oldest first by the Flow type's budget."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dex_flow.declarations import Stream
from dex_flow.embedded.writer_state import HotFlow, WriterState
from dex_flow.flow import Flow

__all__ = ["StreamStore", "read_events"]

_decode_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
_TRIM_BATCHES = 64
_TRIMS_PER_CAPACITY = 16


class StreamStore:
    """Appends events; one per engine, used on the writer thread.

    Trimming looks at a whole stream, so it happens once per sixteenth of the capacity that this engine appended; each
    of several processes may keep that much more.
    """

    def __init__(self) -> None:
        self._appended: dict[int, int] = {}
        self._keys: dict[tuple[str, str], int] = {}

    def prepare(self, connection: sqlite3.Connection, flows: Iterable[Flow]) -> dict[tuple[str, str], int]:
        """Keys of all streams of these Flows; pass them to `remember` once they are committed."""
        return {
            (flow.flow_type, name): _stream_key(connection, flow.flow_type, name)
            for flow in flows
            for name in flow.streams
        }

    def remember(self, keys: dict[tuple[str, str], int]) -> None:
        """Spare the look-up of these streams from now on."""
        self._keys.update(keys)

    def append(
        self,
        connection: sqlite3.Connection,
        state: WriterState,
        hot: HotFlow,
        stream: Stream[Any],
        events: Sequence[bytes],
    ) -> None:
        """Append encoded events of one execution."""
        row = hot.row
        key = self._keys.get((row.flow_type, stream.name)) or _stream_key(connection, row.flow_type, stream.name)
        position = hot.positions.get(key)
        if position is None:
            position = _next_position(connection, row.key, key)
        hot.positions[key] = position + len(events)
        state.pending.add_events(row.key, key, position, events)
        appended = self._appended.get(key, 0) + sum(map(len, events)) + len(events)
        if appended * _TRIMS_PER_CAPACITY >= stream.capacity_bytes:
            state.pending.flush(connection)
            _trim(connection, key, stream.capacity_bytes)
            appended = 0
        self._appended[key] = appended


def _next_position(connection: sqlite3.Connection, flow_key: int, stream_key: int) -> int:
    rows = connection.execute(
        "SELECT next_position FROM stream_position WHERE flow = ? AND stream = ?", (flow_key, stream_key)
    ).fetchall()
    return int(rows[0][0]) if rows else 1


def _stream_key(connection: sqlite3.Connection, flow_type: str, name: str) -> int:
    found = _find_stream(connection, flow_type, name)
    if found is None:
        connection.execute("INSERT INTO stream (flow_type, name) VALUES (?, ?)", (flow_type, name))
        found = _find_stream(connection, flow_type, name)
        assert found is not None
    return found


def _find_stream(connection: sqlite3.Connection, flow_type: str, name: str) -> int | None:
    row = connection.execute("SELECT key FROM stream WHERE flow_type = ? AND name = ?", (flow_type, name)).fetchone()
    return None if row is None else int(row[0])


def _trim(connection: sqlite3.Connection, key: int, capacity: int) -> None:
    """Delete oldest batches until the stream fits."""
    (total,) = connection.execute("SELECT TOTAL(size) FROM event_batch WHERE stream = ?", (key,)).fetchone()
    while total > capacity:
        rows = connection.execute(
            "SELECT id, size FROM event_batch WHERE stream = ? ORDER BY id LIMIT ?", (key, _TRIM_BATCHES)
        ).fetchall()
        for batch_id, size in rows:
            if total <= capacity:
                break
            connection.execute("DELETE FROM event_batch WHERE id = ?", (batch_id,))
            total -= size


def read_events(
    connection: sqlite3.Connection, flow_key: int, flow_type: str, stream: str, after: int, limit: int
) -> list[tuple[int, bytes]]:
    """Retained events with a position above `after`, as (position, encoded event)."""
    key = _find_stream(connection, flow_type, stream)
    if key is None or limit < 1:
        return []
    events: list[tuple[int, bytes]] = []
    # The batch that holds `after + 1` may begin before it.
    (start,) = connection.execute(
        "SELECT MAX(first_position) FROM event_batch WHERE flow = ? AND stream = ? AND first_position <= ?",
        (flow_key, key, after + 1),
    ).fetchone()
    rows = connection.execute(
        "SELECT first_position, body FROM event_batch WHERE flow = ? AND stream = ? AND first_position >= ?"
        " ORDER BY first_position",
        (flow_key, key, after + 1 if start is None else start),
    )
    for first_position, body in rows:
        for position, event in enumerate(_decode_batch(body), first_position):
            if position > after:
                events.append((position, bytes(event)))
                if len(events) == limit:
                    rows.close()
                    return events
    return events
