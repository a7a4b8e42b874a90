"""Parts of the demo that need no worker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from dex_agents_server.demo.demo_error import KeepFolderError
from dex_agents_server.demo.demo_files import demo_files
from dex_agents_server.demo.facts import EventWritten, Fact, MessageStored, StepFinished
from dex_agents_server.demo.orders_database import OrdersDatabase, UnknownOrderError
from dex_agents_server.demo.pauses import ANSWER, TURN_END, Pauses, tool_pause
from dex_agents_server.demo.session_feed import follow_session
from dex_agents_server.demo.support_agent import create_support_flow
from dex_agents_server.demo.worker_messages import (
    ModelCallCancelled,
    Paused,
    WorkerMessage,
    WorkerReady,
    decode_worker_message,
    encode_worker_message,
)
from dex_agents_stepwise import ScriptedModelReply
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
    with pytest.raises(KeepFolderError, match="is not empty"), demo_files(tmp_path / "new"):
        pass


def test_the_feed_reports_each_fact_once_in_the_order_of_commits(tmp_path: Path) -> None:
    flow = create_support_flow(
        OrdersDatabase.create(tmp_path / "orders.db"),
        lambda request, pauses: ScriptedModelReply(text="Which order is it?"),
    )
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
    assert texts == ["I want my money back", "Which order is it?"]
    positions = [fact.event.position for fact in facts if isinstance(fact, EventWritten)]
    assert positions == list(range(1, len(positions) + 1))
    # A live event bears the time it was written, which is before the commit that brings it.
    committed = [fact.at for fact in facts if not (isinstance(fact, EventWritten) and fact.event.type == "text_delta")]
    assert committed == sorted(committed)
    assert {fact.entry.step_type for fact in facts if isinstance(fact, StepFinished)} == {
        "StartAgentSession",
        "RunModel",
    }


def test_a_pause_tells_where_it_is_and_ends_with_the_release() -> None:
    told: list[WorkerMessage] = []
    blocked: list[str] = []

    async def pause() -> None:
        pauses = Pauses([tool_pause("lookup_order", 7), TURN_END], told.append, lambda: blocked.append("here"))
        await pauses.reach(tool_pause("lookup_order", 12))
        assert told == []
        waiting = asyncio.create_task(pauses.reach(tool_pause("lookup_order", 7)))
        await asyncio.sleep(0)
        assert not waiting.done()
        pauses.release()
        await waiting
        pauses.reach_and_block(TURN_END)
        assert pauses.hold_reply(ANSWER, after_deltas=1) is None

    asyncio.run(pause())
    assert [message.point for message in told if isinstance(message, Paused)] == ["lookup_order-7", "turn-end"]
    assert blocked == ["here"]


def test_a_held_reply_tells_that_its_model_call_was_cancelled() -> None:
    told: list[WorkerMessage] = []

    async def cancel() -> None:
        hold = Pauses([ANSWER], told.append).hold_reply(ANSWER, after_deltas=4)
        assert hold is not None
        assert hold.after_deltas == 4
        waiting = asyncio.create_task(hold.stop_reply())
        await hold.wait_until_reached()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancel())
    assert [type(message) for message in told] == [Paused, ModelCallCancelled]


@pytest.mark.parametrize("message", [WorkerReady(NOON), Paused("answer", NOON), ModelCallCancelled(NOON)])
def test_worker_messages_survive_their_line(message: WorkerMessage) -> None:
    line = encode_worker_message(message)
    assert "\n" not in line
    assert decode_worker_message(line.encode()) == message
