"""The floor: the very statements that the engine ran for some turns, on raw SQLite and nothing else.

The same commits with the same rows and bytes, and the same reads of the model's input. One writer thread commits
together whatever waits, one reader thread reads, and the caller awaits each commit and read of its turn. What is
missing is all of ours: no session logic, no kernel, no decoding, no agent, no gate between processes, no wake-up, no
waiting for states.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from bench.measurements import Round, run_round
from bench.statement_recording import Operation, Recording, Statement

__all__ = ["run_floor_round"]

_MAX_BATCH = 256  # as many as the engine joins

_Item = tuple[tuple[Statement, ...], "asyncio.Future[None]"]


class _Thread:
    """A connection of its own, and a queue of what to run on it."""

    def __init__(self, path: Path, run: Callable[[sqlite3.Connection, list[_Item]], None], max_batch: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._run_batch = run
        self._max_batch = max_batch
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, statements: tuple[Statement, ...]) -> asyncio.Future[None]:
        """Run statements; await what it returns."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((statements, future))
        return future

    def close(self) -> None:
        """Stop the thread; blocks."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        is_over = False
        while not is_over and (first := self._queue.get()) is not None:
            batch = [first]
            for _ in range(min(self._queue.qsize(), self._max_batch - 1)):
                following = self._queue.get_nowait()
                if following is None:
                    is_over = True
                    break
                batch.append(following)
            error: Exception | None = None
            try:
                self._run_batch(self._connection, batch)
            except sqlite3.Error as raised:
                error = raised
            self._loop.call_soon_threadsafe(_settle, batch, error)


def _run_statements(connection: sqlite3.Connection, statements: tuple[Statement, ...]) -> None:
    for text, parameters, is_many in statements:
        if is_many:
            connection.executemany(text, parameters)
        else:
            connection.execute(text, parameters).fetchall()


def _commit(connection: sqlite3.Connection, batch: list[_Item]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements, _ in batch:
            _run_statements(connection, statements)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _read(connection: sqlite3.Connection, batch: list[_Item]) -> None:
    for statements, _ in batch:
        connection.execute("BEGIN")
        try:
            _run_statements(connection, statements)
        finally:
            connection.execute("COMMIT")


def _settle(batch: list[_Item], error: Exception | None) -> None:
    for _, future in batch:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


@contextlib.asynccontextmanager
async def _open_floor(path: Path, max_batch: int) -> AsyncIterator[dict[str, _Thread]]:
    threads = {"commit": _Thread(path, _commit, max_batch), "read": _Thread(path, _read, _MAX_BATCH)}
    try:
        yield threads
    finally:
        for thread in threads.values():
            await asyncio.to_thread(thread.close)


async def _run_lane(threads: dict[str, _Thread], turns: Sequence[Sequence[Operation]]) -> list[float]:
    latencies = []
    for turn in turns:
        start = time.perf_counter()
        for operation in turn:
            await threads[operation.kind].submit(operation.statements)
        latencies.append(time.perf_counter() - start)
    return latencies


async def run_floor_round(
    path: Path, recording: Recording, lanes: Sequence[Sequence[str]], *, group_commit: bool
) -> Round:
    """Run recorded turns again, from the state they were recorded on.

    Args:
        path: A file that does not exist yet.
        recording: What the engine ran.
        lanes: Sessions that run one after the other, for each lane; the lanes run at the same time.
        group_commit: Whether commits that wait together share a transaction; without, each is flushed by itself.
    """
    shutil.copyfile(recording.database, path)
    turns = [recording.turns(session_ids) for session_ids in lanes]

    async def run() -> list[float]:
        groups: list[Any] = await asyncio.gather(*(_run_lane(threads, lane) for lane in turns))
        return [seconds for group in groups for seconds in group]

    async with _open_floor(path, _MAX_BATCH if group_commit else 1) as threads:
        return await run_round(run)
