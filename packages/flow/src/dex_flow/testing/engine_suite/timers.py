"""Timers: due ones, far ones, skipped ones, and timers that came due while nothing ran."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from dex_flow.engine import Engine
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase, wait_for_step
from dex_flow.testing.engine_suite.mailbox_flow import (
    LISTEN,
    RECEIVED,
    Address,
    ListenPlan,
    WaitPart,
    mailbox_flow,
)
from dex_flow.testing.engine_suite.waiting import FLOW, publish, received

__all__ = ["TimerTests"]

SHORT = WaitPart(delay_ms=50)
HOUR = WaitPart(delay_ms=3_600_000)


class TimerTests(EngineSuiteBase):
    """Timers in waits, and `skip_timer`."""

    def test_a_timer_ends_a_wait_when_it_is_due(self, tmp_path: Path) -> None:
        """Never earlier, and without anybody calling."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "timer", [ListenPlan("timer", [SHORT])])
            result = await received(engine, "timer", "timer")
            assert (result.index, result.messages) == (0, [[]])
            assert result.woken_at - result.planned_at >= timedelta(milliseconds=50)

        self.play(tmp_path, FLOW, scenario)

    def test_a_passed_timer_is_satisfied_at_once(self, tmp_path: Path) -> None:
        """A time in the past is no error."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "passed", [ListenPlan("passed", [WaitPart(), WaitPart(delay_ms=-1000)])])
            assert (await engine.get_attribute_instance("passed", RECEIVED, "passed")) is not None
            assert (await received(engine, "passed", "passed")).index == 1

        self.play(tmp_path, FLOW, scenario)

    def test_a_message_beats_a_far_timer(self, tmp_path: Path) -> None:
        """And the timer never fires for the ended Step."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "beaten", [ListenPlan("first", [WaitPart(), HOUR])])
            await publish(engine, "beaten", "text")
            result = await received(engine, "beaten", "first")
            assert (result.index, result.messages) == (0, [["text"], []])
            assert (await engine.describe_flow("beaten")).open_steps == ()

        self.play(tmp_path, FLOW, scenario)

    def test_a_timer_beats_a_missing_message(self, tmp_path: Path) -> None:
        """The channel stays usable."""

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(FLOW, "deadline", [ListenPlan("deadline", [WaitPart(), SHORT])])
            assert (await received(engine, "deadline", "deadline")).index == 1
            await publish(engine, "deadline", "late")
            await engine.invoke_rpc(FLOW, "deadline", LISTEN, ListenPlan("next", [WaitPart()]))
            assert (await received(engine, "deadline", "next")).messages == [["late"]]

        self.play(tmp_path, FLOW, scenario)

    def test_all_of_waits_for_timer_and_message_in_either_order(self, tmp_path: Path) -> None:
        """A timer that has come due stays satisfied."""

        async def scenario(engine: Engine) -> None:
            plans = [
                ListenPlan("timer first", [SHORT, WaitPart("rooms", "late")], "all_of"),
                ListenPlan("message first", [SHORT, WaitPart()], "all_of"),
                ListenPlan("marker", [WaitPart(delay_ms=60)]),
            ]
            await engine.start_flow(FLOW, "both", plans)
            await publish(engine, "both", "early")
            assert (await received(engine, "both", "message first")).messages == [[], ["early"]]
            await received(engine, "both", "marker")
            assert await engine.get_attribute_instance("both", RECEIVED, "timer first") is None
            await engine.invoke_rpc(FLOW, "both", LISTEN, ListenPlan("unrelated", [], "all_of"))
            await publish(engine, "both", "finally", address=Address("rooms", "late"))
            result = await received(engine, "both", "timer first")
            assert (result.index, result.messages) == (-1, [[], ["finally"]])

        self.play(tmp_path, FLOW, scenario)

    def test_a_satisfied_timer_of_a_waiting_all_of_costs_nothing(self, tmp_path: Path) -> None:
        """The engine sleeps until the other condition holds, instead of looking at the past timer again and again."""

        async def scenario(engine: Engine) -> None:
            plans = [ListenPlan("open", [SHORT, WaitPart()], "all_of"), ListenPlan("marker", [WaitPart(delay_ms=60)])]
            await engine.start_flow(FLOW, "quiet", plans)
            await received(engine, "quiet", "marker")
            before = time.process_time()
            await asyncio.sleep(1)
            assert time.process_time() - before < 0.5
            assert await engine.get_attribute_instance("quiet", RECEIVED, "open") is None

        self.play(tmp_path, FLOW, scenario)

    def test_many_timers_fire_in_order_of_their_time(self, tmp_path: Path) -> None:
        """Each of them, once."""

        async def scenario(engine: Engine) -> None:
            plans = [ListenPlan(f"{delay:03d}", [WaitPart(delay_ms=delay)]) for delay in (200, 20, 110, 50, 1)]
            await engine.start_flow(FLOW, "many", plans)
            results = {plan.name: await received(engine, "many", plan.name) for plan in plans}
            woken = sorted(results, key=lambda name: (results[name].woken_at, name))
            assert woken == ["001", "020", "050", "110", "200"]
            history = await engine.read_step_history("many")
            assert [entry.step_type for entry in history].count("Listen") == 5

        self.play(tmp_path, FLOW, scenario)

    def test_a_timer_that_came_due_while_no_engine_was_open_fires_on_opening(self, tmp_path: Path) -> None:
        """Durable timers are stored times, not running clocks."""

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[FLOW], runs_worker=False) as engine:
                await engine.start_flow(FLOW, "asleep", [ListenPlan("asleep", [WaitPart(delay_ms=100)])])
            await asyncio.sleep(0.15)
            async with open_engine(flows=[FLOW]) as engine:
                assert (await received(engine, "asleep", "asleep")).index == 0

        self.play_shared(tmp_path, scenario)

    def test_skip_timer_ends_the_wait_now(self, tmp_path: Path) -> None:
        """As if the time had come; a Step without a timer has none to skip."""
        flow = mailbox_flow()

        async def scenario(engine: Engine) -> None:
            plans = [ListenPlan("far", [WaitPart("alerts"), HOUR]), ListenPlan("mail", [WaitPart()])]
            await engine.start_flow(flow, "skip", plans)
            far, mail = (await engine.describe_flow("skip")).open_steps
            assert await engine.skip_timer("skip", mail.step_execution_id) is False
            assert await engine.skip_timer("skip", 999) is False
            assert await engine.get_attribute_instance("skip", RECEIVED, "far") is None
            assert await engine.skip_timer("skip", far.step_execution_id) is True
            assert (await received(engine, "skip", "far")).index == 1
            assert await engine.skip_timer("skip", far.step_execution_id) is False
            assert (
                await wait_for_step(engine, "skip", "Listen", "waiting")
            ).step_execution_id == mail.step_execution_id
            await engine.stop_flow("skip")
            assert await engine.skip_timer("skip", mail.step_execution_id) is False

        self.play(tmp_path, flow, scenario)
