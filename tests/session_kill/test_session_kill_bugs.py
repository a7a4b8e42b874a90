"""Bugs in the session's own pure code: what ran is kept, nothing runs twice, and a repaired release goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dex_agents.testing.kill_points import create_kill_point_flow
from dex_flow import OpenStepDescription
from tests.session_kill.planned_agent import plan
from tests.session_kill.scene import Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

BUGS = {
    "RunModel.commit": [],
    "CallTool.commit": ["put_item"],
    "CallSingleAttemptTool.commit": ["charge_card"],
    "ResumeTurn.execute": ["put_item", "charge_card"],
}


async def raising_steps(sessions: Sessions, session_id: str) -> list[OpenStepDescription]:
    """Open Steps whose pure code raised the planted bug."""
    description = await sessions.engine.describe_flow(session_id)
    assert description.status == "open"
    return [step for step in description.open_steps if "PlantedBugError" in (step.last_error or "")]


async def raised_again(sessions: Sessions, session_id: str) -> OpenStepDescription:
    """The Step that raised the planted bug, once it has been tried three times."""
    dues = set()
    while True:
        for step in await raising_steps(sessions, session_id):
            dues.add(step.due)
            if len(dues) == 3:
                return step
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_a_commit_keeps_what_ran_until_it_is_fixed(tmp_path: Path, bug: str) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker("--bug", bug)
            await sessions.client.start_session("s", initial_message=plan(["put_item", "charge_card"]))
            step = await raised_again(sessions, "s")
            assert f"{step.step_type}." == bug[: len(step.step_type) + 1]
            model_calls, log = scene.model_calls("s"), scene.log.read()
            assert model_calls == [("0", 1)]
            for tool in BUGS[bug]:
                assert len(scene.runs(tool)) == 1
            # The session is not lost for clients: it takes messages and answers.
            assert await sessions.client.send_user_message("s", plan())
            assert (await sessions.client.get_agent_snapshot("s")).queued_message_count == 1
            worker.kill()
            assert [line for line in scene.log.read() if line in log] == log

            await scene.start_worker()
            await sessions.completed("s")
            first, second = await sessions.answers("s")
            assert first.startswith("answer: put_item done")
            assert "charge_card done" in first
            assert second == "answer: "
            assert [attempt for _, attempt, _ in scene.runs("put_item")] == [1]
            assert [attempt for _, attempt, _ in scene.runs("charge_card")] == [1]
            assert scene.model_calls("s") == [("0", 1), ("1", 1)]
            assert scene.model_calls("s", 2) == [("0", 1)]
            assert await sessions.statuses("s") == [("put_item", "succeeded"), ("charge_card", "succeeded")]

    play(tmp_path, scenario)


def test_a_bug_in_the_step_behind_a_decision_keeps_the_decision(tmp_path: Path) -> None:
    """The decision is accepted though the Step that it wakes in the same command raises."""

    async def scenario(scene: Scene) -> None:
        bug = "AwaitToolApproval.execute"
        good = scene.flow
        scene.flow = create_kill_point_flow(scene.agent.create_flow(), scene.gates, [bug])
        worker = await scene.start_worker("--bug", bug)
        async with scene.sessions() as sessions:
            await sessions.client.start_session("s", initial_message=plan(["refund_order"]))
            (interrupt,) = await sessions.client.wait_for_interrupts("s", timeout=60)
            assert await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
            (step,) = await raising_steps(sessions, "s")
            assert step.step_type == "AwaitToolApproval"
            assert not await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=False)
            assert await sessions.client.pending_interrupts("s") == ()
        worker.kill()
        assert scene.runs("refund_order") == []
        scene.flow = good
        async with scene.sessions() as sessions:
            await scene.start_worker()
            assert "refund_order done" in await sessions.completed("s")
            assert [attempt for _, attempt, _ in scene.runs("refund_order")] == [1]
            resolved = [event for event in await sessions.events("s") if event.type == "interrupt_resolved"]
            assert [event.payload["approved"] for event in resolved] == [True]

    play(tmp_path, scenario)
