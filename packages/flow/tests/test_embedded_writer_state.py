"""Rows that commands leave for the end of their transaction, and what the writer thread need not read again."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_flow import (
    Attribute,
    Channel,
    Decision,
    Flow,
    InlineStep,
    Rpc,
    StateView,
    StorageError,
    Transaction,
    Wait,
    dead_end,
    go_to,
)
from dex_flow.embedded import EmbeddedEngine, committed_reads, pending_rows, watchers
from dex_flow.embedded.committed_states import CommittedState, NotKnownError, view_known
from dex_flow.embedded.pending_rows import PendingRows, _ManyRows
from dex_flow.embedded.schema import initialize_schema
from dex_flow.embedded.writer_state import WriterState
from dex_flow.kernel import Changes, HistoryRow, Kernel, KnownState, StartFlow, StoredRequest, timestamp
from dex_flow.testing import MemoryStore

DEADLINE = 60.0

total = Attribute("Total", int)
names = Attribute[list[str]]("Names", list[str])
numbers = Channel("Numbers", int)

slots = st.tuples(st.integers(1, 40), st.sampled_from("ab"), st.sampled_from("xyz"))
attributes = st.lists(st.dictionaries(slots, st.none() | st.binary(max_size=3), max_size=80), max_size=4)


class Add(InlineStep[None]):
    def wait_for(self, view: StateView, input: None) -> Wait:
        return Wait.any_of(numbers.receive())

    def execute(self, tx: Transaction, input: None) -> Decision:
        (number,) = tx.wait_result.received
        if number < 0:
            return dead_end()
        tx.set(total, (tx.get(total) or 0) + number)
        return go_to(Add)


add: Rpc[int, int] = Rpc("add", lambda tx, number: tx.publish(numbers, number), int, int)


def make_flow() -> Flow:
    return Flow("Sums", steps=[Add()], start_step=Add, declarations=[total, names, numbers], rpcs=[add])


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        initialize_schema(opened)
        yield opened


@given(commands=attributes)
def test_what_several_commands_wrote_is_stored_as_if_one_by_one(
    commands: list[dict[tuple[int, str, str], bytes | None]],
) -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        initialize_schema(opened)
        pending = PendingRows()
        model: dict[tuple[int, str, str], bytes] = {}
        for number, written in enumerate(commands):
            for (flow, name, key), value in written.items():
                pending.add_changes(flow, Changes(attributes={(name, key): value}))
            model |= {slot: value for slot, value in written.items() if value is not None}
            model = {slot: value for slot, value in model.items() if written.get(slot, b"") is not None}
            if number == 1:
                pending.flush(opened)
        pending.flush(opened)
        stored = opened.execute("SELECT flow, name, key, value FROM attribute").fetchall()
    assert {(flow, name, key): value for flow, name, key, value in stored} == model


@pytest.mark.parametrize("count", [1, 2, 3, 5, 17, 63, 64, 65, 200])
def test_any_number_of_rows_is_written(connection: sqlite3.Connection, count: int) -> None:
    pending = PendingRows()
    for key in range(1, count + 1):
        connection.execute(
            "INSERT INTO flow VALUES (?, ?, 'Sums', '', 'open', NULL, 0, 1, 0, 0, NULL, 0, x'')", (key, f"flow-{key}")
        )
        pending.put_flow(key, ("open", 7, 3, 2, 1, 0, None, 99, b"header"))
        history = HistoryRow(1, 1, "Add", "execute", 1, "succeeded", 1, 2, None)
        request = StoredRequest("request", 1, "rpc:add", "digest", b"1", 5)  # type: ignore[arg-type]
        pending.add_changes(
            key,
            Changes(
                attributes={("Total", ""): b"1"},
                published=[("Numbers", "", 1, b"5")],
                step_bodies={1: b"[1]"},
                history=[history],
                requests=[request],
            ),
        )
        pending.add_events(key, 1, 1, [b'"a"'])
        pending.add_events(key, 1, 2, [b'"b"', b'"c"'])
    pending.flush(connection)
    tables = ("attribute", "message", "step_body", "history", "request", "event_batch", "stream_position")
    counts = [connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables]
    assert counts == [count] * len(tables)
    columns = "status, owner, epoch, version, active_steps, has_ready, next_due, updated_at, header"
    assert set(connection.execute(f"SELECT {columns} FROM flow")) == {("open", 7, 3, 2, 1, 0, None, 99, b"header")}
    batches = connection.execute("SELECT DISTINCT first_position, event_count, size, body FROM event_batch").fetchall()
    assert batches == [(1, 3, 13, b'["a","b","c"]')]
    assert connection.execute("SELECT DISTINCT next_position FROM stream_position").fetchall() == [(4,)]

    for key in range(1, count + 1):
        gone = Changes(
            attributes={("Total", ""): None},
            consumed=[("Numbers", "", 1)],
            step_bodies={1: None},
            forgotten_requests=["request"],
        )
        pending.add_changes(key, gone)
    pending.flush(connection)
    left = [connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables]
    assert left == [0, 0, 0, count, 0, count, count]


def test_a_message_that_is_consumed_in_its_transaction_is_never_written(connection: sqlite3.Connection) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    pending = PendingRows()
    pending.add_changes(1, Changes(published=[("Numbers", "", 1, b"5")]))
    pending.add_changes(1, Changes(consumed=[("Numbers", "", 1)]))
    pending.flush(connection)
    assert statements == []


def test_no_statement_reads_a_whole_table(connection: sqlite3.Connection) -> None:
    many = [value for value in vars(pending_rows).values() if isinstance(value, _ManyRows)]
    assert len(many) > 8
    for size, statement in (pair for rows in many for pair in rows.statements):
        parameters = [None] * statement.count("?")
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
        scans = [line for line in plan if re.match(r"SCAN (?!\d+ CONSTANT ROWS|CONSTANT ROW|\(subquery-\d+\))", line)]
        assert not scans, (size, statement, plan)


def test_rows_are_read_again_after_a_foreign_commit_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "sums.db", [flow]) as engine:
            await engine.start_flow(flow, "sum")
            statements: list[str] = []
            writer = engine._database.writer
            await writer.write(lambda connection: connection.set_trace_callback(statements.append))
            for number in range(3):
                await engine.invoke_rpc(flow, "sum", add, number)
            assert [text for text in statements if text.startswith("SELECT")] == []
            with contextlib.closing(sqlite3.connect(tmp_path / "sums.db")) as other:
                other.execute("UPDATE flow SET version = version + 1")
                other.commit()
            with contextlib.closing(sqlite3.connect(tmp_path / "sums.db")) as other:
                (version,) = other.execute("SELECT version FROM flow").fetchone()
            await engine.invoke_rpc(flow, "sum", add, 5)
            assert any(text.startswith("SELECT key, flow_type") for text in statements)
            with contextlib.closing(sqlite3.connect(tmp_path / "sums.db")) as other:
                assert other.execute("SELECT version FROM flow").fetchone() == (version + 1,)
            assert await engine.get_attribute("sum", total) == 8

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_live_events_of_another_process_move_the_position(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    with (
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as own,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        own.execute("PRAGMA journal_mode = WAL")
        initialize_schema(own)
        own.execute("INSERT INTO flow VALUES (1, 'sum', 'Sums', '', 'open', NULL, 0, 1, 0, 0, NULL, 0, x'')")
        state = WriterState()
        state.begin(own)
        hot = state.find(own, "sum")
        assert hot is not None
        hot.positions[1] = 4
        state.begin(own)
        assert state.find(own, "sum") is hot
        assert hot.positions == {1: 4}
        other.execute("INSERT INTO stream_position VALUES (1, 1, 9)")
        state.begin(own)
        assert state.find(own, "sum") is hot, "the version is the same"
        assert hot.positions == {}


def test_commands_of_one_flow_in_one_transaction_see_each_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "sums.db", [flow]) as engine:
            other_definition = make_flow()
            started = engine.start_flow(flow, "sum")
            # Every other call comes under a definition of its own, which knows nothing and has to read.
            calls = [
                engine.invoke_rpc(flow if number % 2 else other_definition, "sum", add, number) for number in range(40)
            ]
            await asyncio.gather(started, *calls)
            assert await engine.get_attribute("sum", total) == sum(range(40))
            positions = [entry.number for entry in await engine.read_step_history("sum")]
            assert positions == list(range(1, len(positions) + 1))

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_a_refused_transaction_leaves_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "sums.db", [flow]) as engine:
            await engine.start_flow(flow, "sum")
            await engine.invoke_rpc(flow, "sum", add, 1)
            flush = PendingRows.flush

            def refuse(self: PendingRows, connection: sqlite3.Connection) -> None:
                flush(self, connection)
                raise sqlite3.OperationalError("refused")

            with monkeypatch.context() as patch:
                patch.setattr(PendingRows, "flush", refuse)
                with pytest.raises(StorageError):
                    await engine.invoke_rpc(flow, "sum", add, 100)
            await engine.invoke_rpc(flow, "sum", add, 2)
            assert await engine.get_attribute("sum", total) == 3

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_a_wait_is_answered_from_memory_and_by_other_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_reads, "_FALLBACK_SECONDS", 10 * DEADLINE)

    async def scenario() -> None:
        flow, other_definition = make_flow(), make_flow()
        path = tmp_path / "sums.db"
        async with EmbeddedEngine(path, [flow]) as engine, EmbeddedEngine(path, [other_definition]) as other:
            await engine.start_flow(flow, "sum")
            reads: list[Any] = []
            read = engine._reader.read

            async def counted(code: Any) -> Any:
                reads.append(code)
                return await read(code)

            def reached(amount: int) -> asyncio.Task[bool]:
                return asyncio.create_task(engine.wait_until("sum", lambda view: (view.get(total) or 0) >= amount))

            monkeypatch.setattr(engine._reader, "read", counted)
            waiting = reached(6)
            while not reads:
                await asyncio.sleep(0)
            for number in (1, 2, 3):
                await engine.invoke_rpc(flow, "sum", add, number)
            assert await waiting
            found = [code for code in reads if "wait_until" in code.__qualname__]
            assert len(found) == 1

            waiting = reached(10)
            await other.invoke_rpc(other_definition, "sum", add, 4)
            assert await waiting
            waiting = reached(15)
            await engine.invoke_rpc(make_flow(), "sum", add, 5)
            assert await waiting

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_code_that_hides_a_missing_value_is_not_believed() -> None:
    kernel = Kernel(make_flow())
    store = MemoryStore()
    changes = kernel.apply(store, "sum", 1, StartFlow(b"null")).changes
    assert changes is not None
    state = CommittedState(kernel, 1, "open", changes.header, KnownState())

    def hide(view: StateView) -> int:
        try:
            return view.get(total) or 1
        except Exception:
            return 2

    with pytest.raises(NotKnownError):
        view_known(state, "sum", 1, hide)
    assert view_known(state._replace(known=changes.known), "sum", 1, lambda view: view.count_messages(numbers)) == 0


def test_a_foreign_commit_wakes_only_those_whose_execution_it_changed() -> None:
    async def scenario() -> None:
        watching = watchers.Watchers(asyncio.get_running_loop())
        with watching.watch("same") as same, watching.watch("other") as other, watching.watch("stream") as stream:
            same.version, other.version = 3, 3
            assert sorted(watching.watched) == ["other", "same", "stream"]
            watching.look({"same": 3, "other": 4, "stream": 3, "unwatched": 1}, checks_time=False)
            assert [watch.event.is_set() for watch in (same, other, stream)] == [False, True, True]
            watching.look({"same": 3}, checks_time=True)
            assert same.event.is_set()

    asyncio.run(scenario())


def test_a_wait_for_a_time_needs_no_commit(tmp_path: Path) -> None:
    now = [1_750_000_000_000_000]

    async def scenario() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "sums.db", [flow], clock=lambda: now[0]) as engine:
            await engine.start_flow(flow, "sum")
            due = timestamp(now[0] + 1_000_000)
            waiting = asyncio.create_task(engine.wait_until("sum", lambda view: view.now >= due))
            await engine.describe_flow("sum")
            now[0] += 2_000_000
            assert await waiting

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
