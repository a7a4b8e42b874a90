"""Executions and processes whose definitions differ: Steps that are gone, and clients without any definition."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dex_flow import (
    ActivityStep,
    Attribute,
    Channel,
    Decision,
    Flow,
    FlowDescription,
    InlineStep,
    Rpc,
    StateView,
    Transaction,
    Wait,
    dead_end,
    go_to_many,
    move,
)
from dex_flow.embedded import EmbeddedEngine

DEADLINE = 60.0

orders = Channel[str]("Orders", str)
shipped = Attribute[str]("Shipped", str)
noted = Attribute[list[str]]("Noted", list[str])


class Begin(InlineStep[str]):
    def execute(self, tx: Transaction, input: str) -> Decision:
        return go_to_many(move(Ship, input), move(Note))


class Note(InlineStep[None]):
    def wait_for(self, view: StateView, input: None) -> Wait:
        return Wait.any_of(orders.receive())

    def execute(self, tx: Transaction, input: None) -> Decision:
        tx.set(noted, [*(tx.get(noted) or []), *tx.wait_result.received])
        return go_to_many(move(Note))


class Ship(ActivityStep[str, str, str]):
    def load(self, view: StateView, input: str) -> str:
        return input

    async def run(self, activity: Any, snapshot: str) -> str:
        return f"shipped {snapshot}"

    def commit(self, tx: Transaction, input: str, outcome: str) -> Decision:
        tx.set(shipped, outcome)
        return dead_end()


order = Rpc[str, int]("order", lambda tx, text: tx.publish(orders, text), str, int)


def make_flow(*, ships: bool) -> Flow:
    return Flow(
        "Shop",
        steps=[Begin(), Note(), *([Ship()] if ships else [])],
        start_step=Begin,
        declarations=[orders, shipped, noted],
        rpcs=[order],
    )


async def ship_step(engine: EmbeddedEngine, status: str) -> FlowDescription:
    """The description once the Ship Step has this status."""
    while True:
        description = await engine.describe_flow("shop")
        if any(step.step_type == "Ship" and step.status == status for step in description.open_steps):
            return description
        await asyncio.sleep(0.01)


def test_an_execution_outlives_a_release_without_one_of_its_steps(tmp_path: Path) -> None:
    whole, without = make_flow(ships=True), make_flow(ships=False)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [whole], runs_worker=False) as client:
            await client.start_flow(whole, "shop", "box")
            await ship_step(client, "ready")
        async with EmbeddedEngine(tmp_path / "db", [without]) as engine:
            description = await ship_step(engine, "backoff")
            (error,) = [step.last_error for step in description.open_steps if step.step_type == "Ship"]
            assert error is not None
            assert error.endswith("flow 'Shop' no longer defines the step 'Ship' as it was begun")
            assert await engine.invoke_rpc(without, "shop", order, "tea") == 1
            assert await engine.wait_until("shop", lambda view: view.get(noted)) == ["tea"]
            assert (await engine.read_step_history("shop"))[1].outcome == "held"
        async with EmbeddedEngine(tmp_path / "db", [whole]) as engine:
            (step_id,) = [
                step.step_execution_id
                for step in (await engine.describe_flow("shop")).open_steps
                if step.step_type == "Ship"
            ]
            assert await engine.skip_timer("shop", step_id) is True
            assert await engine.wait_until("shop", lambda view: view.get(shipped)) == "shipped box"

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
