"""Stream events: appended in batches of one row, read by position, trimmed oldest first by the Flow type's budget."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from dex_flow.declarations import Stream

__all__ = ["append_events", "read_events"]

_decode_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
_TRIM_BATCHES = 64


def append_events(
    connection: sqlite3.Connection, flow_key: int, flow_type: str, stream: Stream[Any], events: Sequence[bytes]
) -> None:
    """Append encoded events of one execution, and trim the Flow type's oldest ones past the stream's capacity."""
    execute = connection.execute
    body = b"[" + b",".join(events) + b"]"
    row = execute(
        "UPDATE stream SET total_bytes = total_bytes + ? WHERE flow_type = ? AND name = ?"
        " RETURNING key, total_bytes, oldest_batch",
        (len(body), flow_type, stream.name),
    ).fetchall()
    if not row:
        row = execute(
            "INSERT INTO stream (flow_type, name, total_bytes, oldest_batch) VALUES (?, ?, ?, 0)"
            " RETURNING key, total_bytes, oldest_batch",
            (flow_type, stream.name, len(body)),
        ).fetchall()
    key, total_bytes, oldest_batch = row[0]
    ((next_position,),) = execute(
        "INSERT INTO stream_position VALUES (?, ?, ?) ON CONFLICT (flow, stream)"
        " DO UPDATE SET next_position = next_position + ? RETURNING next_position",
        (flow_key, key, 1 + len(events), len(events)),
    ).fetchall()
    execute(
        "INSERT INTO event_batch (stream, flow, first_position, event_count, body) VALUES (?, ?, ?, ?, ?)",
        (key, flow_key, next_position - len(events), len(events), body),
    )
    if total_bytes > stream.capacity_bytes:
        _trim(connection, key, total_bytes, oldest_batch, stream.capacity_bytes)


def _trim(connection: sqlite3.Connection, key: int, total_bytes: int, oldest_batch: int, capacity: int) -> None:
    """Delete oldest batches until the stream fits; `oldest_batch` spares a search over what is gone."""
    while total_bytes > capacity:
        rows = connection.execute(
            "SELECT id, length(body) FROM event_batch WHERE id >= ? AND stream = ? ORDER BY id LIMIT ?",
            (oldest_batch, key, _TRIM_BATCHES),
        ).fetchall()
        if not rows:
            total_bytes = 0
            break
        for batch_id, size in rows:
            if total_bytes <= capacity:
                break
            connection.execute("DELETE FROM event_batch WHERE id = ?", (batch_id,))
            total_bytes -= size
            oldest_batch = batch_id + 1
    connection.execute(
        "UPDATE stream SET total_bytes = ?, oldest_batch = ? WHERE key = ?", (total_bytes, oldest_batch, key)
    )


def read_events(
    connection: sqlite3.Connection, flow_key: int, flow_type: str, stream: str, after: int, limit: int
) -> list[tuple[int, bytes]]:
    """Retained events with a position above `after`, as (position, encoded event)."""
    found = connection.execute(
        "SELECT key FROM stream WHERE flow_type = ? AND name = ?", (flow_type, stream)
    ).fetchone()
    if found is None or limit < 1:
        return []
    events: list[tuple[int, bytes]] = []
    # The batch that holds `after + 1` may begin before it.
    start = connection.execute(
        "SELECT MAX(first_position) FROM event_batch WHERE flow = ? AND stream = ? AND first_position <= ?",
        (flow_key, found[0], after + 1),
    ).fetchone()[0]
    rows = connection.execute(
        "SELECT first_position, body FROM event_batch WHERE flow = ? AND stream = ? AND first_position >= ?"
        " ORDER BY first_position",
        (flow_key, found[0], after + 1 if start is None else start),
    )
    for first_position, body in rows:
        for position, event in enumerate(_decode_batch(body), first_position):
            if position > after:
                events.append((position, bytes(event)))
                if len(events) == limit:
                    rows.close()
                    return events
    return events
