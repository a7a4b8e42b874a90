from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dex_flow.embedded.database_file import APPLICATION_ID, open_reader_connection
from dex_flow.embedded.shared_file import acquire
from dex_flow.errors import EngineClosedError, StorageError

WRITER = """
import asyncio, sys
from dex_flow.embedded.shared_file import acquire

def create(connection):
    connection.execute("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, value)")

async def main():
    database = acquire(sys.argv[1], "process", create)
    def insert(connection):
        connection.execute("INSERT INTO item (value) VALUES (?)", (sys.argv[2],))
    async def many():
        for _ in range(50):
            await database.writer.write(insert)
    await asyncio.gather(*(many() for _ in range(5)))
    database.release()

asyncio.run(main())
"""

GATE_PROBE = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("held")
    else:
        print("free")
"""

FORK = """
import asyncio, gc, os, sys
from dex_flow.embedded.shared_file import acquire
from dex_flow.errors import EngineClosedError, StorageError

def create(connection):
    connection.execute("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, value)")

def insert(value):
    return lambda connection: connection.execute("INSERT INTO item (value) VALUES (?)", (value,)).fetchall()

database = acquire(sys.argv[1], "power", create)
asyncio.run(database.writer.write(insert("parent")))
child = os.fork()
if child == 0:
    problems = []
    try:
        acquire(sys.argv[1], "power")
        problems.append("acquired")
    except StorageError as error:
        if "forked" not in str(error):
            problems.append(str(error))
    try:
        asyncio.run(database.writer.write(insert("child")))
        problems.append("submitted")
    except EngineClosedError:
        pass
    database.release()
    other = acquire(sys.argv[2], "power", create)
    asyncio.run(other.writer.write(insert("child")))
    other.release()
    del database
    gc.collect()
    print(problems, flush=True)
    os._exit(len(problems))
status = os.waitpid(child, 0)[1]
asyncio.run(database.writer.write(insert("parent again")))
database.release()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, value)")


def insert(value: Any) -> Callable[[sqlite3.Connection], Any]:
    return lambda connection: connection.execute("INSERT INTO item (value) VALUES (?)", (value,)).fetchall()


def pragma(name: str) -> Callable[[sqlite3.Connection], Any]:
    return lambda connection: connection.execute(f"PRAGMA {name}").fetchone()[0]


def read_values(path: Path) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return [value for (value,) in connection.execute("SELECT value FROM item ORDER BY id")]
    finally:
        connection.close()


def probe_gate(directory: Path) -> str:
    command = [sys.executable, "-c", GATE_PROBE, str(directory / "a.db.gate")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_engines_of_one_process_share_writer_and_gate_whatever_they_call_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    monkeypatch.chdir(tmp_path)
    first = acquire(tmp_path / "a.db", "power", create)
    second = acquire("a.db", "power", create)
    third = acquire("link.db", "power", create)
    assert first is second is third
    first.release()
    second.release()
    asyncio.run(third.writer.write(insert(1)))
    third.release()
    assert read_values(tmp_path / "a.db") == [1]
    with pytest.raises(RuntimeError, match="more often"):
        third.release()


def test_the_last_release_closes_and_the_file_can_be_opened_again(tmp_path: Path) -> None:
    first = acquire(tmp_path / "a.db", "power", create)
    first.release()
    with pytest.raises(EngineClosedError):
        asyncio.run(first.writer.write(insert(1)))
    assert not (tmp_path / "a.db-wal").exists()
    second = acquire(tmp_path / "a.db", "power", create)
    assert second is not first
    asyncio.run(second.writer.write(insert(2)))
    second.release()
    assert read_values(tmp_path / "a.db") == [2]


@pytest.mark.processes
def test_the_release_of_one_engine_keeps_the_gate_of_the_other(tmp_path: Path) -> None:
    first = acquire(tmp_path / "a.db", "power", create)
    second = acquire(tmp_path / "a.db", "power", create)
    first.release()
    assert asyncio.run(second.writer.write(lambda connection: probe_gate(tmp_path))) == "held"
    assert probe_gate(tmp_path) == "free"
    second.release()


@pytest.mark.processes
def test_initialization_excludes_other_processes(tmp_path: Path) -> None:
    states: list[str] = []
    acquire(tmp_path / "a.db", "power", lambda connection: states.append(probe_gate(tmp_path))).release()
    assert states == ["held"]


def test_the_stricter_durability_holds_for_both_engines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = acquire(tmp_path / "a.db", "process", create)
    asyncio.run(first.writer.write(insert(1)))
    assert first.writer.counters.durable_commits == 0
    assert caplog.text == ""
    second = acquire(tmp_path / "a.db", "power", create)
    asyncio.run(first.writer.write(insert(2)))
    assert first.writer.counters.durable_commits == 1
    assert "both get 'power'" in caplog.text
    third = acquire(tmp_path / "a.db", "process", create)
    asyncio.run(third.writer.write(insert(3)))
    assert first.writer.counters.durable_commits == 2
    for database in (first, second, third):
        database.release()


def test_a_new_file_gets_the_settings_of_the_engine(tmp_path: Path) -> None:
    database = acquire(tmp_path / "a.db", "power", create)
    expected = {
        "journal_mode": "wal",
        "synchronous": 2,
        "busy_timeout": 5_000,
        "wal_autocheckpoint": 0,
        "journal_size_limit": 64 * 1024 * 1024,
        "auto_vacuum": 2,
        "page_size": 4_096,
        "application_id": APPLICATION_ID,
        "mmap_size": 0,
    }
    assert {name: asyncio.run(database.writer.write(pragma(name))) for name in expected} == expected
    database.release()


def test_a_reader_sees_commits_and_cannot_write(tmp_path: Path) -> None:
    database = acquire(tmp_path / "a.db", "power", create)
    reader = database.open_reader()
    asyncio.run(database.writer.write(insert(1)))
    assert reader.execute("SELECT value FROM item").fetchall() == [(1,)]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO item (value) VALUES (2)")
    reader.close()
    database.release()


def test_a_failed_initialization_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        create(connection)
        raise KeyError("migration")

    with pytest.raises(KeyError, match="migration"):
        acquire(tmp_path / "a.db", "power", fail)
    with pytest.raises(StorageError, match="cannot create or migrate its tables"):
        acquire(tmp_path / "a.db", "power", lambda connection: connection.execute("nonsense").close())
    tables: list[Any] = []
    database = acquire(
        tmp_path / "a.db",
        "power",
        lambda connection: tables.extend(connection.execute("SELECT name FROM sqlite_schema")),
    )
    database.release()
    assert tables == []


def test_the_database_of_another_application_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    content = path.read_bytes()
    for open_it in (lambda: acquire(path, "power"), lambda: open_reader_connection(path)):
        with pytest.raises(StorageError, match="another application"):
            open_it()
    assert path.read_bytes() == content


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text that is no database " * 100)
    with pytest.raises(StorageError, match="choose another path"):
        acquire(tmp_path / "a.txt", "power")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing/a.db", r"missing does not exist; create it first"),
        (".", "it is a directory"),
        (":memory:", "is no file"),
        ("", "is no file"),
    ],
)
def test_a_path_that_cannot_work_is_refused_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match=message):
        acquire(path, "power")
    assert os.listdir(tmp_path) == []


def test_odd_characters_in_the_path_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=ro#%41é.db"
    database = acquire(path, "power", create)
    asyncio.run(database.writer.write(insert(1)))
    database.release()
    assert read_values(path) == [1]


@pytest.mark.processes
def test_processes_that_create_and_fill_one_file_together_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "abc"]
    assert [process.wait(100) for process in processes] == [0, 0, 0]
    assert sorted(read_values(path)) == sorted("abc" * 250)


@pytest.mark.processes
def test_a_forked_child_cannot_use_or_disturb_the_file_of_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "a.db"), str(tmp_path / "b.db")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n", "")
    assert read_values(tmp_path / "a.db") == ["parent", "parent again"]
    assert read_values(tmp_path / "b.db") == ["child"]
