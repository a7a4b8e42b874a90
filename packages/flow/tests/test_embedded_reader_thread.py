from __future__ import annotations

import asyncio
import sqlite3
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dex_flow.embedded.reader_thread import ReaderThread
from dex_flow.embedded.shared_file import SharedDatabase, acquire
from dex_flow.errors import EngineClosedError, StorageError

SECONDS = 30


class Answer:
    """Something that a read returns and that can be watched until it is gone."""


def create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE item (value)")


def insert(value: int) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute("INSERT INTO item VALUES (?)", (value,)).fetchall()


def values(connection: sqlite3.Connection) -> list[int]:
    return [value for (value,) in connection.execute("SELECT value FROM item ORDER BY value")]


def with_reader(path: Path, test: Callable[[SharedDatabase, ReaderThread], Awaitable[None]]) -> None:
    async def main() -> None:
        database = acquire(path / "flows.db", "process", create)
        reader = ReaderThread(database)
        try:
            async with asyncio.timeout(SECONDS):
                await test(database, reader)
        finally:
            reader.close()
            database.release()

    asyncio.run(main())


def test_reads_that_wait_together_see_what_was_committed_before_each_was_asked(tmp_path: Path) -> None:
    async def test(database: SharedDatabase, reader: ReaderThread) -> None:
        blocked, released = threading.Event(), threading.Event()

        def block(_: sqlite3.Connection) -> None:
            blocked.set()
            assert released.wait(SECONDS)

        blocking = asyncio.ensure_future(reader.read(block))
        await asyncio.to_thread(blocked.wait, SECONDS)
        readings = []
        for value in range(3):
            await database.writer.write(insert(value))
            readings.append(asyncio.ensure_future(reader.read(values)))
            await asyncio.sleep(0)  # lets the read be asked
        released.set()
        await blocking
        for value, reading in enumerate(readings):
            assert set(await reading) >= set(range(value + 1))

    with_reader(tmp_path, test)


def test_one_read_sees_one_state_whatever_is_committed_meanwhile(tmp_path: Path) -> None:
    async def test(database: SharedDatabase, reader: ReaderThread) -> None:
        blocked, released = threading.Event(), threading.Event()

        def read_twice(connection: sqlite3.Connection) -> tuple[list[int], list[int]]:
            first = values(connection)
            blocked.set()
            assert released.wait(SECONDS)
            return first, values(connection)

        await database.writer.write(insert(1))
        reading = asyncio.ensure_future(reader.read(read_twice))
        await asyncio.to_thread(blocked.wait, SECONDS)
        await database.writer.write(insert(2))
        released.set()
        assert await reading == ([1], [1])
        assert await reader.read(values) == [1, 2]

    with_reader(tmp_path, test)


def test_a_read_that_raises_fails_alone(tmp_path: Path) -> None:
    async def test(database: SharedDatabase, reader: ReaderThread) -> None:
        def fail(connection: sqlite3.Connection) -> None:
            connection.execute("SELECT value FROM item").fetchone()
            raise LookupError("nothing here")

        def end_transaction(connection: sqlite3.Connection) -> None:
            connection.execute("ROLLBACK")
            connection.execute("SELECT * FROM no_such_table")

        await database.writer.write(insert(1))
        outcomes = await asyncio.gather(
            reader.read(values),
            reader.read(fail),
            reader.read(end_transaction),
            reader.read(values),
            return_exceptions=True,
        )
        assert outcomes[0] == outcomes[3] == [1]
        assert isinstance(outcomes[1], LookupError)
        assert isinstance(outcomes[2], StorageError)

    with_reader(tmp_path, test)


def test_an_idle_reader_keeps_no_answer_alive(tmp_path: Path) -> None:
    async def test(_: SharedDatabase, reader: ReaderThread) -> None:
        is_gone = threading.Event()
        answer = await reader.read(lambda _: Answer())
        watch = weakref.ref(answer, lambda _: is_gone.set())
        del answer
        assert await asyncio.to_thread(is_gone.wait, SECONDS / 2)
        assert watch() is None

    with_reader(tmp_path, test)


def test_a_closed_reader_refuses_to_read(tmp_path: Path) -> None:
    async def test(_: SharedDatabase, reader: ReaderThread) -> None:
        reader.close()
        with pytest.raises(EngineClosedError):
            await reader.read(values)

    with_reader(tmp_path, test)
