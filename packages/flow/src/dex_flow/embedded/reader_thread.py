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
_MAX_BATCH = 64


class ReaderThread:
    """Runs read-only functions, each in one read transaction, on a connection of its own."""

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
        is_open = True
        while is_open:
            request = self._queue.get()
            answers = []
            while True:
                if request is None:
                    is_open = False
                    break
                answers.append(self._answer(*request))
                if len(answers) == _MAX_BATCH or self._queue.empty():
                    break
                request = self._queue.get()
            if answers and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_settle, answers)
        self._connection.close()

    def _answer(
        self, code: Callable[[sqlite3.Connection], Any], future: asyncio.Future[Any]
    ) -> tuple[asyncio.Future[Any], Any, Exception | None]:
        connection = self._connection
        try:
            connection.execute("BEGIN")
            try:
                return future, code(connection), None
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            return future, None, create_storage_error(self._path, error, "cannot read")
        except Exception as error:
            return future, None, error


def _settle(answers: list[tuple[asyncio.Future[Any], Any, Exception | None]]) -> None:
    for future, value, error in answers:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
