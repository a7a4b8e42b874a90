"""Load and random kills: several engines and processes on one file, and workers that die at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from dex_flow import AttemptProgress
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import GatedFlow, GatedPlan
from dex_flow.testing.gated_flow import ADD, COMMITS, RECOVERIES, TOTAL, JobKind

from .embedded_processes import Scene, ended, play

pytestmark = pytest.mark.processes

RANDOM_KILLS = 15
FLOWS = [f"flow-{number:02d}" for number in range(20)]
JOBS: list[JobKind] = ["repeatable", "single"] * 30


async def check_every_job(client: EmbeddedEngine, scene: Scene, flow_id: str, jobs: list[JobKind]) -> int:
    """Every repeatable job is committed once, every single-attempt job was run at most once; returns the lost ones."""
    begun, effects, finished = (scene.log.count(event) for event in ("begin", "effect", "end"))
    lost = 0
    for number, kind in enumerate(jobs):
        key, instance = GatedFlow.job_key(flow_id, number), GatedFlow.instance(number)
        commits = await client.get_attribute_instance(flow_id, COMMITS, instance)
        errors = await client.get_attribute_instance(flow_id, RECOVERIES, instance)
        if kind == "repeatable":
            assert (commits, errors) == (1, None), key
            assert finished[key] >= 1, key
            continue
        assert begun[key] <= 1, key
        assert effects[key] <= 1, key
        if errors is None:
            assert (commits, finished[key]) == (1, 1), key
        else:
            lost += 1
            assert commits is None, key
            assert [error.attempt_progress for error in errors] == [AttemptProgress.NOT_COMPLETED], key
    return lost


def test_workers_killed_at_random_moments(tmp_path: Path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            for flow_id in FLOWS:
                await client.start_flow(scene.flow, flow_id, GatedPlan(JOBS, pause_ms=30))
            for number in range(RANDOM_KILLS):
                if number % 3 == 0:  # anywhere between its first instruction and its first Steps
                    worker = await scene.start_worker(is_awaited=False)
                    await asyncio.sleep(chance.uniform(0.0, 0.6))
                else:
                    worker = await scene.start_worker()
                    await scene.begun_by(worker)
                    await asyncio.sleep(chance.uniform(0.0, 0.2))
                worker.kill()
            statuses = [description.status for description in await client.list_flows()]
            assert "open" in statuses, "the last kills hit nothing: give the Flows more jobs"
            await scene.start_worker()
            for flow_id in FLOWS:
                assert (await ended(client, flow_id)).result == len(JOBS)
            lost = 0
            for flow_id in FLOWS:
                lost += await check_every_job(client, scene, flow_id, JOBS)
            repeated = sum(count - 1 for count in scene.log.count("begin").values())
            print(f"{lost} single attempts were lost, {repeated} attempts were repeated")
            assert lost + repeated > 0

    play(tmp_path, scenario)


def test_two_engines_of_one_process_beside_a_worker_process_under_load(tmp_path: Path) -> None:
    flow_count, rounds = 40, 150
    jobs: list[JobKind] = ["repeatable", "single"] * 10

    async def scenario(scene: Scene) -> None:
        ids = [f"load-{number:02d}" for number in range(flow_count)]
        worker = await scene.start_worker()
        # Few slots here, so that the worker process has to do much of the work.
        async with (
            EmbeddedEngine(scene.database, flows=[scene.flow], max_concurrent_steps=3) as first,
            EmbeddedEngine(scene.database, flows=[scene.flow], max_concurrent_steps=3) as second,
        ):

            async def drive(number: int, flow_id: str) -> None:
                starter = first if number % 2 else second
                await starter.start_flow(scene.flow, flow_id, GatedPlan([*jobs, "signal"], pause_ms=5))
                totals: list[int] = []
                for _ in range(rounds):
                    calls = [engine.invoke_rpc(scene.flow, flow_id, ADD, 1) for engine in (first, second)]
                    totals += await asyncio.gather(*calls)
                assert sorted(totals) == list(range(1, 2 * rounds + 1))

            await asyncio.gather(*(drive(number, flow_id) for number, flow_id in enumerate(ids)))
            last = GatedFlow.instance(len(jobs) - 1)
            for flow_id in ids:
                await first.wait_until(flow_id, lambda view: view.get_instance(COMMITS, last))
            for flow_id in ids:
                for engine in (first, second):
                    assert await engine.get_attribute(flow_id, TOTAL) == 2 * rounds
                assert await check_every_job(first, scene, flow_id, jobs) == 0
            assert scene.log.count("begin").total() == flow_count * len(jobs)
            assert {line.process for line in scene.log.read()} == {os.getpid(), worker.process_id}

    play(tmp_path, scenario)


def test_an_engine_that_closes_does_not_let_go_of_its_sibling(tmp_path: Path) -> None:
    """Closing one engine of a process must keep the locks of the other: its work is not taken over."""

    async def scenario(scene: Scene) -> None:
        scene.gates.close("flow.0.run")
        async with EmbeddedEngine(scene.database, flows=[scene.flow]) as staying:
            await staying.start_flow(scene.flow, "flow", GatedPlan(["single"]))
            await asyncio.to_thread(scene.gates.wait_until_reached, "flow.0.run")
            for _ in range(3):
                async with EmbeddedEngine(scene.database, flows=[scene.flow], runs_worker=False) as passing:
                    assert (await passing.describe_flow("flow")).status == "open"
                async with EmbeddedEngine(scene.database, flows=[scene.flow]):
                    pass
            await scene.start_worker()
            await staying.start_flow(scene.flow, "other", GatedPlan(["single"]))
            assert (await ended(staying, "other")).result == 1
            await asyncio.sleep(1)
            scene.gates.open("flow.0.run")
            assert (await ended(staying, "flow")).result == 1
            assert await staying.get_attribute_instance("flow", COMMITS, GatedFlow.instance(0)) == 1
            assert scene.events("flow", 0) == ["begin 1", "effect 1", "end 1"]

    play(tmp_path, scenario)
