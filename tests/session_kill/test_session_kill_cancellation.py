"""Workers die while a cancellation is half done: recorded, and the turn is not over yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session_kill.planned_agent import plan
from tests.session_kill.scene import Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

TASK = ("build_report", {"course": "pending ask done", "seconds": 1})


async def check_cancelled(scene: Scene, sessions: Sessions, statuses: list[tuple[str, str]]) -> None:
    """The turn ended without a further model call, every call is final, and the session goes on."""
    await sessions.completed("s")
    assert await sessions.endings("s") == ["turn_cancelled"]
    assert await sessions.statuses("s") == statuses
    assert scene.model_calls("s") == [("0", 1)]
    assert not await sessions.client.cancel_turn("s")
    await sessions.greet("s")


@pytest.mark.parametrize(
    ("tool", "status"), [("charge_card", "outcome_unknown"), ("put_item", "outcome_unknown"), ("look_up", "failed")]
)
def test_a_kill_while_a_cancelled_turns_tool_runs(tmp_path: Path, tool: str, status: str) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            point = f"s.{tool}.after_effect"
            scene.gates.close(point)
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan([tool, "refund_order"]))
            await scene.reached(point, worker)
            assert await sessions.client.cancel_turn("s", "turn-1")
            assert await sessions.client.cancel_turn("s")
            worker.kill()
            # It has started, so the turn waits for it even now that nobody runs it.
            state = (await sessions.client.get_agent_snapshot("s")).state
            assert state is not None
            assert state.active_turn_id == "turn-1"
            scene.gates.open(point)
            await scene.start_worker()
            await check_cancelled(scene, sessions, [(tool, status), ("refund_order", "rejected")])
            assert len(scene.runs(tool)) == 1
            assert scene.runs("refund_order") == []

    play(tmp_path, scenario)


def test_a_kill_during_the_model_call_of_a_cancelled_turn(tmp_path: Path) -> None:
    """Whether or not the worker learned of it; nothing of the partial text is an answer."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            scene.gates.close("s.model-0")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan(["charge_card"]))
            await scene.reached("s.model-0", worker)
            assert await sessions.client.cancel_turn("s")
            worker.kill()
            scene.gates.open("s.model-0")
            await scene.start_worker()
            await check_cancelled(scene, sessions, [])
            assert scene.runs("charge_card") == []
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert [message.role for message in messages if message.turn_id == "turn-1"] == ["user"]

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("point", "status"), [("before_run", "outcome_unknown"), ("run", "succeeded"), ("commit", "succeeded")]
)
def test_a_kill_before_a_cancelled_turn_has_ended(tmp_path: Path, point: str, status: str) -> None:
    """Its tool has returned: before that is committed, before the messages are built, and before their commit."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            tool_point, end_point = "s.charge_card.after_effect", f"s.ApplyTurnControl.{point}"
            scene.gates.close(tool_point)
            scene.gates.close(end_point)
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan(["charge_card", "look_up"]))
            await scene.reached(tool_point, worker)
            await sessions.succeeded("s", "look_up")
            assert await sessions.client.cancel_turn("s")
            scene.gates.open(tool_point)
            await scene.replace_worker_at(end_point, worker)
            await check_cancelled(scene, sessions, [("charge_card", status), ("look_up", "succeeded")])
            assert len(scene.runs("charge_card")) == 1
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            charged, found = [message.text for message in messages if message.role == "tool"]
            assert charged.startswith("charge_card done") == (status == "succeeded")
            assert found.startswith("look_up done")

    play(tmp_path, scenario)


@pytest.mark.parametrize("point", ["CancelToolTask.before_run", "cancel", "CancelToolTask.commit"])
def test_a_kill_while_the_runner_is_asked_to_stop_a_task_asks_again(tmp_path: Path, point: str) -> None:
    """Before the request begins, in its middle, and before its commit; the record is final once."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            scene.gates.close("s.poll-0")
            scene.gates.close(f"s.{point}")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan([TASK]))
            await scene.reached("s.poll-0", worker)
            assert await sessions.client.cancel_turn("s")
            await scene.replace_worker_at(f"s.{point}", worker)
            await check_cancelled(scene, sessions, [("build_report", "outcome_unknown")])
            assert scene.events("poll-") == [("0 -", 1)]
            assert (
                scene.events("cancel.")
                == {
                    "CancelToolTask.before_run": [("before", 1), ("after", 1)],
                    "cancel": [("before", 1), ("before", 2), ("after", 2)],
                    "CancelToolTask.commit": [("before", 1), ("after", 1), ("before", 2), ("after", 2)],
                }[point]
            )
            (finished,) = [event for event in await sessions.events("s") if event.type == "tool_call_finished"]
            assert finished.payload["status"] == "outcome_unknown"

    play(tmp_path, scenario)


@pytest.mark.parametrize("waits_for", ["poll", "question"])
def test_a_task_of_a_dead_worker_is_cancelled_by_the_next_one(tmp_path: Path, waits_for: str) -> None:
    """Nobody works when the turn is cancelled; an answer comes too late at once."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            scene.gates.close("s.poll-1" if waits_for == "question" else "s.poll-0")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan([TASK]))
            interrupt_id = "turn-1.call_0_0-input-1"
            if waits_for == "question":
                await scene.reached("s.poll-1", worker)
                scene.gates.open("s.poll-1")
                await sessions.question("s")
            else:
                await sessions.record("s", "build_report", "waiting_for_task")
            worker.kill()
            polls = scene.events("poll-")
            assert await sessions.client.cancel_turn("s")
            assert await sessions.client.pending_interrupts("s") == ()
            assert not await sessions.client.answer_question("s", interrupt_id, "Q3")
            assert scene.events("cancel.") == []
            await scene.start_worker()
            await check_cancelled(scene, sessions, [("build_report", "outcome_unknown")])
            assert scene.events("cancel.") == [("before", 1), ("after", 1)]
            assert scene.events("poll-") == polls

    play(tmp_path, scenario)


def test_a_cancelled_question_of_the_model_needs_no_worker(tmp_path: Path) -> None:
    """It is recorded in the same commit as the cancellation; only the transcript needs somebody who runs Steps."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            message = plan([("ask_user", {"question": "Which city?"}), "refund_order", "charge_card"])
            await sessions.client.start_session("s", initial_message=message)
            await sessions.client.wait_for_interrupts("s", count=2, timeout=60)
            await sessions.succeeded("s", "charge_card")
            worker.kill()
            interrupts = await sessions.client.pending_interrupts("s")
            assert await sessions.client.cancel_turn("s")
            assert await sessions.client.pending_interrupts("s") == ()
            for interrupt in interrupts:
                assert not await sessions.client.answer_question("s", interrupt.interrupt_id, "Graz")
                assert not await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
            await scene.start_worker()
            statuses = [("ask_user", "rejected"), ("refund_order", "rejected"), ("charge_card", "succeeded")]
            await check_cancelled(scene, sessions, statuses)
            assert scene.runs("refund_order") == []

    play(tmp_path, scenario)
