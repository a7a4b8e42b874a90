"""Records the SQL that the embedded engine runs for some turns, so that raw SQLite can run exactly that again."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from dex_flow.embedded import command_submission, command_transaction, committed_reads, database_file
from dex_flow.kernel import InvokeRpc

__all__ = ["Operation", "Recording", "Statement", "record_statements", "recordable_connections"]

Statement = tuple[str, Any, bool]
"""Text, parameters, and whether they are several sets of parameters."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What one caller waits for: a commit, or a read of the model's input.

    Attributes:
        kind: `commit` or `read`.
        begins_turn: Whether it accepts the user message.
        statements: What SQLite runs.
    """

    kind: Literal["commit", "read"]
    begins_turn: bool
    statements: tuple[Statement, ...]


@dataclass(slots=True)
class Recording:
    """Operations by session, in order, and the database they apply to.

    Attributes:
        database: A copy of the file as it was before.
        operations: By session ID.
    """

    database: Path
    operations: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))

    def turns(self, session_ids: Sequence[str]) -> list[list[Operation]]:
        """The operations of some sessions, one list per turn."""
        turns: list[list[Operation]] = []
        for session_id in session_ids:
            for operation in self.operations[session_id]:
                if operation.begins_turn:
                    turns.append([])
                turns[-1].append(operation)
        return turns


class _RecordingConnection(sqlite3.Connection):
    """Notes every statement while it is asked to."""

    noted: list[Statement] | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self.noted is not None:
            self.noted.append((sql, tuple(parameters), False))
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        if self.noted is not None:
            parameters = list(parameters)
            self.noted.append((sql, parameters, True))
        return super().executemany(sql, parameters)


@contextlib.contextmanager
def recordable_connections() -> Iterator[None]:
    """Engines that are opened meanwhile can be recorded."""
    connect = functools.partial(sqlite3.connect, factory=_RecordingConnection)
    with mock.patch.object(database_file.sqlite3, "connect", connect):  # type: ignore[attr-defined]
        yield


@contextlib.contextmanager
def record_statements(recording: Recording) -> Iterator[None]:
    """Record commands and loads of model inputs of the engines of this process."""
    apply_command = command_transaction.apply_command
    read_snapshot = committed_reads.CommittedReads.read_snapshot

    def noting(connection: sqlite3.Connection, code: Callable[[], Any]) -> tuple[Any, tuple[Statement, ...]]:
        assert isinstance(connection, _RecordingConnection)
        connection.noted = []
        try:
            return code(), tuple(connection.noted)
        finally:
            connection.noted = None

    def apply(connection: sqlite3.Connection, kernel: Any, flow_id: str, now: int, command: Any, **rest: Any) -> Any:
        def code() -> Any:
            applied = apply_command(connection, kernel, flow_id, now, command, **rest)
            # The engine writes the rows of all commands of a transaction together; the floor writes those of each.
            rest["state"].flush(connection)
            return applied

        applied, statements = noting(connection, code)
        recording.operations[flow_id].append(Operation("commit", isinstance(command, InvokeRpc), statements))
        return applied

    def load(own: Any, kernel: Any, flow_id: str, claim: Any, connection: sqlite3.Connection) -> Any:
        snapshot, statements = noting(connection, lambda: read_snapshot(own, kernel, flow_id, claim, connection))
        recording.operations[flow_id].append(Operation("read", False, statements))
        return snapshot

    with (
        mock.patch.object(command_submission, "apply_command", apply),
        mock.patch.object(committed_reads.CommittedReads, "read_snapshot", load),
    ):
        yield
