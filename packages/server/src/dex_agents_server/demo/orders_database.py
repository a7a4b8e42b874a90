"""The shop's own database: orders, payments back to customers, and a ledger of every tool run.

The ledger is how the demo counts for real, across killed processes: a tool writes one row before its effect and fills
in its end after the effect, each in a transaction of its own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Order", "OrdersDatabase", "UnknownOrderError"]

_SCHEMA = """
CREATE TABLE "order" (order_id INTEGER PRIMARY KEY, item TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE refund (refund_id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE tool_run (
    run_id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, tool_name TEXT NOT NULL, order_id INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL, pid INTEGER NOT NULL, effect_done INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "order" VALUES (7, 'walking boots', 12900), (12, 'rain jacket', 8950);
"""


class UnknownOrderError(Exception):
    """There is no such order."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order.

    Attributes:
        order_id: Its number.
        item: What was bought.
        cents: The price, in cents.
        refunds: How many times it was paid back.
    """

    order_id: int
    item: str
    cents: int
    refunds: int

    @property
    def price(self) -> str:
        """The price for people."""
        return f"${self.cents // 100}.{self.cents % 100:02}"


class OrdersDatabase:
    """Opens the file anew for every call, so that any thread of any process can use it.

    Args:
        path: The file, made by `create`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def create(cls, path: Path) -> OrdersDatabase:
        """Make the file with the orders of the story."""
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(_SCHEMA)
        return cls(path)

    def find_order(self, order_id: int) -> Order:
        """Read one order.

        Raises:
            UnknownOrderError: There is no such order.
        """
        with self._transaction() as connection:
            row = connection.execute(
                'SELECT order_id, item, cents, (SELECT COUNT(*) FROM refund WHERE order_id = ?1) FROM "order"'
                " WHERE order_id = ?1",
                (order_id,),
            ).fetchone()
        if row is None:
            raise UnknownOrderError(f"there is no order {order_id}")
        return Order(*row)

    def refund_order(self, order_id: int) -> None:
        """Pay the order back. Called twice, it pays twice: nothing here protects the shop."""
        with self._transaction() as connection:
            connection.execute(
                'INSERT INTO refund (order_id, cents) SELECT order_id, cents FROM "order" WHERE order_id = ?',
                (order_id,),
            )

    def record_run_started(self, session_id: str, tool_name: str, order_id: int, idempotency_key: str) -> int:
        """Note that a tool began, before its effect; returns the run's number."""
        with self._transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO tool_run (session_id, tool_name, order_id, idempotency_key, pid) VALUES (?, ?, ?, ?, ?)",
                (session_id, tool_name, order_id, idempotency_key, os.getpid()),
            )
            return int(cursor.lastrowid or 0)

    def record_effect_done(self, run_id: int) -> None:
        """Note that the effect of a run has happened."""
        with self._transaction() as connection:
            connection.execute("UPDATE tool_run SET effect_done = 1 WHERE run_id = ?", (run_id,))

    def count_tool_runs(self, session_id: str) -> dict[str, int]:
        """How often each tool began in a session, by tool name, in the order of first runs."""
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT tool_name, COUNT(*) FROM tool_run WHERE session_id = ? GROUP BY tool_name ORDER BY MIN(run_id)",
                (session_id,),
            ).fetchall()
        return dict(rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as connection, connection:
            yield connection
