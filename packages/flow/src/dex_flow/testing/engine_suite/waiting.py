"""Waits on channels: order, counts, any of, all of, and messages that are consumed exactly once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dex_flow.engine import Engine
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase
from dex_flow.testing.engine_suite.mailbox_flow import (
    CANCEL,
    COUNT,
    DELETE,
    LIST_MESSAGES,
    LISTEN,
    PUBLISH,
    PURGE,
    RECEIVED,
    TAKE,
    Address,
    Delivery,
    ListenPlan,
    Received,
    WaitPart,
    mailbox_flow,
)

__all__ = ["WaitingTests"]

ALERTS = Address("alerts")
FLOW = mailbox_flow()


async def publish(engine: Engine, flow_id: str, *texts: str, address: Address | None = None) -> list[int]:
    """Append messages and return their IDs."""
    delivery = Delivery(list(texts), address or Address())
    return await engine.invoke_rpc(FLOW, flow_id, PUBLISH, delivery)


async def received(engine: Engine, flow_id: str, name: str) -> Received:
    """What ended the wait of this Listen."""
    return await engine.wait_until(flow_id, lambda view: view.get_instance(RECEIVED, name))


async def listed(engine: Engine, flow_id: str, address: Address | None = None) -> list[str]:
    """The texts that wait."""
    rows = await engine.invoke_rpc(FLOW, flow_id, LIST_MESSAGES, address or Address())
    return [text for _, text in rows]


class WaitingTests(EngineSuiteBase):
    """Channels and waits."""

    def test_a_message_wakes_a_waiting_step(self, tmp_path: Path) -> None:
        """It is consumed, and the Step sees it."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "wake", [ListenPlan("one", [WaitPart()])])
            assert await engine.get_attribute_instance("wake", RECEIVED, "one") is None
            await publish(engine, "wake", "hello")
            result = await received(engine, "wake", "one")
            assert (result.index, result.messages) == (0, [["hello"]])
            assert await listed(engine, "wake") == []
            assert (await engine.describe_flow("wake")).open_steps == ()

        self.play(tmp_path, FLOW, scenario)

    def test_a_message_that_came_before_the_wait_is_not_missed(self, tmp_path: Path) -> None:
        """A queue keeps what nobody waited for yet."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "early", [])
            await publish(engine, "early", "first", "second")
            await engine.invoke_rpc(FLOW, "early", LISTEN, ListenPlan("one", [WaitPart()]))
            assert (await received(engine, "early", "one")).messages == [["first"]]
            assert await listed(engine, "early") == ["second"]

        self.play(tmp_path, FLOW, scenario)

    def test_a_count_waits_for_that_many_in_order(self, tmp_path: Path) -> None:
        """Nothing is consumed before all are there."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "three", [ListenPlan("three", [WaitPart(count=3)])])
            await publish(engine, "three", "a")
            await publish(engine, "three", "b")
            assert await engine.get_attribute_instance("three", RECEIVED, "three") is None
            assert await listed(engine, "three") == ["a", "b"]
            await publish(engine, "three", "c", "d")
            assert (await received(engine, "three", "three")).messages == [["a", "b", "c"]]
            assert await listed(engine, "three") == ["d"]

        self.play(tmp_path, FLOW, scenario)

    def test_any_of_takes_the_first_satisfied_condition_in_declared_order(self, tmp_path: Path) -> None:
        """Messages of its other conditions stay."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "any", [])
            await publish(engine, "any", "mail")
            await publish(engine, "any", "alert", address=ALERTS)
            parts = [WaitPart("rooms", "empty"), WaitPart("alerts"), WaitPart()]
            await engine.invoke_rpc(FLOW, "any", LISTEN, ListenPlan("first", parts))
            result = await received(engine, "any", "first")
            assert (result.index, result.messages) == (1, [[], ["alert"], []])
            assert await listed(engine, "any") == ["mail"]
            await engine.invoke_rpc(FLOW, "any", LISTEN, ListenPlan("second", parts))
            result = await received(engine, "any", "second")
            assert (result.index, result.messages) == (2, [[], [], ["mail"]])

        self.play(tmp_path, FLOW, scenario)

    def test_all_of_takes_all_together(self, tmp_path: Path) -> None:
        """It consumes nothing until every condition holds."""

        async def scenario(engine: Engine) -> None:
            parts = [WaitPart(count=2), WaitPart("alerts")]
            await engine.start_flow(FLOW, "all", [ListenPlan("all", parts, "all_of")])
            await publish(engine, "all", "one")
            await publish(engine, "all", "alert", address=ALERTS)
            assert await engine.get_attribute_instance("all", RECEIVED, "all") is None
            assert await listed(engine, "all") == ["one"]
            assert await listed(engine, "all", ALERTS) == ["alert"]
            await publish(engine, "all", "two")
            result = await received(engine, "all", "all")
            assert (result.index, result.messages) == (-1, [["one", "two"], ["alert"]])

        self.play(tmp_path, FLOW, scenario)

    def test_two_conditions_on_one_channel_take_different_messages(self, tmp_path: Path) -> None:
        """One message cannot satisfy both."""

        async def scenario(engine: Engine) -> None:
            plan = ListenPlan("both", [WaitPart(), WaitPart(count=2)], "all_of")
            await engine.start_flow(FLOW, "twice", [plan])
            await publish(engine, "twice", "a", "b")
            assert await engine.get_attribute_instance("twice", RECEIVED, "both") is None
            await publish(engine, "twice", "c", "d")
            assert (await received(engine, "twice", "both")).messages == [["a"], ["b", "c"]]
            assert await listed(engine, "twice") == ["d"]

        self.play(tmp_path, FLOW, scenario)

    def test_all_of_nothing_waits_for_nothing(self, tmp_path: Path) -> None:
        """The Step runs at once."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "nothing", [ListenPlan("nothing", [], "all_of")])
            assert (await received(engine, "nothing", "nothing")).messages == []

        self.play(tmp_path, FLOW, scenario)

    def test_keys_of_a_channel_map_are_separate_queues(self, tmp_path: Path) -> None:
        """Any text is a key."""

        async def scenario(engine: Engine) -> None:
            keys = ["", "a", "A", "日本", "a/b", "x" * 300]
            plans = [ListenPlan(f"room {key}", [WaitPart("rooms", key)]) for key in keys]
            await engine.start_flow(FLOW, "rooms", plans)
            for key in reversed(keys):
                await publish(engine, "rooms", f"to {key}", address=Address("rooms", key))
            for key in keys:
                assert (await received(engine, "rooms", f"room {key}")).messages == [[f"to {key}"]]

        self.play(tmp_path, FLOW, scenario)

    def test_a_message_reaches_one_of_several_waiters(self, tmp_path: Path) -> None:
        """The oldest Step gets the oldest message."""

        async def scenario(engine: Engine) -> None:
            plans = [ListenPlan(f"waiter {number}", [WaitPart()]) for number in range(3)]
            await engine.start_flow(FLOW, "several", plans)
            await publish(engine, "several", "one")
            assert (await received(engine, "several", "waiter 0")).messages == [["one"]]
            assert await engine.get_attribute_instance("several", RECEIVED, "waiter 1") is None
            await publish(engine, "several", "two", "three", "four")
            assert (await received(engine, "several", "waiter 1")).messages == [["two"]]
            assert (await received(engine, "several", "waiter 2")).messages == [["three"]]
            assert await listed(engine, "several") == ["four"]

        self.play(tmp_path, FLOW, scenario)

    def test_concurrent_publishers_lose_and_repeat_nothing(self, tmp_path: Path) -> None:
        """Every message ends in exactly one wait, in the order of its ID."""

        async def scenario(engine: Engine) -> None:
            plans = [ListenPlan(f"{number:02d}", [WaitPart()]) for number in range(30)]
            await engine.start_flow(FLOW, "crowd", plans)
            publishing = [publish(engine, "crowd", f"text {number}") for number in range(30)]
            ids = [message_id for (message_id,) in await asyncio.gather(*publishing)]
            by_id = dict(zip(ids, (f"text {number}" for number in range(30)), strict=True))
            consumed = [(await received(engine, "crowd", plan.name)).messages[0][0] for plan in plans]
            assert consumed == [by_id[message_id] for message_id in sorted(ids)]
            assert await listed(engine, "crowd") == []

        self.play(tmp_path, FLOW, scenario)

    def test_messages_can_be_listed_counted_deleted_and_purged(self, tmp_path: Path) -> None:
        """A deleted message reaches nobody; deleting it again is False."""

        async def scenario(engine: Engine) -> None:
            room = Address("rooms", "r")
            for flow_id, address in (("plain", Address()), ("keyed", room)):
                await engine.start_flow(FLOW, flow_id, [])
                first, second, third, _ = await publish(engine, flow_id, "a", "b", "c", "d", address=address)
                assert first < second < third
                rows = await engine.invoke_rpc(FLOW, flow_id, LIST_MESSAGES, address)
                assert [tuple(row) for row in rows][:2] == [(first, "a"), (second, "b")]
                deletion = Delivery(address=address, message_id=second)
                assert await engine.invoke_rpc(FLOW, flow_id, DELETE, deletion) is True
                assert await engine.invoke_rpc(FLOW, flow_id, DELETE, deletion) is False
                assert await engine.invoke_rpc(FLOW, flow_id, COUNT, address) == 3
                taken = await engine.invoke_rpc(FLOW, flow_id, TAKE, Delivery(address=address, count=2))
                assert taken == ["a", "c"]
                assert await engine.invoke_rpc(FLOW, flow_id, TAKE, Delivery(address=address, count=2)) == []
                assert await listed(engine, flow_id, address) == ["d"]
                assert await engine.invoke_rpc(FLOW, flow_id, PURGE, address) == 1
                assert await engine.invoke_rpc(FLOW, flow_id, COUNT, address) == 0

        self.play(tmp_path, FLOW, scenario)

    def test_a_cancelled_wait_leaves_the_message(self, tmp_path: Path) -> None:
        """The next waiter gets it."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "cancelled", [])
            step_execution_id = await engine.invoke_rpc(FLOW, "cancelled", LISTEN, ListenPlan("gone", [WaitPart()]))
            assert await engine.invoke_rpc(FLOW, "cancelled", CANCEL, step_execution_id) == 1
            assert await engine.invoke_rpc(FLOW, "cancelled", CANCEL, step_execution_id) == 0
            await publish(engine, "cancelled", "text")
            assert await listed(engine, "cancelled") == ["text"]
            await engine.invoke_rpc(FLOW, "cancelled", LISTEN, ListenPlan("next", [WaitPart()]))
            assert (await received(engine, "cancelled", "next")).messages == [["text"]]
            assert await engine.get_attribute_instance("cancelled", RECEIVED, "gone") is None

        self.play(tmp_path, FLOW, scenario)

    def test_waits_and_messages_survive_a_closed_engine(self, tmp_path: Path) -> None:
        """Stored, not remembered."""

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[FLOW]) as engine:
                plan = ListenPlan("two", [WaitPart(count=2)])
                await engine.start_flow(FLOW, "kept", [plan])
                await publish(engine, "kept", "before")
            async with open_engine(flows=[FLOW]) as engine:
                assert await listed(engine, "kept") == ["before"]
                await publish(engine, "kept", "after")
                assert (await received(engine, "kept", "two")).messages == [["before", "after"]]

        self.play_shared(tmp_path, scenario)
