"""Two worker processes on one file: the survivor takes over from a killed one and from a frozen one."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from dex_flow import AttemptProgress
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import GatedFlow, GatedPlan, ProgramProcess
from dex_flow.testing.gated_flow import ADD, COMMITS, RECOVERIES, WORKERS

from .embedded_processes import Scene, ended, job_history, play

pytestmark = pytest.mark.processes

FIRST = GatedFlow.instance(0)
SHORT_TIMEOUT = ("--worker-timeout", "1.5")


async def freeze_outside_a_commit(worker: ProgramProcess, client: EmbeddedEngine, scene: Scene) -> None:
    """Stop the worker at a moment at which it does not hold the commit gate, which would stop everybody else."""
    while True:
        worker.freeze()
        commit = asyncio.create_task(client.invoke_rpc(scene.flow, "flow", ADD, 1))
        done, _ = await asyncio.wait([commit], timeout=1.0)
        if done:
            await commit
            return
        worker.thaw()
        await commit


async def run_on(worker: ProgramProcess, client: EmbeddedEngine, scene: Scene) -> None:
    """Run another Flow on this worker, the only one with a free slot.

    It is a useful worker again, and what it had submitted before has been applied or refused by then.
    """
    await client.start_flow(scene.flow, "next", GatedPlan(["single"]))
    assert (await ended(client, "next")).result == 1
    assert await client.get_attribute_instance("next", WORKERS, FIRST) == worker.process_id


def test_the_survivor_takes_over_from_a_killed_worker(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            for kind in ("repeatable", "single"):
                scene.gates.close(f"{kind}.0.after_effect")
            first = await scene.start_worker()
            await client.start_flow(scene.flow, "repeatable", GatedPlan(["repeatable"]))
            await client.start_flow(scene.flow, "single", GatedPlan(["single"]))
            await scene.reached("repeatable.0.after_effect", first)
            await scene.reached("single.0.after_effect", first)
            survivor = await scene.start_worker()
            first.kill()
            await scene.reached("repeatable.0.after_effect", survivor)
            assert (await ended(client, "single")).result == 1
            scene.gates.open("repeatable.0.after_effect")
            assert (await ended(client, "repeatable")).result == 1
            assert scene.events("repeatable", 0) == ["begin 1", "effect 1", "begin 2", "effect 2", "end 2"]
            assert scene.events("single", 0) == ["begin 1", "effect 1"]
            assert await client.get_attribute_instance("repeatable", WORKERS, FIRST) == survivor.process_id
            errors = await client.get_attribute_instance("single", RECOVERIES, FIRST)
            assert errors is not None
            assert [error.attempt_progress for error in errors] == [AttemptProgress.NOT_COMPLETED]

    play(tmp_path, scenario)


def left_of_workers(scene: Scene) -> tuple[set[int], set[int]]:
    """Keys with a row, and keys with a lock file."""
    connection = sqlite3.connect(scene.database)
    try:
        rows = {key for (key,) in connection.execute("SELECT key FROM worker")}
    finally:
        connection.close()
    return rows, {int(path.name) for path in (scene.directory / "flows.db.workers").iterdir()}


async def only_left(scene: Scene, keys: set[int]) -> None:
    """Wait until just these workers have left anything."""
    while left_of_workers(scene) != (keys, keys):
        await asyncio.sleep(0.01)


def test_a_worker_that_takes_over_removes_what_the_dead_one_left(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.run")
            first = await scene.start_worker()
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable"]))
            await scene.reached("flow.0.run", first)
            second = await scene.start_worker()
            assert left_of_workers(scene) == ({1, 2}, {1, 2}), "a living worker keeps its own"
            first.kill()
            await scene.reached("flow.0.run", second)
            await only_left(scene, {2})
            scene.gates.open("flow.0.run")
            assert (await ended(client, "flow")).result == 1

    play(tmp_path, scenario)


def test_a_starting_worker_removes_what_dead_ones_left_and_leaves_the_living(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client():
            frozen = await scene.start_worker()
            frozen.freeze()
            for _ in range(2):
                (await scene.start_worker()).kill()
            (scene.directory / "flows.db.workers" / "77").touch()  # of one that died before its row was committed
            last = await scene.start_worker()
            rows, files = left_of_workers(scene)
            assert rows == files == {1, 4}
            frozen.thaw()
            assert await asyncio.to_thread(last.stop) == 0
            assert left_of_workers(scene) == ({1}, {1})

    play(tmp_path, scenario)


def test_the_survivor_does_the_waiting_work_of_a_full_worker(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow-0.0.run")
            first = await scene.start_worker("--max-concurrent-steps", "1")
            await client.start_flow(scene.flow, "flow-0", GatedPlan(["single"]))
            await scene.reached("flow-0.0.run", first)
            others = [f"flow-{number}" for number in range(1, 6)]
            for flow_id in others:
                await client.start_flow(scene.flow, flow_id, GatedPlan(["single"]))
            for flow_id in others:
                (step,) = (await client.describe_flow(flow_id)).open_steps
                assert step.status == "ready"
            survivor = await scene.start_worker()
            for flow_id in others:
                assert (await ended(client, flow_id)).result == 1
                assert await client.get_attribute_instance(flow_id, WORKERS, FIRST) == survivor.process_id
            scene.gates.open("flow-0.0.run")
            assert (await ended(client, "flow-0")).result == 1
            assert await client.get_attribute_instance("flow-0", WORKERS, FIRST) == first.process_id

    play(tmp_path, scenario)


def test_a_stopped_worker_hands_over_at_once(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.run")
            first = await scene.start_worker()
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable"]))
            await scene.reached("flow.0.run", first)
            second = await scene.start_worker()
            assert await asyncio.to_thread(first.stop) == 0
            await scene.reached("flow.0.run", second)
            scene.gates.open("flow.0.run")
            assert (await ended(client, "flow")).result == 1
            assert scene.events("flow", 0) == ["begin 1", "begin 2", "effect 2", "end 2"]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1

    play(tmp_path, scenario)


def read_beat(scene: Scene) -> int:
    """The heartbeats of the first worker so far."""
    connection = sqlite3.connect(scene.database)
    try:
        ((beat,),) = connection.execute("SELECT beat FROM worker WHERE key = 1")
    finally:
        connection.close()
    return int(beat)


def test_a_busy_worker_is_not_taken_for_a_frozen_one(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.run")
            busy = await scene.start_worker()
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable"], blocks=True))
            await scene.reached("flow.0.run", busy)
            await scene.start_worker("--worker-timeout", "3")
            beat = read_beat(scene)
            # More beats, one a second, than fit into the timeout: without them it would have been given up.
            while read_beat(scene) < beat + 5:
                await asyncio.sleep(0.05)
            scene.gates.open("flow.0.run")
            assert (await ended(client, "flow")).result == 1
            assert scene.events("flow", 0) == ["begin 1", "effect 1", "end 1"]
            assert await client.get_attribute_instance("flow", WORKERS, FIRST) == busy.process_id

    play(tmp_path, scenario)


def test_the_late_result_of_a_frozen_worker_does_not_count_for_the_attempt_that_replaced_it(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            first_attempt, second_attempt = (f"flow.0.after_effect.attempt-{number}" for number in (1, 2))
            scene.gates.close(first_attempt)
            scene.gates.close(second_attempt)
            frozen = await scene.start_worker(*SHORT_TIMEOUT)
            # Blocking: the thawed worker returns from `run` before it can learn that it was given up.
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable"], blocks=True))
            await scene.reached(first_attempt, frozen)
            await freeze_outside_a_commit(frozen, client, scene)
            other = await scene.start_worker(*SHORT_TIMEOUT, "--max-concurrent-steps", "1")
            await scene.reached(second_attempt, other)

            scene.gates.open(first_attempt)
            frozen.thaw()
            await asyncio.to_thread(frozen.wait_for_line, "was refused")
            await run_on(frozen, client, scene)
            (step,) = (await client.describe_flow("flow")).open_steps
            assert (step.step_type, step.status, step.attempt) == ("RepeatableJob", "running", 2)
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) is None
            assert frozen.count_lines("was refused") == 1

            scene.gates.open(second_attempt)
            assert (await ended(client, "flow")).result == 1
            history = await job_history(client, "flow")
            assert [(entry.attempt, entry.outcome) for entry in history] == [(1, "lost"), (2, "succeeded")]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1
            assert await client.get_attribute_instance("flow", WORKERS, FIRST) == other.process_id
            expected = ["begin 1", "begin 2", "effect 1", "effect 2", "end 1", "end 2"]
            assert sorted(scene.events("flow", 0)) == expected

    play(tmp_path, scenario)


def test_the_late_result_of_a_frozen_single_attempt_is_refused(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.after_effect")
            frozen = await scene.start_worker(*SHORT_TIMEOUT)
            await client.start_flow(scene.flow, "flow", GatedPlan(["single", "signal"], blocks=True))
            await scene.reached("flow.0.after_effect", frozen)
            await freeze_outside_a_commit(frozen, client, scene)
            other = await scene.start_worker(*SHORT_TIMEOUT)
            await client.wait_until("flow", lambda view: view.get_instance(RECOVERIES, FIRST))

            scene.gates.open("flow.0.after_effect")
            frozen.thaw()
            await asyncio.to_thread(frozen.wait_for_line, "was refused")
            other.kill()
            await run_on(frozen, client, scene)
            (step,) = (await client.describe_flow("flow")).open_steps
            assert (step.step_type, step.status) == ("AwaitSignal", "waiting")
            assert frozen.count_lines("was refused") == 1
            history = await job_history(client, "flow")
            assert [(entry.attempt, entry.outcome) for entry in history] == [(1, "lost")]
            assert scene.events("flow", 0) == ["begin 1", "effect 1", "end 1"]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) is None
            errors = await client.get_attribute_instance("flow", RECOVERIES, FIRST)
            assert errors is not None
            assert [error.attempt_progress for error in errors] == [AttemptProgress.NOT_COMPLETED]

    play(tmp_path, scenario)


def test_a_frozen_worker_that_is_never_thawed_holds_nobody_up(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.run")
            frozen = await scene.start_worker(*SHORT_TIMEOUT)
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable", "single", "repeatable"]))
            await scene.reached("flow.0.run", frozen)
            await freeze_outside_a_commit(frozen, client, scene)
            scene.gates.open("flow.0.run")
            other = await scene.start_worker(*SHORT_TIMEOUT)
            assert (await ended(client, "flow")).result == 3
            assert scene.events("flow", 0) == ["begin 1", "begin 2", "effect 2", "end 2"]
            for number in range(3):
                instance = GatedFlow.instance(number)
                assert await client.get_attribute_instance("flow", WORKERS, instance) == other.process_id
            frozen.kill()

    play(tmp_path, scenario)
