"""Workers die while a steer is half done: recorded, and the turn it ends is not over yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from tests.session_kill.planned_agent import plan
from tests.session_kill.scene import DAYS, Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

STEERED = ["turn_steered", "turn_completed"]
NEW_PLAN = plan(["put_item"])


async def check_steered(scene: Scene, sessions: Sessions, tool: str, status: str) -> None:
    """One new turn did what the steered message says; the old turn made one model call and its tool ran once."""
    assert (await sessions.completed("s")).startswith("answer: put_item done")
    assert await sessions.endings("s") == STEERED
    assert await sessions.statuses("s") == [(tool, status), ("put_item", "succeeded")]
    assert len(scene.runs(tool)) == 1
    assert scene.model_calls("s") == [("0", 1)]
    assert scene.model_calls("s", 2) == [("0", 1), ("1", 1)]
    messages = (await sessions.client.get_agent_snapshot("s")).messages
    assert [(message.turn_id, message.text) for message in messages if message.role == "user"] == [
        ("turn-1", plan([tool])),
        ("turn-2", NEW_PLAN),
    ]
    await sessions.greet("s")


@pytest.mark.parametrize(
    ("tool", "status"), [("charge_card", "outcome_unknown"), ("put_item", "outcome_unknown"), ("look_up", "failed")]
)
def test_a_kill_while_a_steered_turns_tool_runs(tmp_path: Path, tool: str, status: str) -> None:
    """The lost attempt is not repeated, whatever the tool's effect; it decides what is recorded."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            point = f"s.{tool}.after_effect"
            scene.gates.close(point)
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan([tool]))
            await scene.reached(point, worker)
            assert await sessions.client.steer_user_message("s", plan(["look_up"]))
            worker.kill()
            scene.gates.open(point)
            await scene.start_worker()
            assert (await sessions.completed("s")).startswith("answer: look_up done")
            assert await sessions.endings("s") == STEERED
            assert (await sessions.statuses("s"))[0] == (tool, status)
            keys = [key for key, _, _ in scene.runs(tool)]
            assert keys.count("s/turn-1/call_0_0") == 1
            assert scene.model_calls("s") == [("0", 1)]
            results = [m for m in (await sessions.client.get_agent_snapshot("s")).messages if m.turn_id == "turn-1"]
            assert [message.role for message in results] == ["user", "assistant", "tool"]
            assert (results[-1].text == OUTCOME_UNKNOWN_TOOL_RESULT) == (status == "outcome_unknown")
            await sessions.greet("s")

    play(tmp_path, scenario)


def test_a_kill_during_the_model_call_of_a_steered_turn_makes_no_further_call(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            scene.gates.close("s.model-0")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan(["charge_card"]))
            await scene.reached("s.model-0", worker)
            assert await sessions.client.send_user_message("s", plan())
            (queued,) = (await sessions.client.get_agent_snapshot("s")).queued_messages
            assert await sessions.client.steer_user_message("s", message_id=queued.message_id)
            assert not await sessions.client.steer_user_message("s", message_id=queued.message_id)
            assert await sessions.client.steer_user_message("s", NEW_PLAN)
            worker.kill()
            scene.gates.open("s.model-0")
            await scene.start_worker()
            assert (await sessions.completed("s")).startswith("answer: put_item done")
            assert await sessions.endings("s") == STEERED
            assert scene.model_calls("s") == [("0", 1)]
            assert scene.model_calls("s", 2) == [("0", 1), ("1", 1)]
            assert scene.runs("charge_card") == []
            assert len(scene.runs("put_item")) == 1
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert [message.text for message in messages if message.role == "user"] == [
                plan(["charge_card"]),
                plan(),
                NEW_PLAN,
            ]
            await sessions.greet("s")

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("point", "status"), [("before_run", "outcome_unknown"), ("run", "succeeded"), ("commit", "succeeded")]
)
def test_f03_a_kill_before_a_steered_turn_has_ended(tmp_path: Path, point: str, status: str) -> None:
    """Its tool has returned: before that is committed, before the messages are built, and before their commit."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            tool_point, end_point = "s.charge_card.after_effect", f"s.ApplyTurnControl.{point}"
            scene.gates.close(tool_point)
            scene.gates.close(end_point)
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan(["charge_card"]))
            await scene.reached(tool_point, worker)
            assert await sessions.client.steer_user_message("s", NEW_PLAN)
            scene.gates.open(tool_point)
            await scene.replace_worker_at(end_point, worker)
            await check_steered(scene, sessions, "charge_card", status)

    play(tmp_path, scenario)


def test_f03_messages_queued_steered_and_deleted_around_kills(tmp_path: Path) -> None:
    """m1 is queued, m2 and m3 steer, m4 is deleted; a worker dies after each step of the turn's end."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            points = ["s.look_up.after_effect", "s.ApplyTurnControl.commit", "s.model-0"]
            scene.gates.close(points[0])
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan(["look_up", "refund_order"]))
            await scene.reached(points[0], worker)
            for point in points[1:]:
                scene.gates.close(point)
            for text in ("m1", "m4"):
                assert await sessions.client.send_user_message("s", text)
            assert await sessions.client.steer_user_message("s", "m2")
            assert await sessions.client.steer_user_message("s", "m3")
            queued = (await sessions.client.get_agent_snapshot("s")).queued_messages
            (unwanted,) = [message.message_id for message in queued if message.text == "m4"]
            worker.kill()
            assert await sessions.client.delete_queued_message("s", unwanted)
            assert not await sessions.client.delete_queued_message("s", unwanted)
            scene.gates.open(points[0])
            for point in points[1:]:
                worker = await scene.start_worker()
                await scene.reached(point, worker)
                worker.kill()
                scene.gates.open(point)
            await scene.start_worker()
            await sessions.completed("s")
            assert await sessions.endings("s") == ["turn_steered", "turn_completed", "turn_completed"]
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            users = [(message.turn_id, message.text) for message in messages if message.role == "user"]
            assert users[1:] == [("turn-2", "m2"), ("turn-2", "m3"), ("turn-3", "m1")]
            assert await sessions.statuses("s") == [("look_up", "failed"), ("refund_order", "rejected")]
            assert scene.runs("refund_order") == []
            await sessions.greet("s")

    play(tmp_path, scenario)


def test_a_steered_turn_waits_for_its_task_through_kills(tmp_path: Path) -> None:
    """A started task goes on, its question included; the model of the old turn is not called for its result."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            task = ("build_report", {"course": "pending ask done", "seconds": int(DAYS)})
            await sessions.client.start_session("s", initial_message=plan([task, "refund_order"]))
            await sessions.record("s", "build_report", "waiting_for_task")
            assert await sessions.client.steer_user_message("s", NEW_PLAN)
            worker.kill()
            worker = await scene.start_worker("--clock-offset", str(2 * DAYS))
            await sessions.continued("s", "build_report", "1")
            worker.kill()
            worker = await scene.start_worker("--clock-offset", str(4 * DAYS))
            question = await sessions.question("s")
            worker.kill()
            assert await sessions.client.answer_question("s", question.interrupt_id, "Q3")
            await scene.start_worker("--clock-offset", str(4 * DAYS))
            assert (await sessions.completed("s")).startswith("answer: put_item done")
            assert await sessions.endings("s") == STEERED
            assert await sessions.statuses("s") == [
                ("build_report", "succeeded"),
                ("refund_order", "rejected"),
                ("put_item", "succeeded"),
            ]
            assert scene.events("poll-") == [("0 -", 1), ("1 -", 1), ("2 answered:Q3", 1)]
            assert scene.model_calls("s") == [("0", 1)]
            assert scene.events("cancel.") == []
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert "report done ['Q3']" in [message.text for message in messages if message.turn_id == "turn-1"]
            await sessions.greet("s")

    play(tmp_path, scenario)
