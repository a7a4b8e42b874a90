"""Rows of Flow executions: a `StateReader` over a connection, and the row of a new one."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

from msgspec import Raw

from dex_flow.flow import Flow
from dex_flow.kernel import Changes, StoredRequest

__all__ = ["FlowRow", "SqliteStateReader", "find_flow", "insert_flow"]


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

    __slots__ = ("_connection", "_key", "_row")

    def __init__(self, connection: sqlite3.Connection, row: FlowRow | None) -> None:
        self._connection = connection
        self._row = row
        self._key = -1 if row is None else row.key

    def _execute(self, statement: str, parameters: Any) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)

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


def insert_flow(
    connection: sqlite3.Connection,
    flow: Flow,
    flow_id: str,
    changes: Changes,
    now: int,
    owner: int | None,
    epoch: int,
) -> int:
    """Write the row of a new execution and return its key."""
    cursor = connection.execute(
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
    return int(cursor.lastrowid or 0)
