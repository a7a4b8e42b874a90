"""Workers die while a tool's remote task is followed: between polls, during one, and around the task's question."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from tests.session_kill.planned_agent import plan
from tests.session_kill.planned_tasks import QUESTION
from tests.session_kill.scene import DAYS, Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

DONE = [("build_report", "succeeded")]


def report(course: str, seconds: int = 1) -> str:
    """A message that makes the agent start one task with this course."""
    return plan([("build_report", {"course": course, "seconds": seconds})])


async def check_done(scene: Scene, sessions: Sessions, output: str, model_calls: int = 2) -> None:
    """The task was started once, its result reached the model, and the session goes on."""
    assert await sessions.completed("s") == f"answer: {output}"
    assert await sessions.statuses("s") == DONE
    assert [attempt for _, attempt, _ in scene.runs("build_report")] == [1]
    assert scene.model_calls("s") == [(str(number), 1) for number in range(model_calls)]
    started = [event for event in await sessions.events("s") if event.type == "tool_task_started"]
    assert len(started) == 1
    assert scene.events("cancel.") == []
    await sessions.greet("s")


def test_a_kill_between_two_polls_only_delays_the_next_one(tmp_path: Path) -> None:
    """The workers are dead when the poll comes due."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=report("pending pending done", int(DAYS)))
            await sessions.record("s", "build_report", "waiting_for_task")
            for days in (2, 4):
                worker.kill()
                point = f"s.poll-{days // 2 - 1}"
                scene.gates.close(point)
                worker = await scene.start_worker("--clock-offset", str(days * DAYS))
                await scene.reached(point, worker)
                scene.gates.open(point)
                # Committed: the record says what the poll found.
                await sessions.continued("s", "build_report", str(days // 2))
            worker.kill()
            assert scene.events("poll-") == [("0 -", 1), ("1 -", 1)]
            await scene.start_worker("--clock-offset", str(6 * DAYS))
            await check_done(scene, sessions, "report done []")
            assert scene.events("poll-") == [("0 -", 1), ("1 -", 1), ("2 -", 1)]

    play(tmp_path, scenario)


@pytest.mark.parametrize("point", ["poll-1", "PollToolTask.commit"])
def test_a_kill_during_a_poll_repeats_that_poll_alone(tmp_path: Path, point: str) -> None:
    """At the second poll: while it asks, or after it asked and before its commit."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            scene.gates.close("s.poll-1")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=report("pending pending done"))
            await scene.reached("s.poll-1", worker)
            if point != "poll-1":
                scene.gates.close(f"s.{point}")
                scene.gates.open("s.poll-1")
            await scene.replace_worker_at(f"s.{point}", worker)
            await check_done(scene, sessions, "report done []")
            assert scene.events("poll-") == [("0 -", 1), ("1 -", 1), ("1 -", 2), ("2 -", 1)]

    play(tmp_path, scenario)


def test_a_kill_before_the_commit_that_keeps_the_task_leaves_its_outcome_unknown(tmp_path: Path) -> None:
    """The tool started the task and returned, in the only attempt it has."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            point = "s.CallSingleAttemptTool.commit"
            scene.gates.close(point)
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=report("done"))
            await scene.replace_worker_at(point, worker)
            assert await sessions.completed("s") == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"
            assert await sessions.statuses("s") == [("build_report", "outcome_unknown")]
            assert len(scene.runs("build_report")) == 1
            assert scene.events("poll-") == []
            await sessions.greet("s")

    play(tmp_path, scenario)


@pytest.mark.parametrize("point", ["PollToolTask.commit", None])
def test_a_kill_around_a_tasks_question_asks_it_once(tmp_path: Path, point: str | None) -> None:
    """Before the commit that raises it, or while it waits for days."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            if point is not None:
                scene.gates.close(f"s.{point}")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=report("ask pending done"))
            if point is not None:
                await scene.replace_worker_at(f"s.{point}", worker)
                question = await sessions.question("s")
            else:
                question = await sessions.question("s")
                worker.kill()
                await scene.start_worker("--clock-offset", str(3 * DAYS))
            assert (question.question, question.interrupt_id) == (QUESTION, "turn-1.call_0_0-input-1")
            assert await sessions.client.answer_question("s", question.interrupt_id, "Q3")
            assert not await sessions.client.answer_question("s", question.interrupt_id, "Q4")
            await check_done(scene, sessions, "report done ['Q3']")
            asked = [("0 -", 1)] if point is None else [("0 -", 1), ("0 -", 2)]
            assert scene.events("poll-") == [*asked, ("1 answered:Q3", 1), ("2 -", 1)]
            raised = [event for event in await sessions.events("s") if event.type == "interrupt_raised"]
            assert len(raised) == 1

    play(tmp_path, scenario)


@pytest.mark.parametrize("point", ["PollToolTask.before_run", "poll-1", "PollToolTask.commit"])
def test_a_kill_while_a_poll_hands_an_answer_over_hands_it_over_again(tmp_path: Path, point: str) -> None:
    """One committed poll has it: the attempt that a killed worker made is followed by one with the same answer."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=report("ask pending ask done"))
            first = await sessions.question("s")
            scene.gates.close(f"s.{point}")
            assert await sessions.client.answer_question("s", first.interrupt_id, "Q3")
            await scene.replace_worker_at(f"s.{point}", worker)
            second = await sessions.question("s")
            assert (first.interrupt_id, second.interrupt_id) == ("turn-1.call_0_0-input-1", "turn-1.call_0_0-input-2")
            assert await sessions.client.resolve_interrupt("s", second.interrupt_id, approved=False)
            await check_done(scene, sessions, "report done ['Q3', 'declined']")
            again = [] if point == "PollToolTask.before_run" else [("1 answered:Q3", 2)]
            assert scene.events("poll-") == [
                ("0 -", 1),
                ("1 answered:Q3", 1),
                *again,
                ("2 -", 1),
                ("3 declined:None", 1),
            ]

    play(tmp_path, scenario)


def test_polls_whose_workers_all_die_leave_the_outcome_unknown(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            scene.gates.close("s.poll-0")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=report("done"))
            for _ in range(3):
                await scene.reached("s.poll-0", worker)
                worker.kill()
                worker = await scene.start_worker()
            assert await sessions.completed("s") == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"
            assert scene.events("poll-") == [("0 -", 1), ("0 -", 2), ("0 -", 3)]
            assert await sessions.statuses("s") == [("build_report", "outcome_unknown")]
            assert len(scene.runs("build_report")) == 1
            await sessions.greet("s")

    play(tmp_path, scenario)
