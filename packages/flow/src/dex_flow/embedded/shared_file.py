"""One writer per process and database file, however many engines use it.

POSIX locks neither exclude the threads of a process nor survive the close of another descriptor of their file, so
all engines of a process must share the writer, its connection and its gate.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from dex_flow.embedded.database_file import (
    Durability,
    create_storage_error,
    locate_database,
    open_reader_connection,
    open_writer_connection,
)
from dex_flow.embedded.gate import CommitGate
from dex_flow.embedded.group_writer import GroupWriter
from dex_flow.embedded.writer_state import WriterState
from dex_flow.errors import StorageError

__all__ = ["SharedDatabase", "acquire"]

logger = logging.getLogger("dex_flow.embedded")

_FileKey = tuple[int, int]

_lock = threading.Lock()
_open_databases: dict[_FileKey, SharedDatabase] = {}
# What the parent process had open. Kept for ever: closing it here would disturb the parent's use of the file.
_databases_of_parent: dict[_FileKey, SharedDatabase] = {}


class SharedDatabase:
    """An open database of this process; every `acquire` is matched by one `release`.

    Attributes:
        path: The real path of the file.
        workers_directory: Where the workers of this database hold their lock files.
        writer: The one writer of this process.
        writer_state: For what runs on the writer thread.
        on_close: Called after the writer has stopped, by the last `release`.
    """

    def __init__(
        self, path: Path, file_key: _FileKey, gate: CommitGate, writer: GroupWriter, writer_state: WriterState
    ) -> None:
        self.path = path
        self.workers_directory = path.with_name(f"{path.name}.workers")
        self.writer = writer
        self.writer_state = writer_state
        self.on_close: list[Callable[[], None]] = []
        self._file_key = file_key
        self._gate = gate
        self._users = 0
        self._process = os.getpid()

    def open_reader(self) -> sqlite3.Connection:
        """A read-only connection, for one thread at a time, to be closed before `release`."""
        return open_reader_connection(self.path)

    def release(self) -> None:
        """Give one use back; the last one commits what was submitted and closes the file. Blocks until then."""
        if os.getpid() != self._process:
            return
        # Under the lock to the end: an engine that opens the file meanwhile must not meet a second gate descriptor,
        # because closing the first would free the second's lock.
        with _lock:
            if self._users == 0:
                raise RuntimeError(f"{self.path} was released more often than acquired")
            self._users -= 1
            if self._users == 0:
                self.writer.close()
                for close in self.on_close:
                    close()
                self._gate.close()
                del _open_databases[self._file_key]

    def _add_user(self, durability: Durability) -> None:
        self._users += 1
        if durability != self.writer.durability:
            self.writer.durability = "power"
            logger.warning("two engines of this process use %s with different durability; both get 'power'", self.path)


def acquire(
    path: str | os.PathLike[str],
    durability: Durability,
    initialize: Callable[[sqlite3.Connection], None] | None = None,
) -> SharedDatabase:
    """Open a database for this process, or join the engines that have it open. Blocks while others commit.

    Args:
        path: The database file; created when missing, but not its directory.
        durability: What commits survive; the stricter one of the engines of a process holds for all.
        initialize: Creates or migrates the tables in one transaction that excludes other processes; run when this
            process opens the file.

    Raises:
        StorageError: The file cannot be opened or created, belongs to another application, or was open in the process
            that this one was forked from.
    """
    with _lock:
        real_path = locate_database(path)
        status = os.stat(real_path)
        file_key = (status.st_dev, status.st_ino)
        if file_key in _databases_of_parent:
            # SQLite's state of the file was copied by the fork and is wrong here: commits would be lost.
            raise StorageError(
                f"{real_path} was open when this process was forked; open the engine after the fork only, "
                "or start the process with 'spawn'"
            )
        database = _open_databases.get(file_key)
        if database is None:
            database = _open(real_path, file_key, durability, initialize)
            _open_databases[file_key] = database
        database._add_user(durability)
        return database


def _open(
    path: Path,
    file_key: _FileKey,
    durability: Durability,
    initialize: Callable[[sqlite3.Connection], None] | None,
) -> SharedDatabase:
    try:
        gate = CommitGate(path.with_name(f"{path.name}.gate"))
    except OSError as error:
        raise create_storage_error(path, error, "cannot open its commit gate") from error
    try:
        with gate.hold():
            connection = open_writer_connection(path, durability)
            try:
                if initialize is not None:
                    _initialize(path, connection, initialize)
            except BaseException:
                connection.close()
                raise
    except BaseException:
        gate.close()
        raise
    state = WriterState()
    writer = GroupWriter(path, connection, gate, durability, state)
    return SharedDatabase(path, file_key, gate, writer, state)


def _initialize(path: Path, connection: sqlite3.Connection, initialize: Callable[[sqlite3.Connection], None]) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        initialize(connection)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise create_storage_error(path, error, "cannot create or migrate its tables") from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _keep_away_from_parents_files() -> None:
    global _lock
    _lock = threading.Lock()
    _databases_of_parent.update(_open_databases)
    _open_databases.clear()


os.register_at_fork(after_in_child=_keep_away_from_parents_files)
