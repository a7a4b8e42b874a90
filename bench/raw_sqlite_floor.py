"""The floor: as many commits and as many stored bytes per turn as ours, on raw SQLite and nothing else.

The file has the settings of the embedded engine. One writer thread commits together whatever waits, the caller awaits
each commit of its turn, and every commit rewrites the session's row and adds records. There is no gate between
processes, no lease, no wake-up, no checkpoint, no read and no agent: nothing durable can be much cheaper in Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.measurements import Round, run_round

__all__ = ["FloorWorkload", "measure_stored_bytes", "run_floor_round"]

_SCHEMA = (
    "CREATE TABLE session (key INTEGER PRIMARY KEY, version INTEGER NOT NULL, status TEXT NOT NULL)",
    "CREATE TABLE record (key INTEGER PRIMARY KEY, session INTEGER NOT NULL, body BLOB NOT NULL)",
)
_MAX_BATCH = 256  # as many as the engine joins
# Four records of this size fill a page; larger ones would leave much of it empty and write more than was asked for.
_RECORD_BYTES = 990
_RECORD_OVERHEAD_BYTES = 12

_Records = tuple[bytes, ...]
_Commit = tuple[int, _Records, "asyncio.Future[None]"]


class FloorWorkload:
    """What one turn of the floor writes.

    Args:
        commits_per_turn: Commits that the caller awaits one after the other.
        bytes_per_turn: Bytes that all of them add to the database file.
    """

    def __init__(self, commits_per_turn: int, bytes_per_turn: int) -> None:
        self.commits: tuple[_Records, ...] = (_records(bytes_per_turn // commits_per_turn),) * commits_per_turn


def _records(stored_bytes: int) -> _Records:
    sizes = []
    while stored_bytes > _RECORD_OVERHEAD_BYTES:
        size = min(stored_bytes - _RECORD_OVERHEAD_BYTES, _RECORD_BYTES)
        sizes.append(size)
        stored_bytes -= size + _RECORD_OVERHEAD_BYTES
    return tuple(b"." * size for size in sizes)


class _FloorDatabase:
    """The writer thread of a database file that holds `sessions` sessions."""

    def __init__(self, path: Path, sessions: int, max_batch: int) -> None:
        self._max_batch = max_batch
        self._loop = asyncio.get_running_loop()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
        for pragma in ("page_size = 4096", "journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute("BEGIN")
        for statement in _SCHEMA:
            self._connection.execute(statement)
        self._connection.executemany("INSERT INTO session VALUES (?, 0, 'idle')", [(key,) for key in range(sessions)])
        self._connection.execute("COMMIT")
        self._queue: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="floor-writer", daemon=True)
        self._thread.start()

    def commit(self, session: int, records: _Records) -> asyncio.Future[None]:
        """Submit one commit; await what it returns."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((session, records, future))
        return future

    def close(self) -> None:
        """Stop the thread and copy the log into the file; blocks."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            is_over = False
            for _ in range(min(self._queue.qsize(), self._max_batch - 1)):
                following = self._queue.get_nowait()
                if following is None:
                    is_over = True
                    break
                batch.append(following)
            error = self._transact(batch)
            self._loop.call_soon_threadsafe(_settle, batch, error)
            if is_over:
                return

    def _transact(self, batch: list[_Commit]) -> sqlite3.Error | None:
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            for session, records, _ in batch:
                execute("UPDATE session SET version = version + 1, status = 'running' WHERE key = ?", (session,))
                for body in records:
                    execute("INSERT INTO record (session, body) VALUES (?, ?)", (session, body))
            execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            return error
        return None


def _settle(batch: list[_Commit], error: sqlite3.Error | None) -> None:
    for _, _, future in batch:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


@contextlib.asynccontextmanager
async def _open_floor(path: Path, sessions: int, max_batch: int = _MAX_BATCH) -> AsyncIterator[_FloorDatabase]:
    database = _FloorDatabase(path, sessions, max_batch)
    try:
        yield database
    finally:
        await asyncio.to_thread(database.close)


async def _run_session(database: _FloorDatabase, session: int, workload: FloorWorkload, turns: int) -> list[float]:
    latencies = []
    for _ in range(turns):
        start = time.perf_counter()
        for records in workload.commits:
            await database.commit(session, records)
        latencies.append(time.perf_counter() - start)
    return latencies


async def _run_sessions(database: _FloorDatabase, sessions: int, workload: FloorWorkload, turns: int) -> list[float]:
    groups = await asyncio.gather(*(_run_session(database, session, workload, turns) for session in range(sessions)))
    return [seconds for group in groups for seconds in group]


async def run_floor_round(
    path: Path, sessions: int, turns: int, workload: FloorWorkload, *, group_commit: bool = True
) -> Round:
    """Run a number of sessions at the same time on a new file, each one turn after the other.

    Args:
        path: The file.
        sessions: How many sessions.
        turns: Turns of each.
        workload: What a turn writes.
        group_commit: Whether commits that wait together share a transaction; without, each is flushed by itself.
    """
    async with _open_floor(path, sessions, _MAX_BATCH if group_commit else 1) as database:
        await _run_sessions(database, sessions, workload, 1)
        return await run_round(lambda: _run_sessions(database, sessions, workload, turns))


async def measure_stored_bytes(path: Path, turns: int, workload: FloorWorkload) -> int:
    """Bytes that a turn of the floor adds to a new file, as a check of the workload."""
    async with _open_floor(path, 1):
        pass
    empty = path.stat().st_size
    path.unlink()
    async with _open_floor(path, 1) as database:
        await _run_sessions(database, 1, workload, turns)
    return round((path.stat().st_size - empty) / turns)
