"""Reading committed state: attributes, waiting for a state, descriptions and lists."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dex_flow.engine import Engine
from dex_flow.errors import EngineClosedError
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase
from dex_flow.testing.engine_suite.counter_flow import (
    ABANDON,
    ADD,
    ENTRIES,
    FINISH,
    OVERWRITTEN,
    TOTAL,
    Entry,
    counter_flow,
)
from dex_flow.testing.engine_suite.mailbox_flow import ListenPlan, WaitPart, mailbox_flow

__all__ = ["ReadingTests"]


class ReadingTests(EngineSuiteBase):
    """`get_attribute`, `get_attribute_instance`, `wait_until`, `describe_flow`, `list_flows`."""

    def test_unset_attributes_are_none(self, tmp_path: Path) -> None:
        """Plain ones and map instances."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "unset", 0)
            assert await engine.get_attribute("unset", OVERWRITTEN) is None
            assert await engine.get_attribute_instance("unset", ENTRIES, "none") is None

        self.play(tmp_path, flow, scenario)

    def test_wait_until_returns_the_first_value_that_counts(self, tmp_path: Path) -> None:
        """None and False wait on; zero and empty text are values."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "wait", 0)
            assert await engine.wait_until("wait", lambda view: view.get(TOTAL), timeout=30) == 0
            assert await engine.wait_until("wait", lambda view: "", timeout=30) == ""
            above_one = asyncio.create_task(engine.wait_until("wait", lambda view: (view.get(TOTAL) or 0) > 1))
            entry = asyncio.create_task(engine.wait_until("wait", lambda view: view.get_instance(ENTRIES, "00000003")))
            await engine.invoke_rpc(flow, "wait", ADD, 1)
            await engine.invoke_rpc(flow, "wait", ADD, 2)
            assert await above_one is True
            assert await entry == Entry(2)

        self.play(tmp_path, flow, scenario)

    def test_wait_until_times_out(self, tmp_path: Path) -> None:
        """A state that never comes ends in `TimeoutError`, and the engine goes on."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "never", 0)
            with pytest.raises(TimeoutError):
                await engine.wait_until("never", lambda view: (view.get(TOTAL) or 0) > 5, timeout=0.1)
            assert await engine.invoke_rpc(flow, "never", ADD, 6) == 6
            assert await engine.wait_until("never", lambda view: (view.get(TOTAL) or 0) > 5, timeout=0) is True

        self.play(tmp_path, flow, scenario)

    def test_wait_until_passes_on_what_the_condition_raises(self, tmp_path: Path) -> None:
        """The waiting caller gets it, nobody else."""
        flow = counter_flow()

        def broken(view: object) -> bool:
            raise LookupError("broken condition")

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "broken", 0)
            with pytest.raises(LookupError, match="broken condition"):
                await engine.wait_until("broken", broken, timeout=30)
            assert await engine.invoke_rpc(flow, "broken", ADD, 1) == 1

        self.play(tmp_path, flow, scenario)

    def test_wait_until_can_be_cancelled(self, tmp_path: Path) -> None:
        """Cancelling the caller's task ends the wait."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "cancel", 0)
            waiting = asyncio.create_task(engine.wait_until("cancel", lambda view: view.get(OVERWRITTEN)))
            await engine.invoke_rpc(flow, "cancel", ADD, 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        self.play(tmp_path, flow, scenario)

    def test_a_description_has_times_status_and_open_steps(self, tmp_path: Path) -> None:
        """Waiting Steps are listed in order of their IDs, with the due time of a timer."""
        flow = mailbox_flow()

        async def scenario(engine: Engine) -> None:
            before = datetime.now(UTC)
            plans = [ListenPlan("mail", [WaitPart()]), ListenPlan("timer", [WaitPart(delay_ms=3_600_000)])]
            await engine.start_flow(flow, "described", plans)
            description = await engine.describe_flow("described")
            assert (description.flow_id, description.flow_type) == ("described", flow.flow_type)
            assert (description.status, description.result, description.failure) == ("open", None, None)
            slack = timedelta(seconds=1)
            assert before - slack <= description.started_at <= description.updated_at <= datetime.now(UTC) + slack
            mail, timer = description.open_steps
            assert mail.step_execution_id < timer.step_execution_id
            assert (mail.step_type, mail.status, mail.due, mail.last_error) == ("Listen", "waiting", None, None)
            assert timer.due is not None
            assert timer.due.tzinfo is not None
            assert before + timedelta(minutes=59) < timer.due

        self.play(tmp_path, flow, scenario)

    def test_a_description_is_updated_by_commands(self, tmp_path: Path) -> None:
        """`updated_at` moves, `started_at` does not."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "moving", 0)
            first = await engine.describe_flow("moving")
            await engine.invoke_rpc(flow, "moving", ADD, 1)
            second = await engine.describe_flow("moving")
            assert second.started_at == first.started_at
            assert second.updated_at >= first.updated_at

        self.play(tmp_path, flow, scenario)

    def test_lists_filter_by_type_and_status(self, tmp_path: Path) -> None:
        """In order of IDs, without open Steps."""
        counter, mailbox = counter_flow(), mailbox_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[counter, mailbox]) as engine:
                await engine.start_flow(mailbox, "b", [ListenPlan("mail", [WaitPart()])])
                for flow_id in ("c", "a", "d", "日本", "Z"):
                    await engine.start_flow(counter, flow_id, 0)
                await engine.invoke_rpc(counter, "a", FINISH, "done")
                await engine.invoke_rpc(counter, "c", ABANDON, "failed")
                await engine.stop_flow("d")

                async def ids(flow_type: str | None = None, status: str | None = None) -> list[str]:
                    found = await engine.list_flows(flow_type=flow_type, status=status)  # type: ignore[arg-type]
                    assert all(description.open_steps == () for description in found)
                    return [description.flow_id for description in found]

                assert await ids() == ["Z", "a", "b", "c", "d", "日本"]
                assert await ids(flow_type=counter.flow_type) == ["Z", "a", "c", "d", "日本"]
                assert await ids(flow_type=mailbox.flow_type) == ["b"]
                assert await ids(flow_type="Nothing") == []
                assert await ids(status="open") == ["Z", "b", "日本"]
                assert await ids(status="completed") == ["a"]
                assert await ids(status="failed") == ["c"]
                assert await ids(status="stopped") == ["d"]
                assert await ids(flow_type=counter.flow_type, status="open") == ["Z", "日本"]
                (completed,) = await engine.list_flows(status="completed")
                assert completed == await engine.describe_flow("a")

        self.play_shared(tmp_path, scenario)

    def test_lists_are_paged(self, tmp_path: Path) -> None:
        """`after` continues where the last page ended, and pages never overlap."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            ids = [f"flow-{number:02d}" for number in range(11)]
            for flow_id in reversed(ids):
                await engine.start_flow(flow, flow_id, 0)
            pages: list[list[str]] = []
            after = ""
            while page := [d.flow_id for d in await engine.list_flows(limit=4, after=after)]:
                pages.append(page)
                after = page[-1]
            assert pages == [ids[:4], ids[4:8], ids[8:]]
            assert [d.flow_id for d in await engine.list_flows(limit=4, after="flow-03x")] == ids[4:8]
            assert [d.flow_id for d in await engine.list_flows(status="open", limit=1)] == ids[:1]
            assert await engine.list_flows(after="g") == []

        self.play(tmp_path, flow, scenario)

    def test_an_engine_is_unusable_after_its_context(self, tmp_path: Path) -> None:
        """`EngineClosedError`, and the storage can be opened again."""
        flow = counter_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine:
                await engine.start_flow(flow, "kept", 3)
            with pytest.raises(EngineClosedError):
                await engine.start_flow(flow, "late", 0)
            with pytest.raises(EngineClosedError):
                await engine.invoke_rpc(flow, "kept", ADD, 1)
            with pytest.raises(EngineClosedError):
                await engine.get_attribute("kept", TOTAL)
            with pytest.raises(EngineClosedError):
                await engine.list_flows()
            async with open_engine(flows=[flow]) as reopened:
                assert await reopened.invoke_rpc(flow, "kept", ADD, 1) == 4

        self.play_shared(tmp_path, scenario)
