"""Several processes commit to the same executions as fast as they can: nothing is lost, and the gate is held."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from dex_flow import (
    Attribute,
    AttributeMap,
    Channel,
    Decision,
    Flow,
    InlineStep,
    Rpc,
    StateView,
    Transaction,
    Wait,
    go_to,
)
from dex_flow.embedded import EmbeddedEngine
from dex_flow.embedded.schema import initialize_schema
from dex_flow.embedded.shared_file import acquire

pytestmark = pytest.mark.processes

DEADLINE = 90.0
PROCESSES = 3
CALLS = 240
FLOWS = [f"flow-{number}" for number in range(3)]
STATEMENTS = ("COMMIT", "PRAGMA wal_checkpoint")

calls = Attribute("Calls", int)
handled = Attribute("Handled", int)
by_key = AttributeMap("ByKey", int)
waiting = Channel("Waiting", int)

#: Tries the lock of the gate whenever it is asked to.
PROBE = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    for _ in sys.stdin:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("held", flush=True)
        else:
            fcntl.lockf(file, fcntl.LOCK_UN)
            print("free", flush=True)
"""


class Handle(InlineStep[None]):
    def wait_for(self, view: StateView, input: None) -> Wait:
        return Wait.any_of(waiting.receive())

    def execute(self, tx: Transaction, input: None) -> Decision:
        tx.set(handled, (tx.get(handled) or 0) + 1)
        return go_to(Handle)


def _call(tx: Transaction, number: int) -> None:
    tx.set(calls, (tx.get(calls) or 0) + 1)
    key = str(number % 5)
    tx.set_instance(by_key, key, (tx.get_instance(by_key, key) or 0) + 1)
    tx.publish(waiting, number)


call: Rpc[int, None] = Rpc("call", _call, int, type(None))


def make_flow() -> Flow:
    return Flow(
        "Load",
        steps=[Handle()],
        start_step=Handle,
        declarations=[calls, handled, by_key, waiting],
        rpcs=[call],
    )


async def call_often(path: Path) -> None:
    """What each process does."""
    flow = make_flow()

    async def some(first: int) -> None:
        for number in range(first, CALLS, 4):
            await engine.invoke_rpc(flow, FLOWS[number % len(FLOWS)], call, number)

    async with EmbeddedEngine(path, [flow], durability="process") as engine:
        for flow_id in FLOWS:
            await engine.start_flow(flow, flow_id, already_started="ignore")
        await asyncio.gather(*(some(first) for first in range(4)))


def test_what_other_processes_committed_in_between_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "flows.sqlite3"
    command = [sys.executable, "-m", __name__, str(path)]
    folder = Path(__file__).parents[__name__.count(".")]
    processes = [subprocess.Popen(command, cwd=folder) for _ in range(PROCESSES)]
    try:
        assert [process.wait(DEADLINE) for process in processes] == [0] * PROCESSES
    finally:
        for process in processes:
            process.kill()
            process.wait()

    async def count() -> list[tuple[object, object, int]]:
        async with EmbeddedEngine(path, [make_flow()]) as engine:
            counts: list[tuple[object, object, int]] = []
            for flow_id in FLOWS:
                by_keys = 0
                for key in range(5):
                    by_keys += await engine.get_attribute_instance(flow_id, by_key, str(key)) or 0
                total = await engine.get_attribute(flow_id, calls)
                done = await engine.get_attribute(flow_id, handled)
                counts.append((total, done, by_keys))
            return counts

    each = PROCESSES * CALLS // len(FLOWS)
    assert asyncio.run(count()) == [(each, each, each)] * len(FLOWS)


def test_the_gate_is_held_at_every_commit_and_checkpoint_under_load(tmp_path: Path) -> None:
    path = tmp_path / "flows.sqlite3"
    database = acquire(path, "process", initialize_schema)
    probe = subprocess.Popen(
        [sys.executable, "-c", PROBE, f"{path}.gate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    seen: list[tuple[str, str]] = []

    def ask(statement: str) -> None:
        if statement.startswith(STATEMENTS):
            assert probe.stdin is not None
            assert probe.stdout is not None
            print(file=probe.stdin, flush=True)
            seen.append((statement.split("(")[0], probe.stdout.readline().strip()))

    async def load() -> None:
        flow = make_flow()
        async with EmbeddedEngine(path, [flow], durability="process") as engine:
            await database.writer.write(lambda connection: connection.set_trace_callback(ask))
            await engine.start_flow(flow, FLOWS[0])
            for _ in range(6):
                await asyncio.gather(*(engine.invoke_rpc(flow, FLOWS[0], call, number) for number in range(100)))
            async with asyncio.timeout(DEADLINE):
                while database.writer.counters.checkpoints == 0:
                    await asyncio.sleep(0.005)
            await database.writer.write(lambda connection: connection.set_trace_callback(None))

    try:
        asyncio.run(load())
    finally:
        database.release()
        probe.communicate(timeout=DEADLINE)
    assert {answer for _, answer in seen} == {"held"}
    assert {statement for statement, _ in seen} == set(STATEMENTS)


if __name__ == "__main__":
    asyncio.run(call_often(Path(sys.argv[1])))
