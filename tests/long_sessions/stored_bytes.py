"""What a session's file holds, and what every write adds to it: exact numbers, whatever the machine does meanwhile.

Triggers of the measured file count every row that any connection writes, also rows that are deleted later.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

__all__ = ["StoredBytes", "Written"]

# The column of each table that grows with what a session stores.
_BODIES = {
    "flow": "header",
    "attribute": "value",
    "message": "value",
    "step_body": "body",
    "history": "step_type",
    "request": "output",
    "event_batch": "body",
}


class Written(NamedTuple):
    """Rows and bytes that were inserted or replaced so far."""

    rows: int
    size: int

    def since(self, earlier: Written) -> Written:
        """What came after an earlier count."""
        return Written(self.rows - earlier.rows, self.size - earlier.size)


class StoredBytes:
    """A second connection to the file of an open engine, which counts what is written from now on.

    Args:
        path: The file; an engine has made its tables.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30.0)

    def __enter__(self) -> Self:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("CREATE TABLE measured (name TEXT PRIMARY KEY, written_rows INTEGER NOT NULL, size INTEGER NOT NULL)")
        for table, column in _BODIES.items():
            execute("INSERT INTO measured VALUES (?, 0, 0)", (table,))
            for event in ("INSERT", "UPDATE"):
                execute(
                    f"CREATE TRIGGER measured_{table}_{event} AFTER {event} ON {table} BEGIN"
                    f" UPDATE measured SET written_rows = written_rows + 1, size = size + length(NEW.{column})"
                    f" WHERE name = '{table}'; END"
                )
        execute("COMMIT")
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def written(self) -> Written:
        """Everything that was written since the start."""
        tables = self.written_to_tables().values()
        return Written(sum(each.rows for each in tables), sum(each.size for each in tables))

    def written_to_tables(self) -> dict[str, Written]:
        """The same by table."""
        rows = self._connection.execute("SELECT name, written_rows, size FROM measured")
        return {name: Written(written_rows, size) for name, written_rows, size in rows}

    def state(self) -> Written:
        """Rows and bytes of all attributes that are stored now; the file holds one session."""
        rows, size = self._connection.execute("SELECT count(*), total(length(value)) FROM attribute").fetchone()
        return Written(rows, int(size))

    def attribute_size(self, name: str) -> int:
        """Bytes of one attribute, 0 when it is not set."""
        found = self._connection.execute("SELECT length(value) FROM attribute WHERE name = ?", (name,)).fetchone()
        return 0 if found is None else int(found[0])
