"""Rows of the worker table, each beside the lock file that shows whether its worker lives.

Rows and files are made and removed inside write transactions, so under the commit gate: whoever looks for dead workers
meets none that has a row and no lock yet.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from pathlib import Path

from dex_flow.embedded.worker_liveness import WorkerLock, is_worker_alive, remove_dead_worker
from dex_flow.errors import EngineClosedError, StorageError

__all__ = ["WorkerRegistration", "delete_worker", "raise_beat", "remove_dead_workers"]

logger = logging.getLogger("dex_flow.embedded")


class WorkerRegistration:
    """Gives a new worker its row and its lock.

    Args:
        directory: Lock files of all workers.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_abandoned = False
        self._lock: WorkerLock | None = None

    def register(self, connection: sqlite3.Connection) -> int:
        """Insert a row, hold its lock and return its key; runs inside a write transaction."""
        remove_dead_workers(connection, self._directory)
        cursor = connection.execute("INSERT INTO worker (pid, beat) VALUES (?, 0)", (os.getpid(),))
        worker_key = int(cursor.lastrowid or 0)
        self._lock = WorkerLock.acquire(self._directory, worker_key)
        if self._is_abandoned:
            self.close()
            raise EngineClosedError("nobody waits for this worker any more")
        return worker_key

    def close(self) -> None:
        """Free the lock, also one that a transaction still in the queue would take."""
        self._is_abandoned = True
        if self._lock is not None:
            self._lock.close()


def remove_dead_workers(connection: sqlite3.Connection, directory: Path) -> None:
    """Delete rows and files of workers whose processes ended without doing so; runs inside a write transaction.

    Their executions stay leased to them until somebody takes those over: a worker without a file is dead.
    """
    keys = {key for (key,) in connection.execute("SELECT key FROM worker")}
    if directory.is_dir():
        keys.update(int(name) for name in os.listdir(directory) if name.isdecimal())
    for key in sorted(keys):
        try:
            if is_worker_alive(directory, key):
                continue
            remove_dead_worker(directory, key)
        except StorageError as error:
            logger.warning("worker %d is left as it is: %s", key, error)
        else:
            delete_worker(connection, key)


def delete_worker(connection: sqlite3.Connection, worker_key: int) -> None:
    """Delete one row."""
    connection.execute("DELETE FROM worker WHERE key = ?", (worker_key,))


def raise_beat(connection: sqlite3.Connection, worker_key: int) -> None:
    """The worker's heartbeat."""
    connection.execute("UPDATE worker SET beat = beat + 1 WHERE key = ?", (worker_key,))
