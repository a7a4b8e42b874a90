from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dex_flow.embedded.database_file import open_reader_connection, open_writer_connection
from dex_flow.embedded.gate import CommitGate
from dex_flow.embedded.group_writer import BatchSummary, Durable, GroupWriter, WriteRequest
from dex_flow.errors import EngineClosedError, StorageError

SECONDS = 30
HUGE = 1_000_000
CREATE = (
    "CREATE TABLE item (id INTEGER PRIMARY KEY, value)",
    "CREATE TABLE child (item_id INTEGER REFERENCES item (id) DEFERRABLE INITIALLY DEFERRED)",
)

Outcome = tuple[Any, Exception | None]


class Database:
    """A writer with its own gate, and what a reader sees."""

    def __init__(self, path: Path, durability: Any) -> None:
        self.path = path
        path.touch()
        self.gate = CommitGate(path.with_suffix(".gate"))
        connection = open_writer_connection(path, durability)
        for statement in CREATE:
            connection.execute(statement)
        self.writer = GroupWriter(path, connection, self.gate, durability)
        self.reader = open_reader_connection(path)

    def values(self) -> list[Any]:
        return [value for (value,) in self.reader.execute("SELECT value FROM item ORDER BY id")]

    def close(self) -> None:
        self.writer.close()
        self.gate.close()
        self.reader.close()

    def run_together(
        self, *requests: Callable[[sqlite3.Connection], Any], durable: Durable = "engine"
    ) -> list[Outcome]:
        """Run them in one batch, because they are submitted while the writer is busy."""
        busy, go_on = threading.Event(), threading.Event()

        def occupy(connection: sqlite3.Connection) -> None:
            busy.set()
            assert go_on.wait(SECONDS)

        outcomes: list[Outcome] = []
        done = threading.Event()

        def on_done(result: Any, error: Exception | None) -> None:
            outcomes.append((result, error))
            if len(outcomes) == len(requests):
                done.set()

        self.writer.submit(WriteRequest(apply=occupy, on_done=lambda result, error: None))
        assert busy.wait(SECONDS)
        for request in requests:
            self.writer.submit(WriteRequest(apply=request, on_done=on_done, durable=durable))
        go_on.set()
        assert done.wait(SECONDS)
        return outcomes

    def run_alone(self, request: Callable[[sqlite3.Connection], Any], durable: Durable = "engine") -> Any:
        return asyncio.run(self.writer.write(request, durable=durable))


@pytest.fixture
def power(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "power.db", "power")
    yield database
    database.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "process.db", "process")
    yield database
    database.close()


def insert(value: Any) -> Callable[[sqlite3.Connection], Any]:
    def apply(connection: sqlite3.Connection) -> Any:
        connection.execute("INSERT INTO item (value) VALUES (?)", (value,))
        return value

    return apply


def insert_and_raise(error: BaseException) -> Callable[[sqlite3.Connection], Any]:
    def apply(connection: sqlite3.Connection) -> Any:
        connection.execute("INSERT INTO item (value) VALUES ('undone')")
        raise error

    return apply


def insert_orphan(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO child VALUES (12345)")  # its COMMIT fails


def limit_pages(connection: sqlite3.Connection) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 5}")


def synchronous(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO item (value) VALUES ('seen')")
    return int(connection.execute("PRAGMA synchronous").fetchone()[0])


def test_requests_that_wait_together_share_one_commit_in_their_order(power: Database) -> None:
    outcomes = power.run_together(*(insert(number) for number in range(100)))
    assert outcomes == [(number, None) for number in range(100)]
    assert power.values() == list(range(100))
    assert (power.writer.counters.commits, power.writer.counters.requests) == (1, 101)


def test_a_batch_is_limited_and_the_order_holds_across_batches(power: Database) -> None:
    outcomes = power.run_together(*(insert(number) for number in range(600)))
    assert [result for result, _ in outcomes] == list(range(600))
    assert power.values() == list(range(600))
    assert power.writer.counters.commits == 3


@pytest.mark.parametrize("error", [KeyError("wrong"), StopIteration(), SystemExit(1), asyncio.CancelledError()])
def test_a_request_that_raises_is_undone_alone(power: Database, error: BaseException) -> None:
    outcomes = power.run_together(insert(1), insert_and_raise(error), insert(3))
    assert [result for result, _ in outcomes] == [1, None, 3]
    assert power.values() == [1, 3]
    assert isinstance(outcomes[1][1], KeyError if isinstance(error, KeyError) else RuntimeError)


def test_a_lone_request_that_raises_is_undone_and_its_caller_gets_the_error(power: Database) -> None:
    with pytest.raises(KeyError, match="wrong"):
        power.run_alone(insert_and_raise(KeyError("wrong")))
    assert power.run_alone(insert(2)) == 2
    assert power.values() == [2]
    assert power.writer.counters.commits == 1


def test_a_wrong_statement_is_not_a_storage_error(power: Database) -> None:
    def apply(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO item (id, value) VALUES (1, 'again')")

    outcomes = power.run_together(insert(1), apply)
    assert isinstance(outcomes[1][1], sqlite3.IntegrityError)
    assert power.values() == [1]


def test_a_batch_of_failed_requests_commits_nothing(power: Database) -> None:
    power.run_together(insert_and_raise(KeyError()), insert_and_raise(KeyError()))
    assert power.writer.counters.commits == 0
    assert power.values() == []


def test_a_failed_commit_fails_every_caller_and_the_writer_goes_on(power: Database) -> None:
    outcomes = power.run_together(insert(1), insert_orphan, insert(3))
    assert [type(error) for _, error in outcomes] == [StorageError] * 3
    assert "power.db" in str(outcomes[0][1])
    assert "nothing was applied" in str(outcomes[0][1])
    assert power.values() == []
    with pytest.raises(StorageError):
        power.run_alone(insert_orphan)
    assert power.run_alone(insert(4)) == 4
    assert power.values() == [4]


def test_a_full_disk_that_undoes_the_transaction_fails_the_whole_batch(power: Database) -> None:
    power.run_alone(limit_pages)
    outcomes = power.run_together(insert(1), insert(bytes(HUGE)), insert(3))
    assert [type(error) for _, error in outcomes] == [StorageError] * 3
    assert "free disk space" in str(outcomes[0][1])
    assert "SQLITE_FULL" in str(outcomes[0][1])
    with pytest.raises(StorageError, match="free disk space"):
        power.run_alone(insert(bytes(HUGE)))
    assert power.run_alone(insert("small")) == "small"
    assert power.values() == ["small"]


def test_a_full_disk_that_undoes_a_statement_fails_that_request_alone(power: Database) -> None:
    def apply(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO item (value) SELECT zeroblob(10) UNION ALL SELECT zeroblob(?)", (HUGE,))

    power.run_alone(limit_pages)
    outcomes = power.run_together(insert(1), apply, insert(3))
    assert [type(error) for _, error in outcomes] == [type(None), StorageError, type(None)]
    assert power.values() == [1, 3]


def test_a_locked_database_fails_the_waiting_callers_and_later_ones_succeed(power: Database) -> None:
    power.run_alone(lambda connection: connection.execute("PRAGMA busy_timeout = 1").fetchall())
    other = sqlite3.connect(power.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="another program keeps the file locked"):
        power.run_alone(insert(1))
    other.execute("ROLLBACK")
    other.close()
    assert power.run_alone(insert(2)) == 2


def test_a_request_that_ends_the_transaction_itself_fails_the_batch(power: Database) -> None:
    def apply(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise KeyError("wrong")

    outcomes = power.run_together(insert(1), apply, insert(3))
    assert [type(error) for _, error in outcomes] == [StorageError] * 3
    assert power.values() == []


def test_a_cancelled_caller_does_not_cancel_its_commit(power: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        busy, go_on = threading.Event(), threading.Event()

        def apply(connection: sqlite3.Connection) -> None:
            busy.set()
            assert go_on.wait(SECONDS)
            insert("kept")(connection)

        task = asyncio.create_task(power.writer.write(apply))
        await asyncio.to_thread(busy.wait, SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert await power.writer.write(insert("next")) == "next"

    asyncio.run(scenario())
    assert power.values() == ["kept", "next"]
    assert caplog.text == ""


def test_a_result_is_delivered_only_after_its_commit(power: Database) -> None:
    async def scenario() -> None:
        for number in range(50):
            await power.writer.write(insert(number))
            assert power.values() == list(range(number + 1))

    asyncio.run(scenario())


def test_completions_of_a_batch_reach_each_event_loop_in_one_call(power: Database) -> None:
    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        busy, go_on = threading.Event(), threading.Event()
        log: list[str] = []
        last = loop.create_future()

        def occupy(connection: sqlite3.Connection) -> None:
            busy.set()
            assert go_on.wait(SECONDS)

        def first_done(result: Any, error: Exception | None) -> None:
            log.append("first")
            loop.call_soon(log.append, "a later call of the loop")

        def last_done(result: Any, error: Exception | None) -> None:
            log.append("last")
            last.set_result(None)

        power.writer.submit(WriteRequest(apply=occupy, on_done=lambda result, error: None))
        await asyncio.to_thread(busy.wait, SECONDS)
        power.writer.submit(WriteRequest(apply=insert(1), on_done=first_done, loop=loop))
        power.writer.submit(WriteRequest(apply=insert(2), on_done=last_done, loop=loop))
        go_on.set()
        await last
        return log[:2]

    assert asyncio.run(scenario()) == ["first", "last"]


def test_a_closed_event_loop_does_not_lose_the_completions_of_others(power: Database) -> None:
    closed_loop = asyncio.new_event_loop()
    closed_loop.close()
    lost: list[Any] = []
    power.writer.submit(WriteRequest(apply=insert(1), on_done=lambda *outcome: lost.append(outcome), loop=closed_loop))
    assert power.run_alone(insert(2)) == 2
    assert power.values() == [1, 2]
    assert lost == []


def test_a_completion_that_raises_does_not_stop_the_others(power: Database, caplog: pytest.LogCaptureFixture) -> None:
    def on_done(result: Any, error: Exception | None) -> None:
        raise KeyError("in a completion")

    power.writer.submit(WriteRequest(apply=insert(1), on_done=on_done))
    assert power.run_alone(insert(2)) == 2
    assert "in a completion" in caplog.text


@pytest.mark.parametrize(
    ("durability", "durable", "expected"),
    [
        ("power", "always", 2),
        ("power", "engine", 2),
        ("power", "never", 1),
        ("process", "always", 2),
        ("process", "engine", 1),
        ("process", "never", 1),
    ],
)
def test_durability_decides_whether_a_commit_is_flushed(
    request: pytest.FixtureRequest, durability: str, durable: Durable, expected: int
) -> None:
    database: Database = request.getfixturevalue(durability)
    for _ in range(2):
        assert database.run_alone(synchronous, durable) == expected
    assert database.writer.counters.commits == 2
    assert database.writer.counters.durable_commits == (2 if expected == 2 else 0)


def test_the_strictest_request_decides_for_its_batch(process: Database) -> None:
    async def scenario() -> list[int]:
        busy, go_on = threading.Event(), threading.Event()

        def occupy(connection: sqlite3.Connection) -> None:
            busy.set()
            assert go_on.wait(SECONDS)

        modes: tuple[Durable, ...] = ("never", "always", "engine")
        first = asyncio.create_task(process.writer.write(occupy))
        await asyncio.to_thread(busy.wait, SECONDS)
        tasks = [asyncio.create_task(process.writer.write(synchronous, durable=mode)) for mode in modes]
        await asyncio.sleep(0)  # every task has submitted
        go_on.set()
        await first
        return list(await asyncio.gather(*tasks))

    assert asyncio.run(scenario()) == [2, 2, 2]
    assert process.writer.counters.durable_commits == 1


def test_a_transaction_that_changes_nothing_is_no_commit(power: Database) -> None:
    assert power.run_alone(lambda connection: connection.execute("SELECT 1").fetchall()) == [(1,)]
    assert (power.writer.counters.commits, power.writer.counters.durable_commits) == (0, 0)


def test_hooks_run_on_the_writer_thread_after_the_commit_and_may_submit(power: Database) -> None:
    summaries: list[BatchSummary] = []
    seen: list[list[Any]] = []
    finished = threading.Event()

    def hook(summary: BatchSummary) -> None:
        summaries.append(summary)
        with open_reader_connection(power.path) as reader:
            seen.append(reader.execute("SELECT value FROM item").fetchall())
        reader.close()
        if len(summaries) == 1:
            power.writer.submit(
                WriteRequest(
                    apply=insert("from the hook"),
                    on_done=lambda result, error: None,
                    durable="never",
                    announce=False,
                )
            )
        else:
            finished.set()

    power.writer.after_commit.append(hook)
    power.run_alone(insert("first"))
    assert finished.wait(SECONDS)
    assert summaries == [
        BatchSummary(requests=1, changed=True, durable=True, announce=True),
        BatchSummary(requests=1, changed=True, durable=False, announce=False),
    ]
    assert seen == [[("first",)], [("first",), ("from the hook",)]]


def test_a_hook_that_raises_is_logged_and_the_next_one_runs(power: Database, caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()

    def wrong(summary: BatchSummary) -> None:
        raise KeyError("in a hook")

    power.writer.after_commit += [wrong, lambda summary: called.set()]
    power.run_alone(insert(1))
    assert called.wait(SECONDS)
    assert "in a hook" in caplog.text


def test_hooks_are_not_called_for_what_was_not_committed(power: Database) -> None:
    summaries: list[BatchSummary] = []
    power.writer.after_commit.append(summaries.append)
    with pytest.raises(KeyError):
        power.run_alone(insert_and_raise(KeyError()))
    with pytest.raises(StorageError):
        power.run_alone(insert_orphan)
    power.writer.close()
    assert summaries == []


def test_a_periodic_action_runs_on_an_idle_writer_until_it_is_cancelled(power: Database) -> None:
    threads: list[threading.Thread] = []
    enough = threading.Event()

    def action() -> None:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            raise KeyError("once")
        if len(threads) >= 3:
            enough.set()

    cancel = power.writer.every(0.01, action)
    assert enough.wait(SECONDS)
    cancel()
    power.run_alone(insert(1))  # whatever was under way when it was cancelled is over
    calls = len(threads)
    finished = threading.Event()
    power.writer.every(0.05, finished.set)
    assert finished.wait(SECONDS)
    assert len(threads) == calls
    assert {thread.name for thread in threads} == {"dex-flow-writer"}


def test_an_idle_writer_checkpoints_when_enough_requests_wait(power: Database) -> None:
    wal = power.path.with_name("power.db-wal")
    before = power.path.stat().st_size
    power.run_together(*(insert(bytes(2_000)) for _ in range(600)))
    assert wal.stat().st_size > 600 * 2_000
    checkpointed = threading.Event()
    power.writer.every(0.01, lambda: checkpointed.set() if power.writer.counters.checkpoints else None)
    assert checkpointed.wait(SECONDS)
    assert power.writer.counters.checkpoints == 1
    assert power.path.stat().st_size > before + 600 * 2_000


def test_a_busy_writer_checkpoints_too(power: Database) -> None:
    power.run_together(*(insert(number) for number in range(20_000)))
    assert power.writer.counters.checkpoints >= 2


def test_close_commits_what_was_submitted_and_refuses_the_rest(power: Database) -> None:
    outcomes: list[Outcome] = []
    for number in range(1_000):
        power.writer.submit(
            WriteRequest(apply=insert(number), on_done=lambda result, error: outcomes.append((result, error)))
        )
    power.writer.close()
    assert outcomes == [(number, None) for number in range(1_000)]
    assert power.values() == list(range(1_000))
    with pytest.raises(EngineClosedError, match="closed"):
        power.writer.submit(WriteRequest(apply=insert(0), on_done=lambda result, error: None))
    power.writer.close()


def test_the_writer_thread_cannot_close_itself(power: Database) -> None:
    with pytest.raises(RuntimeError, match="another thread"):
        power.run_alone(lambda connection: power.writer.close())
    assert power.run_alone(insert(1)) == 1
