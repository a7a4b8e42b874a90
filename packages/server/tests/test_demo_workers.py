"""Worker processes that end by themselves are reported with what they said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dex_agents_server.demo.chronicle import running_chronicle
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.demo_files import DemoFiles
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_server.demo.pauses import TURN_END
from dex_agents_server.demo.scenarios import SCENARIOS, ScenarioName
from dex_agents_server.demo.story import beginning_story
from dex_agents_server.demo.worker_messages import Paused
from dex_agents_server.demo.worker_process import WorkerProcess, worker_processes

pytestmark = pytest.mark.processes


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    files.sessions.write_bytes(b"this is no database" * 1_000)

    async def start() -> None:
        async with worker_processes(files, ScenarioName.STEER) as workers:
            await workers.start()

    with pytest.raises(
        DemoError, match=r"worker 1 .* ended unexpectedly with exit code 1; it said:(.|\n)*sessions\.db"
    ):
        asyncio.run(start())


def test_a_worker_that_dies_ends_the_wait_for_its_work(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    OrdersDatabase.create(files.orders)

    async def wait() -> None:
        async with worker_processes(files, ScenarioName.STEER) as workers:
            worker = await workers.start()
            worker.send_kill()
            await worker.while_running(asyncio.Event().wait())

    with pytest.raises(DemoError, match=r"worker 1 .* ended unexpectedly with exit code -9$"):
        asyncio.run(wait())


def test_workers_are_killed_when_the_body_fails(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    OrdersDatabase.create(files.orders)

    async def fail() -> None:
        async with worker_processes(files, ScenarioName.STEER) as workers:
            worker = await workers.start()
            started.append(worker)
            raise ValueError("the story went wrong")

    started: list[WorkerProcess] = []
    with pytest.raises(ValueError, match="the story went wrong"):
        asyncio.run(fail())
    assert [worker.is_running for worker in started] == [False]


def test_a_worker_stops_in_good_order(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    OrdersDatabase.create(files.orders)

    async def stop() -> None:
        async with worker_processes(files, ScenarioName.STEER) as workers:
            worker = await workers.start()
            await worker.stop()
            assert not worker.is_running

    asyncio.run(stop())
    assert files.worker_log(1).read_text() == ""


def test_a_worker_that_blocks_at_the_end_of_a_turn_ends_with_the_demo(tmp_path: Path) -> None:
    files = DemoFiles(tmp_path)
    scenario = SCENARIOS[ScenarioName.STEER]

    async def block_and_leave() -> None:
        async with (
            running_chronicle(lambda fact: None) as chronicle,
            beginning_story(files, scenario.name, scenario.phases, scenario.script, chronicle) as story,
        ):
            worker = await story.start_worker(TURN_END)
            async with story.session("session", "Refund order 7") as session:
                await session.wait_for_interrupt(worker)
                await session.steer("Wait!")
                assert (await worker.wait_for_message(Paused)).point == TURN_END
                assert worker.is_running
                await worker.stop()

    with pytest.raises(DemoError, match=r"worker 1 .* ended unexpectedly with exit code 1$"):
        asyncio.run(block_and_leave())
