"""Rows of Flow executions: a `StateReader` over a connection, and the writing of `Changes`."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from msgspec import Raw

from dex_flow.flow import Flow
from dex_flow.kernel import Changes, StoredRequest

__all__ = ["FlowRow", "SqliteStateReader", "find_flow", "store_changes"]


class FlowRow(NamedTuple):
    """One row of the flow table."""

    key: int
    flow_type: str
    fingerprint: str
    status: str
    owner: int | None
    epoch: int
    version: int
    active_steps: int
    has_ready: int
    header: bytes


def find_flow(connection: sqlite3.Connection, flow_id: str) -> FlowRow | None:
    """The execution's row."""
    try:
        row = connection.execute(
            "SELECT key, flow_type, fingerprint, status, owner, epoch, version, active_steps, has_ready, header"
            " FROM flow WHERE flow_id = ?",
            (flow_id,),
        ).fetchone()
    except UnicodeEncodeError:
        return None  # no execution can have been started under such an ID
    return None if row is None else FlowRow(*row)


class SqliteStateReader:
    """The stored state of one execution; `row` is None before it starts."""

    __slots__ = ("_execute", "_key", "_row")

    def __init__(self, connection: sqlite3.Connection, row: FlowRow | None) -> None:
        self._execute = connection.execute
        self._row = row
        self._key = -1 if row is None else row.key

    def header(self) -> bytes | None:
        """See `StateReader`."""
        return None if self._row is None else self._row.header

    def attribute(self, name: str, key: str) -> bytes | None:
        """See `StateReader`."""
        row = self._execute(
            "SELECT value FROM attribute WHERE flow = ? AND name = ? AND key = ?", (self._key, name, key)
        ).fetchone()
        return None if row is None else row[0]

    def attribute_range(
        self, name: str, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, bytes]]:
        """See `StateReader`."""
        parameters: list[object] = [self._key, name, at_least]
        query = "SELECT key, value FROM attribute WHERE flow = ? AND name = ? AND key >= ?"
        if below is not None:
            query += " AND key < ?"
            parameters.append(below)
        query += " ORDER BY key DESC" if newest_first else " ORDER BY key"
        if limit is not None:
            query += " LIMIT ?"
            parameters.append(limit)
        return self._execute(query, parameters).fetchall()

    def messages(self, channel: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        """See `StateReader`."""
        return self._execute(
            "SELECT id, value FROM message WHERE flow = ? AND channel = ? AND key = ? ORDER BY id LIMIT ?",
            (self._key, channel, key, -1 if limit is None else limit),
        ).fetchall()

    def message(self, channel: str, key: str, message_id: int) -> bytes | None:
        """See `StateReader`."""
        row = self._execute(
            "SELECT value FROM message WHERE flow = ? AND channel = ? AND key = ? AND id = ?",
            (self._key, channel, key, message_id),
        ).fetchone()
        return None if row is None else row[0]

    def message_count(self, channel: str, key: str) -> int:
        """See `StateReader`."""
        (count,) = self._execute(
            "SELECT COUNT(*) FROM message WHERE flow = ? AND channel = ? AND key = ?", (self._key, channel, key)
        ).fetchone()
        return int(count)

    def step_body(self, step_execution_id: int) -> bytes | None:
        """See `StateReader`."""
        row = self._execute(
            "SELECT body FROM step_body WHERE flow = ? AND step = ?", (self._key, step_execution_id)
        ).fetchone()
        return None if row is None else row[0]

    def stored_request(self, request_id: str) -> StoredRequest | None:
        """See `StateReader`."""
        row = self._execute(
            "SELECT request_id, number, operation, input_digest, output, recorded_at FROM request"
            " WHERE flow = ? AND request_id = ?",
            (self._key, request_id),
        ).fetchone()
        return None if row is None else _request(row)

    def oldest_requests(self, limit: int) -> list[StoredRequest]:
        """See `StateReader`."""
        rows = self._execute(
            "SELECT request_id, number, operation, input_digest, output, recorded_at FROM request"
            " WHERE flow = ? ORDER BY number LIMIT ?",
            (self._key, limit),
        ).fetchall()
        return [_request(row) for row in rows]


def _request(row: tuple[str, int, str, str, bytes, int]) -> StoredRequest:
    request_id, number, operation, digest, output, recorded_at = row
    return StoredRequest(request_id, number, operation, digest, Raw(output), recorded_at)


def store_changes(
    connection: sqlite3.Connection,
    flow: Flow,
    flow_id: str,
    row: FlowRow | None,
    changes: Changes,
    now: int,
    owner: int | None,
    epoch: int,
) -> int:
    """Write one command's changes, except its events, and return the execution's key."""
    execute = connection.execute
    if row is None:
        cursor = execute(
            "INSERT INTO flow (flow_id, flow_type, fingerprint, status, owner, epoch, version, active_steps, has_ready,"
            " next_due, updated_at, header) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
            (
                flow_id,
                flow.flow_type,
                flow.fingerprint,
                changes.status,
                owner,
                epoch,
                changes.active_steps,
                changes.has_ready,
                changes.next_due,
                now,
                changes.header,
            ),
        )
        key = int(cursor.lastrowid or 0)
    else:
        key = row.key
        execute(
            "UPDATE flow SET status = ?, owner = ?, epoch = ?, version = version + 1, active_steps = ?,"
            " has_ready = ?, next_due = ?, updated_at = ?, header = ? WHERE key = ?",
            (
                changes.status,
                owner,
                epoch,
                changes.active_steps,
                changes.has_ready,
                changes.next_due,
                now,
                changes.header,
                key,
            ),
        )
    _store_rows(connection, key, changes)
    return key


def _store_rows(connection: sqlite3.Connection, key: int, changes: Changes) -> None:
    execute = connection.execute
    for (name, instance), value in changes.attributes.items():
        if value is None:
            execute("DELETE FROM attribute WHERE flow = ? AND name = ? AND key = ?", (key, name, instance))
        else:
            execute(
                "INSERT INTO attribute (flow, name, key, value) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (flow, name, key) DO UPDATE SET value = excluded.value",
                (key, name, instance, value),
            )
    for channel, instance, message_id in changes.consumed:
        execute(
            "DELETE FROM message WHERE flow = ? AND channel = ? AND key = ? AND id = ?",
            (key, channel, instance, message_id),
        )
    for channel, instance, message_id, data in changes.published:
        execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (key, channel, instance, message_id, data))
    for step_id, body in changes.step_bodies.items():
        if body is None:
            execute("DELETE FROM step_body WHERE flow = ? AND step = ?", (key, step_id))
        else:
            execute("INSERT OR REPLACE INTO step_body VALUES (?, ?, ?)", (key, step_id, body))
    if changes.history:
        connection.executemany(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [(key, *entry) for entry in changes.history]
        )
    for request in changes.requests:
        execute(
            "INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                key,
                request.request_id,
                request.number,
                request.operation,
                request.input_digest,
                bytes(request.output),
                request.recorded_at,
            ),
        )
    for request_id in changes.forgotten_requests:
        execute("DELETE FROM request WHERE flow = ? AND request_id = ?", (key, request_id))
