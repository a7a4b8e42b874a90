"""What the writer thread knows of executions, and what it still has to write, for one database of this process.

Rows read or written once are not read again while nobody else commits: SQLite's `data_version` says so at the start of
a transaction. After a foreign commit a row is read again before it is used, and what is known of the version it names
stays valid, because every change raises the version in its own transaction.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from dex_flow.embedded.flow_store import FlowRow, SqliteStateReader, find_flow
from dex_flow.embedded.pending_rows import PendingRows
from dex_flow.kernel import KnownState

__all__ = ["HotFlow", "WriterState", "WriterStateReader"]

_MOST_FLOWS = 1_024
_MOST_BYTES = 64 << 20


class HotFlow:
    """One execution that was used recently.

    Attributes:
        row: Its row as the current transaction sees it.
        known: What is known of the row's version, or None.
        size: Encoded bytes of `known` when it was put here.
        author: Whose definition decoded `known`; of no use to others.
        positions: Next positions of its streams, by stream key.
    """

    __slots__ = ("author", "generation", "known", "positions", "row", "size")

    def __init__(self, row: FlowRow, generation: int) -> None:
        self.row = row
        self.generation = generation
        self.known: KnownState | None = None
        self.size = 0
        self.author: object = None
        self.positions: dict[int, int] = {}


class WriterState:
    """Used on the writer thread alone.

    Attributes:
        pending: Rows to write before the transaction commits.
    """

    def __init__(self) -> None:
        self.pending = PendingRows()
        self._flows: dict[str, HotFlow] = {}
        self._data_version = -1
        self._generation = 0
        self._bytes = 0
        self._is_full = False

    def forget_soon(self) -> None:
        """What others added to what is known takes too much memory; from any thread."""
        self._is_full = True

    # For the group writer

    @property
    def written(self) -> int:
        """Rows that requests wrote here so far."""
        return self.pending.written

    def begin(self, connection: sqlite3.Connection) -> None:
        """A transaction has begun."""
        ((data_version,),) = connection.execute("PRAGMA data_version").fetchall()
        if data_version != self._data_version:
            self._data_version = data_version
            self._generation += 1
        if self._is_full or len(self._flows) > _MOST_FLOWS or self._bytes > _MOST_BYTES:
            self._is_full = False
            self._flows.clear()
            self._bytes = 0

    def flush(self, connection: sqlite3.Connection) -> None:
        """The transaction is about to commit, or to be used by code that does not write through `pending`."""
        self.pending.flush(connection)

    def discard(self) -> None:
        """The transaction was undone."""
        self.pending.discard()
        self._flows.clear()
        self._bytes = 0

    # For commands

    def find(self, connection: sqlite3.Connection, flow_id: str) -> HotFlow | None:
        """The execution as the current transaction sees it."""
        hot = self._flows.get(flow_id)
        if hot is not None and hot.generation == self._generation:
            return hot
        row = find_flow(connection, flow_id)
        if row is None:
            return None
        if hot is None or hot.row.version != row.version:
            self._bytes -= 0 if hot is None else hot.size
            hot = self._flows[flow_id] = HotFlow(row, self._generation)
        else:
            hot.row = row
            hot.generation = self._generation
            # Live events do not raise the version.
            hot.positions.clear()
        return hot

    def put(self, flow_id: str, row: FlowRow, known: KnownState | None, author: object) -> HotFlow:
        """A command left this row; it is written already, or pending."""
        hot = self._flows.get(flow_id)
        if hot is None:
            hot = self._flows[flow_id] = HotFlow(row, self._generation)
        size = 0 if known is None else known.size
        self._bytes += size - hot.size
        hot.row, hot.known, hot.size, hot.author = row, known, size, author
        return hot


class WriterStateReader(SqliteStateReader):
    """Stored state as the current transaction sees it, pending rows included."""

    __slots__ = ("_state",)

    def __init__(self, connection: sqlite3.Connection, row: FlowRow | None, state: WriterState) -> None:
        super().__init__(connection, row)
        self._state = state

    def _execute(self, statement: str, parameters: Any) -> sqlite3.Cursor:
        if self._state.pending.touches(self._key):
            self._state.pending.flush(self._connection)
        return self._connection.execute(statement, parameters)
