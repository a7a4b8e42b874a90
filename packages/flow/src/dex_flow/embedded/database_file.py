"""Opening the database file: connections with the right settings, and SQLite's errors in plain words."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dex_flow.errors import StorageError

__all__ = [
    "APPLICATION_ID",
    "Durability",
    "create_storage_error",
    "is_storage_failure",
    "locate_database",
    "open_reader_connection",
    "open_writer_connection",
]

Durability = Literal["power", "process"]
"""What a commit survives: `power` a power cut (every commit is flushed to disk), `process` a killed process."""

APPLICATION_ID = 0x44455846
"""Marks our files in SQLite's header ("DEXF"), so that another program's database is never written to."""

_BUSY_TIMEOUT_MILLISECONDS = 5_000
_PAGE_SIZE = 4_096
_JOURNAL_SIZE_LIMIT = 64 * 1024 * 1024
_CACHED_STATEMENTS = 512

_HINTS = {
    sqlite3.SQLITE_BUSY: "another program keeps the file locked; close it there",
    sqlite3.SQLITE_LOCKED: "another program keeps the file locked; close it there",
    sqlite3.SQLITE_CANTOPEN: "check that the file and its directory exist and may be written",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for this user",
    sqlite3.SQLITE_PERM: "make the file and its directory writable for this user",
    sqlite3.SQLITE_FULL: "free disk space and try again",
    sqlite3.SQLITE_IOERR: "check the disk and the free space",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database; choose another path",
    sqlite3.SQLITE_PROTOCOL: "the file system does not support SQLite's locks; use a local disk",
    sqlite3.SQLITE_NOMEM: "the process has run out of memory",
}


def locate_database(path: str | os.PathLike[str]) -> Path:
    """The real path of a database file, created empty when it is missing.

    Raises:
        StorageError: The path names no file that could exist.
    """
    text = os.fspath(path)
    if text in {"", ":memory:"}:
        raise StorageError(f"{text!r} is no file; pass the path of a database file, which may not exist yet")
    real_path = Path(os.path.realpath(text))
    if not real_path.parent.is_dir():
        raise StorageError(f"cannot open {real_path}: the directory {real_path.parent} does not exist; create it first")
    if real_path.is_dir():
        raise StorageError(f"cannot open {real_path}: it is a directory; pass the path of a database file in it")
    if not real_path.exists():
        try:
            # Only a file that is new to this process may be closed: a close drops SQLite's locks on the same file.
            os.close(os.open(real_path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            pass
        except OSError as error:
            raise StorageError(f"cannot create {real_path}: {error.strerror}; choose a writable directory") from error
    return real_path


def open_writer_connection(path: Path, durability: Durability) -> sqlite3.Connection:
    """The connection of the process's writer; call it inside the commit gate, because it may create the database.

    Raises:
        StorageError: SQLite refuses the file, or it belongs to another application.
    """
    connection = _open(path)
    try:
        _refuse_foreign_file(connection, path)
        if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            # These two take effect only before the first page is written; the application ID writes it.
            _execute_all(connection, (f"PRAGMA page_size = {_PAGE_SIZE}", "PRAGMA auto_vacuum = INCREMENTAL"))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StorageError(f"cannot use {path}: its file system does not support WAL mode; use a local disk")
        _execute_all(
            connection,
            (
                f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}",
                "PRAGMA wal_autocheckpoint = 0",
                f"PRAGMA journal_size_limit = {_JOURNAL_SIZE_LIMIT}",
                "PRAGMA temp_store = MEMORY",
                "PRAGMA foreign_keys = ON",
                *(("PRAGMA fullfsync = ON", "PRAGMA checkpoint_fullfsync = ON") if sys.platform == "darwin" else ()),
            ),
        )
    except sqlite3.Error as error:
        connection.close()
        raise create_storage_error(path, error, "cannot open it") from error
    except StorageError:
        connection.close()
        raise
    return connection


def open_reader_connection(path: Path) -> sqlite3.Connection:
    """A connection that can only read, for any one thread at a time; the writer must have opened the file before.

    Raises:
        StorageError: SQLite refuses the file, or it belongs to another application.
    """
    connection = _open(path)
    try:
        _refuse_foreign_file(connection, path)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise create_storage_error(path, error, "cannot open it") from error
    except StorageError:
        connection.close()
        raise
    return connection


def is_storage_failure(error: BaseException) -> bool:
    """Whether the storage failed, as opposed to a wrong statement or a violated constraint."""
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return code is not None and code & 0xFF in _HINTS


def create_storage_error(path: str | os.PathLike[str], error: BaseException, what: str) -> StorageError:
    """A `StorageError` that says what failed, why, and what to do.

    Args:
        path: The database file.
        error: The error of SQLite or of the operating system.
        what: What could not be done, as in "cannot commit".
    """
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", None)
    hint = None if code is None else _HINTS.get(code & 0xFF)
    message = f"database {os.fspath(path)}: {what}: {error}"
    if name is not None:
        message += f" ({name})"
    if hint is not None:
        message += f"; {hint}"
    return StorageError(message)


def _open(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_TIMEOUT_MILLISECONDS / 1_000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
    except sqlite3.Error as error:
        raise create_storage_error(path, error, "cannot open it") from error
    connection.execute("PRAGMA mmap_size = 0")
    return connection


def _refuse_foreign_file(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id == APPLICATION_ID:
        return
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application_id != 0 or objects != 0:
        raise StorageError(
            f"{path} is the SQLite database of another application (application ID {application_id:#x}, "
            f"{objects} tables and indexes); choose another path"
        )


def _execute_all(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    for statement in statements:
        connection.execute(statement)
