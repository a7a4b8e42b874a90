"""Executions and processes whose definitions differ: Steps that are gone, and clients without any definition."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dex_flow import (
    ActivityStep,
    Attribute,
    AttributeMap,
    Channel,
    Decision,
    Flow,
    FlowClosedError,
    FlowDefinitionMismatchError,
    FlowDescription,
    FlowNotFoundError,
    InlineStep,
    Rpc,
    StateView,
    Transaction,
    Wait,
    dead_end,
    fail,
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


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, DEADLINE))


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

    run(scenario())


def has_shipped(view: StateView) -> str | None:
    return view.get(shipped)


def test_an_engine_without_definitions_waits_reads_describes_and_lists(tmp_path: Path) -> None:
    flow = make_flow(ships=True)
    prices = AttributeMap[int]("Prices", int)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow]) as engine, EmbeddedEngine(tmp_path / "db") as client:
            assert await client.start_flow(flow, "shop", "box") is True
            assert await client.wait_until("shop", has_shipped) == "shipped box"
            assert await engine.wait_until("shop", has_shipped) == "shipped box"
            waiting = asyncio.create_task(client.wait_until("shop", lambda view: view.get(noted)))
            assert await client.invoke_rpc(flow, "shop", order, "tea") > 0
            assert await waiting == ["tea"]
            view_of_everything = await client.wait_until(
                "shop",
                lambda view: (
                    view.flow_id,
                    view.now.tzinfo is not None,
                    view.get_instance(prices, "tea"),
                    view.read_range(prices),
                    view.list_messages(orders),
                    view.count_messages(orders),
                ),
            )
            assert view_of_everything == ("shop", True, None, [], [], 0)
            assert (await client.describe_flow("shop")).flow_type == "Shop"
            assert [found.flow_id for found in await client.list_flows()] == ["shop"]
            assert (await client.read_step_history("shop"))[0].step_type == "Begin"
            with pytest.raises(FlowNotFoundError):
                await client.wait_until("nowhere", has_shipped)

    run(scenario())


@pytest.mark.parametrize("command", ["skip_timer", "stop_flow"])
def test_what_needs_a_definition_says_which(tmp_path: Path, command: str) -> None:
    flow = make_flow(ships=True)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db") as client:
            await client.start_flow(flow, "shop", "box")
            with pytest.raises(FlowDefinitionMismatchError, match=r"flow 'shop' is a 'Shop', .* in flows=\[...\]"):
                await (client.skip_timer("shop", 1) if command == "skip_timer" else client.stop_flow("shop"))

    run(scenario())


@pytest.mark.parametrize("knows", [True, False])
def test_a_timeout_says_what_was_awaited(tmp_path: Path, knows: bool) -> None:
    flow = make_flow(ships=True)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow] if knows else [], runs_worker=False) as client:
            await client.start_flow(flow, "shop", "box")
            with pytest.raises(TimeoutError) as raised:
                await client.wait_until("shop", partial(has_shipped), timeout=0.01)
            text = str(raised.value)
            assert text.startswith(f"flow 'shop' did not satisfy has_shipped ({__file__}:")
            assert text.endswith("within 0.01 s; it is open, with step Ship ready, step Note waiting")

    run(scenario())


def test_waiting_for_a_closed_flow_says_how_it_ended(tmp_path: Path) -> None:
    class Break(InlineStep[str]):
        def execute(self, tx: Transaction, input: str) -> Decision:
            return fail(f"no {input} left")

    flow = Flow("Broken", steps=[Break()], start_step=Break, declarations=[orders], rpcs=[order])

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow]) as engine:
            await engine.start_flow(flow, "broken", "tea")
            with pytest.raises(FlowClosedError) as waited:
                await engine.wait_until("broken", has_ended)
            with pytest.raises(FlowClosedError) as called:
                await engine.invoke_rpc(flow, "broken", order, "tea")
            for raised in (waited, called):
                assert (raised.value.status, raised.value.failure) == ("failed", "no tea left")
                assert str(raised.value).endswith("is failed and accepts no further command: no tea left")

    def has_ended(view: StateView) -> None:
        return None

    run(scenario())


def test_a_condition_is_a_plain_function(tmp_path: Path) -> None:
    async def condition(view: StateView) -> bool:
        return True

    awaited: Any = condition

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db") as client:
            with pytest.raises(TypeError, match=r"condition .* must be a plain function"):
                await client.wait_until("shop", awaited)

    run(scenario())


def test_a_misspelt_choice_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    flow = make_flow(ships=True)
    typo: Any = "ingore"

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow], runs_worker=False) as client:
            with pytest.raises(ValueError, match="already_started must be one of 'error', 'ignore', not 'ingore'"):
                await client.start_flow(flow, "shop", "box", already_started=typo)
            assert await client.list_flows() == []
            with pytest.raises(ValueError, match=r"status must be one of None, 'open', .*, not 'ingore'"):
                await client.list_flows(status=typo)

    run(scenario())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"durability": "disk"}, "durability must be 'power' or 'process', not 'disk'"),
        ({"worker_timeout": 0}, "worker_timeout must be more than 0 s"),
        ({"shutdown_grace": -1}, "shutdown_grace not negative"),
        ({"max_concurrent_steps": 0}, "max_concurrent_steps must be at least 1"),
        ({"flows": make_flow(ships=True)}, "flows must be a list of Flow definitions, not Flow"),
        ({"flows": [Begin]}, "flows must be a list of Flow definitions, not <class"),
    ],
)
def test_wrong_options_of_an_engine(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EmbeddedEngine(tmp_path / "db", **options)


def test_an_engine_option_that_does_not_exist(tmp_path: Path) -> None:
    options: dict[str, Any] = {"worker_timeot": 1}
    with pytest.raises(TypeError, match="worker_timeot"):
        EmbeddedEngine(tmp_path / "db", **options)
