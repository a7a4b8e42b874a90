"""One thread that reads committed state; what waits together is read in one go and answered in one wake-up."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from dex_flow.embedded.database_file import create_storage_error
from dex_flow.embedded.shared_file import SharedDatabase
from dex_flow.errors import EngineClosedError

__all__ = ["ReaderThread"]

Result = TypeVar("Result")

_Request = tuple[Callable[[sqlite3.Connection], Any], "asyncio.Future[Any]"]
_Answer = tuple["asyncio.Future[Any]", Any, Exception | None]
_MAX_BATCH = 64


class ReaderThread:
    """Runs read-only functions on a connection of its own; each sees one consistent state."""

    def __init__(self, database: SharedDatabase) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = database.path
        self._connection = database.open_reader()
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dex-flow-reader", daemon=True)
        self._thread.start()

    async def read(self, code: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `code` over one consistent committed state.

        Raises:
            StorageError: The storage refused the read.
            EngineClosedError: The engine is closed.
            Exception: What `code` raised.
        """
        if self._closed:
            raise EngineClosedError("the engine is closed; open it again before you use it")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._queue.put((code, future))
        return await future

    def close(self) -> None:
        """Answer what was asked, then stop; blocks until then."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._serve(self._queue.get()):
            pass
        self._connection.close()

    def _serve(self, request: _Request | None) -> bool:
        """Answer what waits; False at the end. What it read is not kept beyond the call: a snapshot may be large."""
        batch: list[_Request] = []
        while request is not None:
            batch.append(request)
            if len(batch) == _MAX_BATCH or self._queue.empty():
                break
            request = self._queue.get()
        if batch:
            answers = self._answer_all(batch)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_settle, answers)
        return request is not None

    def _answer_all(self, batch: list[_Request]) -> list[_Answer]:
        # One transaction for all: it begins after each of them was asked, so it sees what they may expect.
        answers = [self._answer(code, future) for code, future in batch]
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            failure = create_storage_error(self._path, error, "cannot read")
            return [(future, None, failure) for _, future in batch]
        return answers

    def _answer(self, code: Callable[[sqlite3.Connection], Any], future: asyncio.Future[Any]) -> _Answer:
        connection = self._connection
        try:
            # A storage failure may have ended the transaction of the batch.
            if not connection.in_transaction:
                connection.execute("BEGIN")
            return future, code(connection), None
        except sqlite3.Error as error:
            return future, None, create_storage_error(self._path, error, "cannot read")
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                return future, None, error
            # A future refuses StopIteration, and the others would end this thread or whoever waits.
            wrapped = RuntimeError(f"the code of a read raised {error!r}")
            wrapped.__cause__ = error
            return future, None, wrapped


def _settle(answers: list[_Answer]) -> None:
    for future, value, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
