"""Several engines on one storage, and many Flows at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dex_flow.engine import Engine
from dex_flow.errors import FlowAlreadyStartedError, RequestIdReusedError
from dex_flow.options import Retry, StepOptions
from dex_flow.steps import Activity
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase, wait_for_end
from dex_flow.testing.engine_suite.counter_flow import ADD, FINISH, READ_TOTAL, TOTAL, counter_flow
from dex_flow.testing.engine_suite.work_flow import CANCEL_WORK, OUTCOMES, WorkPlan, work_flow

__all__ = ["SharingTests"]


class SharingTests(EngineSuiteBase):
    """Workers and clients side by side."""

    def test_two_engines_see_each_others_commits(self, tmp_path: Path) -> None:
        """What one acknowledged, the other reads."""
        flow = counter_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as first, open_engine(flows=[flow]) as second:
                await first.start_flow(flow, "shared", 0, request_id="start")
                for number in range(10):
                    writer, reader = (first, second) if number % 2 else (second, first)
                    assert await writer.invoke_rpc(flow, "shared", ADD, 1) == number + 1
                    assert await reader.invoke_rpc(flow, "shared", READ_TOTAL, None) == number + 1
                    assert await reader.get_attribute("shared", TOTAL) == number + 1
                with pytest.raises(FlowAlreadyStartedError):
                    await second.start_flow(flow, "shared", 0)
                assert await second.start_flow(flow, "shared", 0, request_id="start") is True

        self.play_shared(tmp_path, scenario)

    def test_two_engines_lose_no_update(self, tmp_path: Path) -> None:
        """Concurrent calls of both are applied one at a time."""
        flow = counter_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as first, open_engine(flows=[flow], runs_worker=False) as second:
                await first.start_flow(flow, "busy", 0)
                calls = [engine.invoke_rpc(flow, "busy", ADD, 1) for _ in range(50) for engine in (first, second)]
                assert sorted(await asyncio.gather(*calls)) == list(range(1, 101))

        self.play_shared(tmp_path, scenario)

    def test_requests_are_remembered_across_engines(self, tmp_path: Path) -> None:
        """A client that asks elsewhere gets the first answer too."""
        flow = counter_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as first, open_engine(flows=[flow]) as second:
                await first.start_flow(flow, "asked", 0)
                calls = [engine.invoke_rpc(flow, "asked", ADD, 5, request_id="once") for engine in (first, second)]
                assert await asyncio.gather(*calls) == [5, 5]
                with pytest.raises(RequestIdReusedError):
                    await second.invoke_rpc(flow, "asked", ADD, 6, request_id="once")
                assert await first.get_attribute("asked", TOTAL) == 5

        self.play_shared(tmp_path, scenario)

    def test_wait_until_sees_another_engines_commit(self, tmp_path: Path) -> None:
        """A waiting client is told, whoever commits."""
        flow = counter_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as first, open_engine(flows=[flow], runs_worker=False) as second:
                await first.start_flow(flow, "told", 0)
                waits = [
                    asyncio.create_task(engine.wait_until("told", lambda view: (view.get(TOTAL) or 0) >= 3))
                    for engine in (first, second)
                ]
                for engine in (first, second, first):
                    await engine.invoke_rpc(flow, "told", ADD, 1)
                assert await asyncio.gather(*waits) == [True, True]

        self.play_shared(tmp_path, scenario)

    def test_each_attempt_runs_on_one_of_two_workers(self, tmp_path: Path) -> None:
        """No Step runs twice because two workers could take it."""
        calls: list[str] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(f"{activity.flow_id} {snapshot} {activity.attempt}")
            await asyncio.sleep(0.01)
            return f"done {snapshot}"

        flow = work_flow(body, StepOptions(retry=Retry(attempts=1)))

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as first, open_engine(flows=[flow]) as second:
                ids = [f"flow {number}" for number in range(20)]
                starts = [
                    (first if number % 2 else second).start_flow(flow, flow_id, WorkPlan(["a", "b", "c"]))
                    for number, flow_id in enumerate(ids)
                ]
                await asyncio.gather(*starts)
                for flow_id in ids:
                    assert (await wait_for_end(first, flow_id)).status == "completed"
                assert sorted(calls) == sorted(f"{flow_id} {work} 1" for flow_id in ids for work in "abc")

        self.play_shared(tmp_path, scenario)

    def test_a_client_cancels_what_another_engine_runs(self, tmp_path: Path) -> None:
        """The running task hears of it, wherever the decision was made."""
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        flow = work_flow(body)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]), open_engine(flows=[flow], runs_worker=False) as client:
                await client.start_flow(flow, "remote", WorkPlan(["a"]))
                await started.wait()
                await client.invoke_rpc(flow, "remote", CANCEL_WORK, "cancelling")
                await cancelled.wait()
                assert (await wait_for_end(client, "remote")).result == "cancelled"

        self.play_shared(tmp_path, scenario)

    def test_a_closed_worker_hands_its_work_over(self, tmp_path: Path) -> None:
        """A repeatable attempt that closing interrupted runs again on another engine."""
        started = asyncio.Event()
        attempts: list[int] = []

        async def body(activity: Activity, snapshot: str) -> str:
            attempts.append(activity.attempt)
            if len(attempts) == 1:
                started.set()
                await asyncio.Event().wait()
            return "handed over"

        flow = work_flow(body)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow], runs_worker=False) as client:
                async with open_engine(flows=[flow]):
                    await client.start_flow(flow, "handed", WorkPlan(["a"]))
                    await started.wait()
                async with open_engine(flows=[flow]):
                    assert (await wait_for_end(client, "handed")).result == "handed over"
            assert attempts == [1, 2]

        self.play_shared(tmp_path, scenario)

    def test_fifty_flows_at_once(self, tmp_path: Path) -> None:
        """Each of them starts, works, answers and ends on its own."""
        flow = work_flow(_echo)
        counter = counter_flow()

        async def drive(engine: Engine, number: int) -> None:
            flow_id = f"flow {number}"
            await engine.start_flow(flow, flow_id, WorkPlan(["a", "b"], setting=str(number)))
            await engine.start_flow(counter, f"counter {number}", number)
            await asyncio.gather(*(engine.invoke_rpc(counter, f"counter {number}", ADD, 1) for _ in range(5)))
            assert await engine.invoke_rpc(counter, f"counter {number}", FINISH, "done") == number + 5
            await engine.wait_until(flow_id, lambda view: view.get_instance(OUTCOMES, "a"))
            await engine.wait_until(flow_id, lambda view: view.get_instance(OUTCOMES, "b"))
            assert (await wait_for_end(engine, flow_id)).status == "completed"
            assert await engine.get_attribute_instance(flow_id, OUTCOMES, "b") == f"b@{number}"

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow, counter]) as engine:
                await asyncio.gather(*(drive(engine, number) for number in range(50)))
                assert len(await engine.list_flows(status="completed", limit=1_000)) == 100
                assert len(await engine.list_flows(status="open", limit=1_000)) == 0

        self.play_shared(tmp_path, scenario)


async def _echo(activity: Activity, snapshot: str) -> str:
    return snapshot
