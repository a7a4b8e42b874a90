"""Two worker processes on one file: the survivor takes sessions over from a killed worker and from a frozen one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_flow.testing import ProgramProcess
from tests.session_kill.planned_agent import plan
from tests.session_kill.scene import Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

SLOWEST_TAKEOVER_SECONDS = 5.0
SHORT_TIMEOUT = ("--worker-timeout", "1.5")


async def freeze_outside_a_commit(worker: ProgramProcess, sessions: Sessions) -> None:
    """Stop the worker at a moment at which it does not hold the commit gate, which would stop everybody else."""
    probes = 0
    while True:
        worker.freeze()
        probe = asyncio.create_task(sessions.client.start_session(f"probe-{worker.process_id}-{probes}"))
        done, _ = await asyncio.wait([probe], timeout=1.0)
        if done:
            await probe
            return
        worker.thaw()
        await probe
        probes += 1


def test_the_survivor_takes_the_session_of_a_killed_worker_over(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            points = ["read.look_up.after_effect", "write.charge_card.after_effect"]
            for point in points:
                scene.gates.close(point)
            busy = await scene.start_worker(is_cold_start=True)
            await sessions.client.start_session("read", initial_message=plan(["look_up"]))
            await sessions.client.start_session("write", initial_message=plan(["charge_card"]))
            for point in points:
                await scene.reached(point, busy)
            survivor = await scene.start_worker(is_cold_start=True)
            killed_at = time.monotonic()
            busy.kill()
            await scene.reached(points[0], survivor)
            seconds = time.monotonic() - killed_at
            record_property("takeover_seconds", seconds)
            for point in points:
                scene.gates.open(point)
            assert await sessions.completed("read") == f"answer: look_up done in process {survivor.process_id}"
            assert [(attempt, process) for _, attempt, process in scene.runs("look_up")] == [
                (1, busy.process_id),
                (2, survivor.process_id),
            ]
            assert await sessions.completed("write") == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"
            assert [process for _, _, process in scene.runs("charge_card")] == [busy.process_id]
            assert seconds < SLOWEST_TAKEOVER_SECONDS

    play(tmp_path, scenario)


@pytest.mark.parametrize("tool", ["put_item", "charge_card"])
def test_the_late_result_of_a_frozen_worker_is_refused(tmp_path: Path, tool: str) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            point = f"s.{tool}.after_effect"
            scene.gates.close(point)
            # Blocking: the thawed worker returns from the tool before it can learn that it was given up.
            frozen = await scene.start_worker(*SHORT_TIMEOUT, "--blocks", is_cold_start=True)
            await sessions.client.start_session("s", initial_message=plan([tool]))
            await scene.reached(point, frozen)
            await freeze_outside_a_commit(frozen, sessions)
            other = await scene.start_worker(*SHORT_TIMEOUT, is_cold_start=True)
            if tool == "put_item":
                await scene.reached(point, other)
            else:
                await sessions.idle("s")
            scene.gates.open(point)
            answer = await sessions.completed("s")
            statuses = await sessions.statuses("s")
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert frozen.count_lines("was refused") == 0

            frozen.thaw()
            await asyncio.to_thread(frozen.wait_for_line, "was refused")
            assert await sessions.completed("s") == answer
            assert await sessions.statuses("s") == statuses
            assert (await sessions.client.get_agent_snapshot("s")).messages == messages
            runs = [(attempt, process) for _, attempt, process in scene.runs(tool)]
            assert len({key for key, _, _ in scene.runs(tool)}) == 1
            if tool == "put_item":
                assert statuses == [(tool, "succeeded")]
                assert runs == [(1, frozen.process_id), (2, other.process_id)]
                assert answer == f"answer: {tool} done in process {other.process_id}"
            else:
                assert statuses == [(tool, "outcome_unknown")]
                assert runs == [(1, frozen.process_id)]
                assert answer == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"

            # The thawed worker works on.
            other.kill()
            assert await sessions.client.send_user_message("s", plan([tool]))
            assert await sessions.completed("s") == f"answer: {tool} done in process {frozen.process_id}"

    play(tmp_path, scenario)
