"""A worker is killed at a named point of a Step, and a fresh one goes on: nothing is lost, no effect is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_flow import AttemptProgress, RecoveryError
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import GatedFlow, GatedPlan
from dex_flow.testing.gated_flow import COMMITS, RECOVERIES, SEND_SIGNAL, SIGNALS_RECEIVED, WORKERS, JobKind

from .embedded_processes import Scene, ended, job_history, play

pytestmark = pytest.mark.processes

FIRST = GatedFlow.instance(0)
SECOND = GatedFlow.instance(1)


async def only_recovery(client: EmbeddedEngine, instance: str) -> RecoveryError:
    errors = await client.get_attribute_instance("flow", RECOVERIES, instance)
    assert errors is not None
    (error,) = errors
    return error


@pytest.mark.parametrize("kind", ["repeatable", "single"])
def test_a_flow_that_no_worker_has_claimed_yet(tmp_path: Path, kind: JobKind) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            await client.start_flow(scene.flow, "flow", GatedPlan([kind]))
            (step,) = (await client.describe_flow("flow")).open_steps
            assert (step.status, step.attempt) == ("ready", 0)
            await scene.start_worker()
            assert (await ended(client, "flow")).result == 1
            assert scene.events("flow", 0) == ["begin 1", "effect 1", "end 1"]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1

    play(tmp_path, scenario)


def test_killed_after_the_claim_of_a_single_attempt_step_and_before_its_started_marker(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.before_run")
            await client.start_flow(scene.flow, "flow", GatedPlan(["single"]))
            worker = await scene.start_worker()
            await scene.reached("flow.0.before_run", worker)
            (step,) = (await client.describe_flow("flow")).open_steps
            assert (step.status, step.attempt) == ("claimed", 0)
            worker.kill()
            scene.gates.open("flow.0.before_run")
            await scene.start_worker()
            assert (await ended(client, "flow")).result == 1
            assert scene.events("flow", 0) == ["begin 1", "effect 1", "end 1"]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1
            assert await client.get_attribute_instance("flow", RECOVERIES, FIRST) is None

    play(tmp_path, scenario)


def test_killed_before_the_start_of_a_repeatable_step_is_committed(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.before_run")
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable"]))
            worker = await scene.start_worker()
            await scene.reached("flow.0.before_run", worker)
            worker.kill()
            scene.gates.open("flow.0.before_run")
            await scene.start_worker()
            assert (await ended(client, "flow")).result == 1
            assert scene.events("flow", 0) == ["begin 1", "effect 1", "end 1"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("stage", ["run", "after_effect", "commit"])
def test_killed_in_a_repeatable_step(tmp_path: Path, stage: str) -> None:
    before_kill = {
        "run": ["begin 1"],
        "after_effect": ["begin 1", "effect 1"],
        "commit": ["begin 1", "effect 1", "end 1"],
    }

    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            point = f"flow.0.{stage}"
            scene.gates.close(point)
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable"]))
            worker = await scene.start_worker()
            await scene.reached(point, worker)
            worker.kill()
            scene.gates.open(point)
            survivor = await scene.start_worker()
            assert (await ended(client, "flow")).result == 1
            assert scene.events("flow", 0) == [*before_kill[stage], "begin 2", "effect 2", "end 2"]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1
            assert await client.get_attribute_instance("flow", WORKERS, FIRST) == survivor.process_id
            history = await job_history(client, "flow")
            assert [(entry.attempt, entry.outcome) for entry in history] == [(1, "lost"), (2, "succeeded")]

    play(tmp_path, scenario)


@pytest.mark.parametrize("stage", ["run", "after_effect", "commit"])
def test_killed_in_a_single_attempt_step(tmp_path: Path, stage: str) -> None:
    before_kill = {
        "run": ["begin 1"],
        "after_effect": ["begin 1", "effect 1"],
        "commit": ["begin 1", "effect 1", "end 1"],
    }

    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            point = f"flow.0.{stage}"
            scene.gates.close(point)
            await client.start_flow(scene.flow, "flow", GatedPlan(["single", "repeatable"]))
            worker = await scene.start_worker()
            await scene.reached(point, worker)
            worker.kill()
            scene.gates.open(point)
            await scene.start_worker()
            assert (await ended(client, "flow")).result == 2
            assert scene.events("flow", 0) == before_kill[stage]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) is None
            error = await only_recovery(client, FIRST)
            assert error.attempt_progress == AttemptProgress.NOT_COMPLETED
            assert (error.error_type, error.attempts, error.step_type) == ("WorkerLost", 1, "SingleAttemptJob")
            assert await client.get_attribute_instance("flow", COMMITS, SECOND) == 1

    play(tmp_path, scenario)


@pytest.mark.parametrize("kind", ["repeatable", "single"])
def test_killed_after_the_commit(tmp_path: Path, kind: JobKind) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.1.run")
            await client.start_flow(scene.flow, "flow", GatedPlan([kind, "repeatable"]))
            worker = await scene.start_worker()
            await scene.reached("flow.1.run", worker)
            worker.kill()
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1
            scene.gates.open("flow.1.run")
            await scene.start_worker()
            assert (await ended(client, "flow")).result == 2
            assert scene.events("flow", 0) == ["begin 1", "effect 1", "end 1"]
            assert scene.events("flow", 1) == ["begin 1", "begin 2", "effect 2", "end 2"]
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1
            assert await client.get_attribute_instance("flow", WORKERS, FIRST) == worker.process_id
            assert await client.get_attribute_instance("flow", RECOVERIES, FIRST) is None

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_signalled_while_dead", [True, False], ids=["signal while dead", "signal after restart"])
def test_killed_while_a_wait_is_pending(tmp_path: Path, is_signalled_while_dead: bool) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            worker = await scene.start_worker()
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable", "signal", "single"]))
            await client.wait_until("flow", lambda view: view.get_instance(COMMITS, FIRST))
            (step,) = (await client.describe_flow("flow")).open_steps
            assert (step.step_type, step.status) == ("AwaitSignal", "waiting")
            worker.kill()
            if is_signalled_while_dead:
                await client.invoke_rpc(scene.flow, "flow", SEND_SIGNAL, "approved")
                await scene.start_worker()
            else:
                await scene.start_worker()
                await client.invoke_rpc(scene.flow, "flow", SEND_SIGNAL, "approved")
            assert (await ended(client, "flow")).result == 3
            assert await client.get_attribute_instance("flow", SIGNALS_RECEIVED, SECOND) == "approved"
            for number in (0, 2):
                assert scene.events("flow", number) == ["begin 1", "effect 1", "end 1"]
                assert await client.get_attribute_instance("flow", COMMITS, GatedFlow.instance(number)) == 1

    play(tmp_path, scenario)


def test_killed_again_and_again_at_the_same_point(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            scene.gates.close("flow.0.after_effect")
            await client.start_flow(scene.flow, "flow", GatedPlan(["repeatable"]))
            for _ in range(3):
                worker = await scene.start_worker()
                await scene.reached("flow.0.after_effect", worker)
                worker.kill()
            scene.gates.open("flow.0.after_effect")
            await scene.start_worker()
            assert (await ended(client, "flow")).result == 1
            history = await job_history(client, "flow")
            assert [entry.outcome for entry in history] == ["lost", "lost", "lost", "succeeded"]
            assert scene.log.count("effect")["flow.0"] == 4
            assert await client.get_attribute_instance("flow", COMMITS, FIRST) == 1

    play(tmp_path, scenario)
