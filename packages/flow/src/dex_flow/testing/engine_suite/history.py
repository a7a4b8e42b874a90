"""Step history, and how Flows end."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from dex_flow.engine import Engine
from dex_flow.errors import FlowClosedError
from dex_flow.options import Retry, StepOptions
from dex_flow.steps import Activity
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase, wait_for_end
from dex_flow.testing.engine_suite.mailbox_flow import COUNT, Address, ListenPlan, WaitPart
from dex_flow.testing.engine_suite.waiting import FLOW, listed, publish, received
from dex_flow.testing.engine_suite.work_flow import WorkPlan, work_flow

__all__ = ["HistoryTests"]


class HistoryTests(EngineSuiteBase):
    """`read_step_history` and `stop_flow`."""

    def test_every_finished_step_method_is_one_row(self, tmp_path: Path) -> None:
        """In commit order, numbered from 1, with method, attempt, outcome and times."""

        async def body(activity: Activity, snapshot: str) -> str:
            if activity.attempt == 1:
                raise ConnectionError("down")
            return "up"

        flow = work_flow(body, StepOptions(retry=Retry(backoff=timedelta(milliseconds=1))))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "rows", WorkPlan(["a"]))
            await wait_for_end(engine, "rows")
            history = await engine.read_step_history("rows")
            assert [entry.number for entry in history] == list(range(1, len(history) + 1))
            assert [(e.step_type, e.method, e.attempt, e.outcome, e.detail) for e in history] == [
                ("BeginWork", "execute", 1, "succeeded", None),
                ("Work", "run", 1, "failed", "ConnectionError: down"),
                ("Work", "run", 2, "succeeded", None),
                ("CloseWork", "execute", 1, "succeeded", None),
            ]
            assert all(entry.started_at <= entry.finished_at for entry in history)
            assert all(entry.started_at.tzinfo is not None for entry in history)
            finished = [entry.finished_at for entry in history]
            assert finished == sorted(finished)

        self.play(tmp_path, flow, scenario)

    def test_history_is_paged(self, tmp_path: Path) -> None:
        """`after` a number, at most `limit` rows."""

        async def scenario(engine: Engine) -> None:
            plans = [ListenPlan(str(number), [], "all_of") for number in range(9)]
            await engine.start_flow(FLOW, "paged", plans)
            history = await engine.read_step_history("paged")
            assert len(history) == 10
            assert await engine.read_step_history("paged", limit=4) == history[:4]
            assert await engine.read_step_history("paged", after=4, limit=4) == history[4:8]
            assert await engine.read_step_history("paged", after=8) == history[8:]
            assert await engine.read_step_history("paged", after=10) == []

        self.play(tmp_path, FLOW, scenario)

    def test_of_many_failed_attempts_the_first_and_the_last_are_kept(self, tmp_path: Path) -> None:
        """So that a Step that is tried for ever does not fill the storage."""

        async def body(activity: Activity, snapshot: str) -> str:
            if activity.attempt <= 30:
                raise ConnectionError(f"try {activity.attempt}")
            return "up"

        flow = work_flow(body, StepOptions(retry=Retry(backoff=timedelta(0))))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "many", WorkPlan(["a"]))
            await wait_for_end(engine, "many")
            tried = [entry.attempt for entry in await engine.read_step_history("many") if entry.method == "run"]
            assert tried == [*range(1, 11), *range(21, 31), 31]

        self.play(tmp_path, flow, scenario)

    def test_history_is_the_same_after_reopening(self, tmp_path: Path) -> None:
        """And on a client."""

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[FLOW]) as engine:
                await engine.start_flow(FLOW, "same", [ListenPlan("one", [WaitPart()])])
                await publish(engine, "same", "text")
                await received(engine, "same", "one")
                history = await engine.read_step_history("same")
            async with open_engine(flows=[FLOW], runs_worker=False) as client:
                assert await client.read_step_history("same") == history

        self.play_shared(tmp_path, scenario)

    def test_a_stopped_flow_is_closed_and_readable(self, tmp_path: Path) -> None:
        """Waiting Steps are gone, messages stay where they are, nothing can be added."""

        async def scenario(engine: Engine) -> None:
            parts = [WaitPart("alerts"), WaitPart(delay_ms=3_600_000)]
            await engine.start_flow(FLOW, "stopped", [ListenPlan("one", parts)])
            await publish(engine, "stopped", "kept")
            assert await engine.stop_flow("stopped") is True
            description = await engine.describe_flow("stopped")
            assert (description.status, description.failure, description.open_steps) == ("stopped", "stopped", ())
            with pytest.raises(FlowClosedError) as caught:
                await publish(engine, "stopped", "refused")
            assert caught.value.status == "stopped"
            assert await listed(engine, "stopped") == ["kept"]
            assert await engine.invoke_rpc(FLOW, "stopped", COUNT, Address()) == 1
            assert await engine.stop_flow("stopped", "again") is False
            assert (await engine.describe_flow("stopped")).failure == "stopped"

        self.play(tmp_path, FLOW, scenario)

    def test_a_long_cascade_of_inline_steps_runs_to_its_end(self, tmp_path: Path) -> None:
        """More Steps than one command may execute: the rest is parked, not lost."""

        async def scenario(engine: Engine) -> None:
            plans = [ListenPlan(f"{number:04d}", [], "all_of") for number in range(1_500)]
            await engine.start_flow(FLOW, "cascade", plans)
            for name in ("0000", "0999", "1000", "1499"):
                await received(engine, "cascade", name)
            assert (await engine.describe_flow("cascade")).open_steps == ()
            history = await engine.read_step_history("cascade")
            assert [entry.step_type for entry in history].count("Listen") == 1_500

        self.play(tmp_path, FLOW, scenario)
