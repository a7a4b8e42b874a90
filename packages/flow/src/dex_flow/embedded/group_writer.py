"""The group writer: one thread per process and file commits everything that waits in one transaction."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar

from dex_flow.embedded.database_file import Durability, create_storage_error, is_storage_failure
from dex_flow.embedded.gate import CommitGate
from dex_flow.errors import EngineClosedError

__all__ = ["BatchSummary", "Durable", "GroupWriter", "TransactionState", "WriteRequest", "WriterCounters"]

Result = TypeVar("Result")

Durable = Literal["always", "engine", "never"]
"""Whether a commit is flushed to disk: `always`, as the `engine`'s durability says, or `never` for its own sake."""

logger = logging.getLogger("dex_flow.embedded")

_MAX_BATCH = 256
_IDLE_SECONDS = 0.02
_IDLE_CHECKPOINT_REQUESTS = 500
_FORCED_CHECKPOINT_REQUESTS = 8_000


@dataclass(slots=True, kw_only=True)
class WriteRequest(Generic[Result]):
    """One atomic change.

    Attributes:
        apply: Runs on the writer thread inside the transaction; what it raises undoes this request alone. It exhausts
            its cursors, leaves the transaction open, and leaves alone the rows that a `TransactionState` writes.
        on_done: Receives the result and None, or None and the error, once the outcome is final. It runs in `loop`, or
            on the writer thread when that is None.
        loop: The event loop that `on_done` belongs to.
        durable: The strictest request of a batch decides for the whole batch.
        announce: Whether other processes should look for news after this commit.
        raises_before_writing: `apply` promises to raise, if at all, before its first write, so that there is nothing
            to undo and no savepoint is needed.
    """

    apply: Callable[[sqlite3.Connection], Result]
    on_done: Callable[[Result | None, Exception | None], None]
    loop: asyncio.AbstractEventLoop | None = None
    durable: Durable = "engine"
    announce: bool = True
    raises_before_writing: bool = False


@dataclass(slots=True, frozen=True)
class BatchSummary:
    """A batch that has just been committed.

    Attributes:
        requests: How many requests took effect.
        changed: Whether any row was written.
        durable: Whether the commit was flushed to disk.
        announce: Whether a request that took effect asked for an announcement.
    """

    requests: int
    changed: bool
    durable: bool
    announce: bool


@dataclass(slots=True)
class WriterCounters:
    """Totals since the writer started.

    Attributes:
        commits: Committed transactions that wrote a row.
        durable_commits: Those of them that were flushed to disk.
        requests: Requests that were run, whatever came of them.
        checkpoints: Copies of the write-ahead log into the database file.
    """

    commits: int = 0
    durable_commits: int = 0
    requests: int = 0
    checkpoints: int = 0


class TransactionState(Protocol):
    """What requests leave to be written at the end of their transaction; used on the writer thread."""

    @property
    def written(self) -> int:
        """Grows with everything that a request leaves here."""
        ...

    def begin(self, connection: sqlite3.Connection) -> None:
        """A transaction has begun."""
        ...

    def flush(self, connection: sqlite3.Connection) -> None:
        """Write what was left here."""
        ...

    def discard(self) -> None:
        """The transaction was undone."""
        ...


class _NoState:
    """For a writer whose requests write at once."""

    written = 0

    def begin(self, connection: sqlite3.Connection) -> None:
        """Nothing to do."""

    def flush(self, connection: sqlite3.Connection) -> None:
        """Nothing to do."""

    def discard(self) -> None:
        """Nothing to do."""


@dataclass(slots=True)
class _Periodic:
    seconds: float
    due: float
    action: Callable[[], None]


_Outcome = tuple[WriteRequest[Any], Any, Exception | None]


class GroupWriter:
    """Owns the writer connection; requests take effect in the order of their submission.

    Args:
        path: The database file, for messages.
        connection: Used by the writer thread alone from now on; closed by `close`.
        gate: Held around every transaction and checkpoint.
        durability: What an `engine` commit survives.
        state: Where requests that keep `raises_before_writing` may leave what they write.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        connection: sqlite3.Connection,
        gate: CommitGate,
        durability: Durability,
        state: TransactionState | None = None,
    ) -> None:
        self.durability = durability
        self.counters = WriterCounters()
        self.after_commit: list[Callable[[BatchSummary], None]] = []
        self._path = os.fspath(path)
        self._connection = connection
        self._gate = gate
        self._state: TransactionState = _NoState() if state is None else state
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        self._synchronous_full = synchronous >= 2
        self._queue: queue.SimpleQueue[WriteRequest[Any] | None] = queue.SimpleQueue()
        self._submit_lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._periodics: list[_Periodic] = []
        self._requests_since_checkpoint = 0
        self._thread = threading.Thread(target=self._run, name="dex-flow-writer", daemon=True)
        self._thread.start()

    def submit(self, request: WriteRequest[Any]) -> None:
        """Queue a request, from any thread, also the writer's own.

        Raises:
            EngineClosedError: The writer is closed, or belongs to the process that this one was forked from.
        """
        if os.getpid() != self._process:
            raise EngineClosedError("this engine belongs to the parent process; start worker processes with 'spawn'")
        with self._submit_lock:
            if self._closed:
                raise EngineClosedError("the engine is closed; open it again before you use it")
            self._queue.put(request)

    async def write(
        self, apply: Callable[[sqlite3.Connection], Result], *, durable: Durable = "engine", announce: bool = True
    ) -> Result:
        """Submit a change and wait for its commit; a cancelled caller stops waiting, the change is committed.

        Raises:
            StorageError: The storage refused the batch; nothing of it took effect.
            EngineClosedError: The writer is closed.
            Exception: What `apply` raised; nothing of this change took effect.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        on_done = partial(_settle, future)
        self.submit(WriteRequest(apply=apply, on_done=on_done, loop=loop, durable=durable, announce=announce))
        return await future

    def every(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` on the writer thread, between transactions, every so many seconds; returns what ends it."""
        periodic = _Periodic(seconds, time.monotonic() + seconds, action)
        with self._submit_lock:
            self._periodics = [*self._periodics, periodic]
        self._queue.put(None)

        def cancel() -> None:
            with self._submit_lock:
                self._periodics = [other for other in self._periodics if other is not periodic]

        return cancel

    def close(self) -> None:
        """Commit what was submitted, then stop and close the connection; blocks until then. A second call waits too."""
        if os.getpid() != self._process:
            return
        if threading.current_thread() is self._thread:
            raise RuntimeError("the writer thread cannot close its own writer; close it from another thread")
        with self._submit_lock:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            request = self._take()
            if request is not None:
                self._commit(self._gather(request))
                if self._requests_since_checkpoint >= _FORCED_CHECKPOINT_REQUESTS:
                    self._checkpoint()
            elif self._closed and self._queue.empty():
                break
            if self._periodics and not self._closed:
                self._run_due_periodics()
        try:
            # The last connection of a database checkpoints as it closes.
            with self._gate.hold():
                self._connection.close()
        except (sqlite3.Error, OSError):
            logger.exception("database %s: the writer's connection could not be closed; all commits stand", self._path)

    def _take(self) -> WriteRequest[Any] | None:
        """The next request, or None when there is something else to look at."""
        if self._requests_since_checkpoint >= _IDLE_CHECKPOINT_REQUESTS:
            try:
                return self._queue.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._checkpoint()
        if not self._periodics:
            return self._queue.get()
        try:
            due = min(periodic.due for periodic in self._periodics)
            return self._queue.get(timeout=max(0.0, due - time.monotonic()))
        except queue.Empty:
            return None

    def _gather(self, first: WriteRequest[Any]) -> list[WriteRequest[Any]]:
        batch = [first]
        for _ in range(min(self._queue.qsize(), _MAX_BATCH - 1)):
            request = self._queue.get_nowait()
            if request is None:
                if self._closed:
                    self._queue.put(None)
                break
            batch.append(request)
        return batch

    def _commit(self, batch: list[WriteRequest[Any]]) -> None:
        full = any(
            request.durable == "always" or (request.durable == "engine" and self.durability == "power")
            for request in batch
        )
        summary: BatchSummary | None = None
        try:
            self._set_synchronous(full)
            with self._gate.hold():
                outcomes, changed = self._transact(batch)
            succeeded = [request for request, _, error in outcomes if error is None]
            if succeeded:
                announce = any(request.announce for request in succeeded)
                summary = BatchSummary(len(succeeded), changed, full and changed, announce)
        except BaseException as error:
            logger.error("database %s: a transaction of %d requests failed: %r", self._path, len(batch), error)
            outcomes = [(request, None, self._explain(error)) for request in batch]
        self.counters.requests += len(batch)
        if summary is not None and summary.changed:
            self._requests_since_checkpoint += summary.requests
            self.counters.commits += 1
            self.counters.durable_commits += summary.durable
        self._deliver(outcomes)
        if summary is not None:
            self._run_hooks(summary)

    def _set_synchronous(self, full: bool) -> None:
        if full != self._synchronous_full:
            self._connection.execute("PRAGMA synchronous = FULL" if full else "PRAGMA synchronous = NORMAL")
            self._synchronous_full = full

    def _transact(self, batch: list[WriteRequest[Any]]) -> tuple[list[_Outcome], bool]:
        """Run a batch to its commit; raises, with nothing left open, when the batch as a whole failed."""
        connection, state = self._connection, self._state
        before, written_before = connection.total_changes, state.written
        is_undone = True
        try:
            connection.execute("BEGIN IMMEDIATE")
            state.begin(connection)
            if len(batch) == 1:
                outcomes = [self._apply(batch[0])]
            else:
                outcomes = [self._apply_in_savepoint(request) for request in batch]
            if all(error is not None for _, _, error in outcomes):
                connection.execute("ROLLBACK")
                is_undone = state.written != written_before
                return outcomes, False
            state.flush(connection)
            connection.execute("COMMIT")
            is_undone = False
        finally:
            if is_undone:
                state.discard()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes, connection.total_changes != before

    def _apply_in_savepoint(self, request: WriteRequest[Any]) -> _Outcome:
        if request.raises_before_writing:
            return self._apply_without_savepoint(request)
        execute = self._connection.execute
        self._state.flush(self._connection)
        execute("SAVEPOINT request")
        outcome = self._apply(request)
        if outcome[2] is not None:
            execute("ROLLBACK TO request")
        execute("RELEASE request")
        return outcome

    def _apply_without_savepoint(self, request: WriteRequest[Any]) -> _Outcome:
        before = self._connection.total_changes, self._state.written
        outcome = self._apply(request)
        if outcome[2] is not None and (self._connection.total_changes, self._state.written) != before:
            # The promise was broken: only the whole transaction can be undone.
            raise self._as_database_error(outcome[2])
        return outcome

    def _apply(self, request: WriteRequest[Any]) -> _Outcome:
        try:
            return request, request.apply(self._connection), None
        except BaseException as error:
            if not self._connection.in_transaction:
                # SQLite itself undid the whole transaction, also what other requests of the batch had done.
                raise self._as_database_error(error) from error
            return request, None, self._translate(error)

    def _as_database_error(self, error: BaseException) -> sqlite3.Error:
        if isinstance(error, sqlite3.Error):
            return error
        return sqlite3.OperationalError(f"the transaction ended inside a request: {error!r}")

    def _translate(self, error: BaseException) -> Exception:
        """What the caller of a failed request gets."""
        if is_storage_failure(error):
            return self._explain(error)
        if isinstance(error, Exception) and not isinstance(error, StopIteration | asyncio.CancelledError):
            return error
        # A future refuses StopIteration, and the others would end or cancel whoever waits.
        wrapped = RuntimeError(f"the code of a transaction raised {error!r}")
        wrapped.__cause__ = error
        return wrapped

    def _explain(self, error: BaseException) -> Exception:
        explained = create_storage_error(self._path, error, "cannot commit, nothing was applied")
        explained.__cause__ = error
        return explained

    def _deliver(self, outcomes: list[_Outcome]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
        for outcome in outcomes:
            loop = outcome[0].loop
            if loop is None:
                _finish(outcome)
            else:
                by_loop.setdefault(loop, []).append(outcome)
        for loop, own_outcomes in by_loop.items():
            try:
                loop.call_soon_threadsafe(_finish_all, own_outcomes)
            except RuntimeError:
                logger.debug("an event loop was closed before %d of its commits were reported", len(own_outcomes))

    def _run_hooks(self, summary: BatchSummary) -> None:
        for hook in tuple(self.after_commit):
            try:
                hook(summary)
            except Exception:
                logger.exception("a hook failed after a commit; the commit stands")

    def _run_due_periodics(self) -> None:
        now = time.monotonic()
        for periodic in self._periodics:
            if periodic.due <= now:
                # Counted from now: a writer that fell behind does not catch up with a burst.
                periodic.due = now + periodic.seconds
                try:
                    periodic.action()
                except EngineClosedError:
                    return  # another thread has just closed the writer: nothing is due any more
                except Exception:
                    logger.exception("a periodic action of the writer failed; it runs again in %g s", periodic.seconds)

    def _checkpoint(self) -> None:
        # Also after a failure: the next try comes with the next requests, not at once.
        self._requests_since_checkpoint = 0
        try:
            with self._gate.hold():
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (sqlite3.Error, OSError) as error:
            logger.warning("database %s: a checkpoint failed and will be repeated: %r", self._path, error)
        else:
            self.counters.checkpoints += 1


def _finish_all(outcomes: list[_Outcome]) -> None:
    for outcome in outcomes:
        _finish(outcome)


def _finish(outcome: _Outcome) -> None:
    request, result, error = outcome
    try:
        request.on_done(result, error)
    except Exception:
        logger.exception("a completion callback failed; its commit stands")


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
