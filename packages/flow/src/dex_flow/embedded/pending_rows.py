"""Rows that the commands of one transaction wrote, kept until its end and then written table by table.

Each SQL statement releases Python's interpreter lock, and getting it back beside a busy event loop costs more than the
statement. So the rows of all commands of a transaction share a few statements of many rows, and of a row that several
of them wrote only the last state is written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from dex_flow.kernel import Changes

__all__ = ["PendingRows"]

_Row = tuple[Any, ...]


_SIZES = (64, 16, 8, 4, 3, 2, 1)
# A long chain of ORs is planned as that many look-ups, up to what SQLite takes for one loop.
_DELETE_SIZES = (16, 8, 4, 3, 2, 1)


class _ManyRows:
    """One statement for many rows; `{rows}` in its text stands for them.

    Few sizes are used, so that the connection has every statement prepared after a while.
    """

    __slots__ = ("statements",)

    def __init__(self, text: str, row: str, separator: str = ", ", sizes: tuple[int, ...] = _SIZES) -> None:
        self.statements = tuple((size, text.format(rows=separator.join([row] * size))) for size in sizes)

    def run(self, connection: sqlite3.Connection, rows: Sequence[_Row]) -> None:
        """Run it for these rows."""
        done = 0
        for size, statement in self.statements:
            while len(rows) - done >= size:
                connection.execute(statement, tuple(chain.from_iterable(rows[done : done + size])))
                done += size


def _values(text: str, columns: int) -> _ManyRows:
    return _ManyRows(text, f"({', '.join('?' * columns)})")


def _deletion(table: str, *columns: str) -> _ManyRows:
    # Not `(a, b) IN (VALUES ...)`: for several rows SQLite would read the whole table.
    row = f"({' AND '.join(f'{column} = ?' for column in columns)})"
    return _ManyRows(f"DELETE FROM {table} WHERE {{rows}}", row, " OR ", _DELETE_SIZES)


_UPDATE_FLOWS = _values(
    "UPDATE flow SET status = column2, owner = column3, epoch = column4, version = column5, active_steps = column6,"
    " has_ready = column7, next_due = column8, updated_at = column9, header = column10"
    " FROM (VALUES {rows}) WHERE key = column1",
    10,
)
_PUT_ATTRIBUTES = _values(
    "INSERT INTO attribute (flow, name, key, value) VALUES {rows}"
    " ON CONFLICT (flow, name, key) DO UPDATE SET value = excluded.value",
    4,
)
_PUT_BODIES = _values("INSERT OR REPLACE INTO step_body VALUES {rows}", 3)
_ADD_MESSAGES = _values("INSERT INTO message VALUES {rows}", 5)
_ADD_HISTORY = _values("INSERT INTO history VALUES {rows}", 10)
_ADD_REQUESTS = _values("INSERT INTO request VALUES {rows}", 7)
_PUT_POSITIONS = _values(
    "INSERT INTO stream_position VALUES {rows} ON CONFLICT (flow, stream) DO UPDATE SET next_position ="
    " excluded.next_position",
    3,
)
_ADD_EVENTS = _values(
    "INSERT INTO event_batch (stream, flow, first_position, event_count, size, body) VALUES {rows}", 6
)
_DELETE_ATTRIBUTES = _deletion("attribute", "flow", "name", "key")
_DELETE_MESSAGES = _deletion("message", "flow", "channel", "key", "id")
_DELETE_BODIES = _deletion("step_body", "flow", "step")
_DELETE_HISTORY = _deletion("history", "flow", "number")
_DELETE_REQUESTS = _deletion("request", "flow", "request_id")


class PendingRows:
    """What is to be written before the transaction commits; used on the writer thread alone.

    Attributes:
        written: Rows that were added here so far; tells whether a piece of code wrote anything.
    """

    __slots__ = (
        "_attributes",
        "_bodies",
        "_events",
        "_flows",
        "_forgotten_history",
        "_forgotten_requests",
        "_history",
        "_messages",
        "_positions",
        "_requests",
        "_touched",
        "is_empty",
        "written",
    )

    def __init__(self) -> None:
        self.written = 0
        self._clear()

    def _clear(self) -> None:
        self.is_empty = True
        self._touched: set[int] = set()
        self._flows: dict[int, _Row] = {}
        self._attributes: dict[tuple[int, str, str], bytes | None] = {}
        self._bodies: dict[tuple[int, int], bytes | None] = {}
        self._messages: dict[tuple[int, str, str, int], bytes | None] = {}
        self._history: list[_Row] = []
        self._requests: list[_Row] = []
        self._forgotten_history: list[_Row] = []
        self._forgotten_requests: list[_Row] = []
        self._positions: dict[tuple[int, int], int] = {}
        # By (flow, stream): first position and encoded events.
        self._events: dict[tuple[int, int], tuple[int, list[bytes]]] = {}

    def touches(self, key: int) -> bool:
        """Whether rows of this execution are pending, so that reading them needs a `flush` first."""
        return key in self._touched

    def put_flow(self, key: int, row: _Row) -> None:
        """The new columns of an existing execution, from `status` to `header`."""
        self._note(key)
        self._flows[key] = (key, *row)

    def add_changes(self, key: int, changes: Changes) -> None:
        """One command's rows, except the execution's own and its events."""
        self._note(key)
        if changes.attributes:
            attributes = self._attributes
            for (name, instance), value in changes.attributes.items():
                attributes[key, name, instance] = value
        for channel, instance, message_id in changes.consumed:
            # Published and consumed by commands of one transaction: never written.
            if self._messages.pop((key, channel, instance, message_id), None) is None:
                self._messages[key, channel, instance, message_id] = None
        for channel, instance, message_id, data in changes.published:
            self._messages[key, channel, instance, message_id] = data
        for step_id, body in changes.step_bodies.items():
            self._bodies[key, step_id] = body
        self._history += [(key, *entry) for entry in changes.history]
        self._requests += [
            (
                key,
                request.request_id,
                request.number,
                request.operation,
                request.input_digest,
                bytes(request.output),
                request.recorded_at,
            )
            for request in changes.requests
        ]
        if changes.forgotten_history:
            self._forgotten_history += [(key, number) for number in changes.forgotten_history]
        self._forgotten_requests += [(key, request_id) for request_id in changes.forgotten_requests]

    def add_events(self, key: int, stream: int, first_position: int, events: Sequence[bytes]) -> None:
        """Encoded events that follow what was added before."""
        self._note(key)
        self._positions[key, stream] = first_position + len(events)
        waiting = self._events.get((key, stream))
        if waiting is None:
            self._events[key, stream] = (first_position, list(events))
        else:
            waiting[1].extend(events)

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write everything; after a failure the transaction has to be undone."""
        if self.is_empty:
            return
        try:
            self._write(connection)
        except BaseException:
            # The rows, also those of other requests, are gone: whoever asked for the flush has not failed alone.
            self.written += 1
            raise

    def _write(self, connection: sqlite3.Connection) -> None:
        flows, attributes, bodies, messages = self._flows, self._attributes, self._bodies, self._messages
        history, requests, forgotten = self._history, self._requests, self._forgotten_requests
        forgotten_history = self._forgotten_history
        positions, events = self._positions, self._events
        self._clear()
        if flows:
            _UPDATE_FLOWS.run(connection, list(flows.values()))
        if attributes:
            _PUT_ATTRIBUTES.run(connection, [(*slot, value) for slot, value in attributes.items() if value is not None])
            _DELETE_ATTRIBUTES.run(connection, _gone(attributes))
        if bodies:
            _PUT_BODIES.run(connection, [(*slot, body) for slot, body in bodies.items() if body is not None])
            _DELETE_BODIES.run(connection, _gone(bodies))
        if messages:
            _DELETE_MESSAGES.run(connection, _gone(messages))
            _ADD_MESSAGES.run(connection, [(*slot, data) for slot, data in messages.items() if data is not None])
        if history:
            _ADD_HISTORY.run(connection, history)
        if forgotten_history:
            _DELETE_HISTORY.run(connection, forgotten_history)
        if requests:
            _ADD_REQUESTS.run(connection, requests)
        if forgotten:
            _DELETE_REQUESTS.run(connection, forgotten)
        if positions:
            _PUT_POSITIONS.run(connection, [(*slot, position) for slot, position in positions.items()])
            rows: list[_Row] = []
            for (key, stream), (first_position, batch) in events.items():
                body = b"[" + b",".join(batch) + b"]"
                rows.append((stream, key, first_position, len(batch), len(body), body))
            _ADD_EVENTS.run(connection, rows)

    def discard(self) -> None:
        """Forget everything: the transaction was undone."""
        self._clear()

    def _note(self, key: int) -> None:
        self.is_empty = False
        self._touched.add(key)
        self.written += 1


def _gone(rows: dict[Any, Any]) -> list[_Row]:
    return [slot for slot, value in rows.items() if value is None]
