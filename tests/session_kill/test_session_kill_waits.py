"""Workers die while a durable wait's Timer runs; time passes by the clock of the worker that comes next."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.session_kill.planned_agent import plan
from tests.session_kill.scene import DAYS, Scene, play

pytestmark = pytest.mark.processes

WAIT = plan([("durable_wait", {"duration_seconds": int(2 * DAYS), "reason": "the parcel"}), "charge_card"])
WAITED = 'answer: {"status": "completed", "waited_seconds": 172800, "reason": "the parcel"} | charge_card done'


def test_a_wait_that_came_due_while_no_worker_lived_ends_when_one_starts(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=WAIT)
            await sessions.succeeded("s", "charge_card")
            waiting = await sessions.record("s", "durable_wait", "waiting_for_timer")
            worker.kill()
            assert waiting.wait_until is not None
            assert waiting.wait_until - waiting.deferred_at == timedelta(days=2)
            # This one comes too early; that it lives and works shows in another session.
            early = await scene.start_worker("--clock-offset", str(1 * DAYS))
            await sessions.client.start_session("other", initial_message=plan(["look_up"]))
            assert "look_up done" in await sessions.completed("other")
            assert await sessions.record("s", "durable_wait", "waiting_for_timer") == waiting
            early.kill()
            assert scene.model_calls("s") == [("0", 1)]

            await scene.start_worker("--clock-offset", str(3 * DAYS))
            assert (await sessions.completed("s")).startswith(WAITED)
            assert scene.model_calls("s") == [("0", 1), ("1", 1)]
            assert await sessions.statuses("s") == [("durable_wait", "succeeded"), ("charge_card", "succeeded")]
            assert len(scene.runs("charge_card")) == 1
            await sessions.greet("s")

    play(tmp_path, scenario)


def test_a_kill_before_the_commit_of_a_timer_fires_it_again(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=WAIT)
            await sessions.succeeded("s", "charge_card")
            worker.kill()
            scene.gates.close("s.AwaitTimer.execute")
            later = await scene.start_worker("--clock-offset", str(3 * DAYS))
            await scene.replace_worker_at("s.AwaitTimer.execute", later, "--clock-offset", str(3 * DAYS))
            assert (await sessions.completed("s")).startswith(WAITED)
            assert scene.model_calls("s") == [("0", 1), ("1", 1)]
            assert await sessions.statuses("s") == [("durable_wait", "succeeded"), ("charge_card", "succeeded")]
            await sessions.greet("s")

    play(tmp_path, scenario)


@pytest.mark.parametrize("request_kind", ["steer", "cancel"])
def test_a_wait_of_a_dead_worker_is_steered_and_cancelled_without_its_time(tmp_path: Path, request_kind: str) -> None:
    """Neither needs a living worker to be recorded; the wait never ends late as well."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=WAIT)
            await sessions.succeeded("s", "charge_card")
            worker.kill()
            if request_kind == "steer":
                assert await sessions.client.steer_user_message("s", plan(["look_up"]))
            else:
                assert await sessions.client.cancel_turn("s")
            await scene.start_worker("--clock-offset", str(3 * DAYS))
            answer = await sessions.completed("s")
            statuses = [("durable_wait", "rejected"), ("charge_card", "succeeded")]
            if request_kind == "steer":
                assert answer.startswith("answer: look_up done")
                assert await sessions.statuses("s") == [*statuses, ("look_up", "succeeded")]
                assert await sessions.endings("s") == ["turn_steered", "turn_completed"]
            else:
                assert await sessions.statuses("s") == statuses
                assert await sessions.endings("s") == ["turn_cancelled"]
            assert scene.model_calls("s") == [("0", 1)]
            assert len(scene.runs("charge_card")) == 1
            await sessions.greet("s")

    play(tmp_path, scenario)
