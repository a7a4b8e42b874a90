"""Parts of the demo that need no worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dex_agents import AgentSessionClient
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.demo_files import demo_files
from dex_agents_server.demo.facts import EventWritten, Fact, Happened, MessageStored, PhaseStarted, StepFinished
from dex_agents_server.demo.orders_database import OrdersDatabase, UnknownOrderError
from dex_agents_server.demo.session_feed import follow_session
from dex_agents_server.demo.support_agent import create_support_flow
from dex_agents_server.demo.timeline import Timeline
from dex_flow.embedded import EmbeddedEngine

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_orders_count_every_run_and_every_payment(tmp_path: Path) -> None:
    orders = OrdersDatabase.create(tmp_path / "orders.db")
    assert orders.find_order(7).price == "$129.00"
    for _ in range(2):
        run = orders.record_run_started("session", "refund_order", 7, "key")
        orders.refund_order(7)
        orders.record_effect_done(run)
    orders.record_run_started("another session", "refund_order", 7, "key")
    assert orders.count_tool_runs("session") == {"refund_order": 2}
    assert orders.find_order(7).refunds == 2
    with pytest.raises(UnknownOrderError, match="no order 8"):
        orders.find_order(8)


def test_a_temporary_folder_is_removed_whatever_happens() -> None:
    folders = []

    def fail() -> None:
        with demo_files(None) as files:
            files.orders.write_text("x")
            folders.append(files.folder)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert [folder.exists() for folder in folders] == [False]


def test_a_kept_folder_must_be_empty(tmp_path: Path) -> None:
    with demo_files(tmp_path / "new") as files:
        files.orders.write_text("x")
    assert files.orders.exists()
    with pytest.raises(DemoError, match="is not empty"), demo_files(tmp_path / "new"):
        pass


def test_the_agent_asks_for_a_missing_order_number_and_the_feed_reports_each_fact_once(tmp_path: Path) -> None:
    flow = create_support_flow(OrdersDatabase.create(tmp_path / "orders.db"))
    facts: list[Fact] = []

    async def talk() -> None:
        async with EmbeddedEngine(tmp_path / "sessions.db", [flow]) as engine:
            sessions = AgentSessionClient(engine, flow)
            await sessions.start_session("session", initial_message="I want my money back")
            async with follow_session(engine, flow, "session", facts.append) as feed:
                await sessions.wait_until_idle("session", timeout=60)
                await feed.collect()
                await feed.collect()
            assert [message.role for message in feed.messages] == ["user", "assistant"]

    asyncio.run(talk())
    texts = [fact.message.text for fact in facts if isinstance(fact, MessageStored)]
    assert texts == ["I want my money back", "Which order is it? Please send me its number."]
    positions = [fact.event.position for fact in facts if isinstance(fact, EventWritten)]
    assert positions == list(range(1, len(positions) + 1))
    # A live event bears the time it was written, which is before the commit that brings it.
    committed = [fact.at for fact in facts if not (isinstance(fact, EventWritten) and fact.event.type == "text_delta")]
    assert committed == sorted(committed)
    assert {fact.entry.step_type for fact in facts if isinstance(fact, StepFinished)} == {
        "StartAgentSession",
        "RunModel",
    }


def test_the_timeline_shows_seconds_since_its_start() -> None:
    output = StringIO()
    timeline = Timeline(Console(file=output, width=100), NOON)
    with timeline:
        timeline.show(PhaseStarted(at=NOON, number=1, total=6, title="A customer asks"))
        timeline.show(Happened(at=NOON + timedelta(seconds=1.5), who="kill", text="SIGKILL to worker 1"))
    lines = [line.split() for line in output.getvalue().splitlines()]
    assert ["[1/6]", "A", "customer", "asks"] in lines
    assert ["1.500", "s", "KILL", "SIGKILL", "to", "worker", "1"] in lines
