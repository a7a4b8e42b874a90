"""What is kept in memory never shows through: stale states, values changed in place, rows of other requests."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dex_flow import Attribute, Decision, Flow, InlineStep, Rpc, StateView, StorageError, Transaction, dead_end
from dex_flow.embedded import EmbeddedEngine, committed_states
from dex_flow.embedded.flow_store import find_flow
from dex_flow.embedded.group_writer import WriteRequest
from dex_flow.embedded.schema import initialize_schema
from dex_flow.embedded.shared_file import acquire
from dex_flow.embedded.writer_state import WriterStateReader
from dex_flow.kernel import Changes

DEADLINE = 60.0


class Basket(msgspec.Struct):
    """A value that can be changed in place."""

    items: list[str]


number = Attribute("Number", int)
names = Attribute[list[str]]("Names", list[str])
basket = Attribute("Basket", Basket)


class Begin(InlineStep[None]):
    def execute(self, tx: Transaction, input: None) -> Decision:
        tx.set(names, ["first"])
        tx.set(basket, Basket(["first"]))
        return dead_end()


def _add_and_fail(tx: Transaction, name: str) -> None:
    known = tx.get(names)
    assert known is not None
    known.append(name)
    tx.set(names, known)
    raise ValueError("after the change")


def _read_names(tx: Transaction, input: None) -> list[str] | None:
    return tx.get(names)


def _read_basket(tx: Transaction, input: None) -> Basket:
    value = tx.get(basket)
    assert value is not None
    return value


def _put_basket(tx: Transaction, item: str) -> Basket:
    value = Basket([item])
    tx.set(basket, value)
    return value


set_number: Rpc[int, None] = Rpc("set_number", lambda tx, value: tx.set(number, value), int, type(None))
add_and_fail: Rpc[str, None] = Rpc("add_and_fail", _add_and_fail, str, type(None))
read_names: Rpc[None, list[str] | None] = Rpc("read_names", _read_names, type(None), list[str] | None)
read_basket: Rpc[None, Basket] = Rpc("read_basket", _read_basket, type(None), Basket)
put_basket: Rpc[str, Basket] = Rpc("put_basket", _put_basket, str, Basket)


def make_flow() -> Flow:
    return Flow(
        "Memory",
        steps=[Begin()],
        start_step=Begin,
        declarations=[number, names, basket],
        rpcs=[set_number, add_and_fail, read_names, read_basket, put_basket],
    )


def run(main: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await main

    asyncio.run(bounded())


def test_a_wait_does_not_end_with_a_state_that_was_over_before_it_began(tmp_path: Path) -> None:
    async def main() -> None:
        path, flow, others = tmp_path / "flows.sqlite3", make_flow(), make_flow()
        async with EmbeddedEngine(path, [flow]) as engine, EmbeddedEngine(path, [others]) as other:
            await engine.start_flow(flow, "f")
            await engine.invoke_rpc(flow, "f", set_number, 1)
            await other.invoke_rpc(others, "f", set_number, 2)

            looks = 0

            def is_one(view: StateView) -> bool:
                nonlocal looks
                looks += 1
                return view.get(number) == 1

            waiting = asyncio.ensure_future(engine.wait_until("f", is_one))
            # The regular look comes without any commit; a few more would return what the first one found.
            while looks < 5 and not waiting.done():
                await asyncio.wait({waiting}, timeout=0.01)
            assert not waiting.done()
            await other.invoke_rpc(others, "f", set_number, 1)
            assert await waiting

    run(main())


def test_what_failed_code_changed_in_place_is_undone(tmp_path: Path) -> None:
    async def main() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "flows.sqlite3", [flow]) as engine:
            await engine.start_flow(flow, "f")
            with pytest.raises(ValueError, match="after the change"):
                await engine.invoke_rpc(flow, "f", add_and_fail, "undone")
            assert await engine.invoke_rpc(flow, "f", read_names, None) == ["first"]

    run(main())


def test_a_caller_that_changes_an_output_changes_nothing_stored(tmp_path: Path) -> None:
    async def main() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "flows.sqlite3", [flow]) as engine:
            await engine.start_flow(flow, "f")
            output = await engine.invoke_rpc(flow, "f", read_basket, None)
            output.items.append("the caller's")
            assert (await engine.invoke_rpc(flow, "f", read_basket, None)).items == ["first"]
            output = await engine.invoke_rpc(flow, "f", put_basket, "second")
            output.items.append("the caller's")
            assert (await engine.invoke_rpc(flow, "f", read_basket, None)).items == ["second"]

    run(main())


def test_a_request_id_that_no_store_can_hold_fails_its_call_alone(tmp_path: Path) -> None:
    async def main() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "flows.sqlite3", [flow]) as engine:
            starts = [engine.start_flow(flow, f"f{n}", request_id=f"r{n}") for n in range(4)]
            bad = engine.start_flow(flow, "bad", request_id="\ud800")
            *good, refused = await asyncio.gather(*starts, bad, return_exceptions=True)
            assert good == [True] * 4
            assert isinstance(refused, ValueError)

    run(main())


def test_what_reads_add_to_states_in_memory_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_states, "_MOST_BYTES", 1_000)

    async def main() -> None:
        flow = make_flow()
        async with EmbeddedEngine(tmp_path / "flows.sqlite3", [flow]) as engine:
            await engine.start_flow(flow, "f")
            await engine.invoke_rpc(flow, "f", set_number, 1)
            known = engine._reads.states.get("f")
            assert known is not None
            known.known.add_channel("Later", "", [(1, b"x" * 2_000)])  # as a read of the file does
            assert await engine.wait_until("f", lambda view: view.get(number)) == 1
            assert engine._reads.states.get("f") is None
            hot = engine._database.writer_state._flows.get("f")
            assert await engine.invoke_rpc(flow, "f", read_names, None) == ["first"]
            assert engine._database.writer_state._flows.get("f") is not hot

    run(main())


def test_rows_that_cannot_be_written_fail_everyone_whose_rows_are_lost(tmp_path: Path) -> None:
    database = acquire(tmp_path / "flows.sqlite3", "process", initialize_schema)
    state = database.writer_state
    outcomes: list[tuple[str, Exception | None]] = []
    is_done = threading.Event()

    def leave_rows(connection: sqlite3.Connection) -> None:
        state.pending.add_changes(7, Changes(attributes={("\ud800", ""): b"1"}))

    def read_rows(connection: sqlite3.Connection) -> None:
        row = find_flow(connection, "f")
        assert row is not None
        WriterStateReader(connection, row, state).attribute("Number", "")

    def submit_both(connection: sqlite3.Connection) -> None:
        # From the writer thread, so that both are in the next batch.
        connection.execute("INSERT INTO flow VALUES (7, 'f', 'Memory', '', 'open', NULL, 0, 1, 0, 0, NULL, 0, x'')")
        for name, apply in (("leave", leave_rows), ("read", read_rows)):

            def note(_: None, error: Exception | None, name: str = name) -> None:
                outcomes.append((name, error))
                if len(outcomes) == 2:
                    is_done.set()

            database.writer.submit(WriteRequest(apply=apply, on_done=note, raises_before_writing=True))

    try:
        database.writer.submit(WriteRequest(apply=submit_both, on_done=lambda _, error: None))
        assert is_done.wait(DEADLINE)
    finally:
        database.release()
    assert [(name, type(error)) for name, error in outcomes] == [("leave", StorageError), ("read", StorageError)]
