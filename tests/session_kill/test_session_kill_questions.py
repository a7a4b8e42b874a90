"""Workers die while a question waits: one of the model, one of a tool, and around the tool's two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from tests.session_kill.planned_agent import AMOUNT_QUESTION, plan
from tests.session_kill.scene import DAYS, Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

ASK_USER = plan([("ask_user", {"question": "Which city?"}), "charge_card"])
A_WEEK_LATER = ("--clock-offset", str(7 * DAYS))
CALL_STEPS = {"ask_and_put": "CallTool", "ask_and_charge": "CallSingleAttemptTool"}


async def answer_tool(scene: Scene, sessions: Sessions, tool: str) -> None:
    """Answer the tool's question, which was raised once under its ID; the tool has done nothing yet."""
    question = await sessions.question("s")
    assert (question.question, question.interrupt_id) == (AMOUNT_QUESTION, "turn-1.call_0_0-input-1")
    raised = [event for event in await sessions.events("s") if event.type == "interrupt_raised"]
    assert len(raised) == 1
    assert scene.runs(tool) == []
    # One write alone: at once, a worker may be held inside its transaction.
    assert await sessions.client.answer_question("s", question.interrupt_id, "5")


@pytest.mark.parametrize("worker_lives_at_answer", [True, False])
def test_f48_a_kill_while_a_question_of_the_model_waits(tmp_path: Path, worker_lives_at_answer: bool) -> None:
    """No worker lives for a week; the answer is stored once, and no model call is made again."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=ASK_USER)
            question = await sessions.question("s")
            await sessions.succeeded("s", "charge_card")
            worker.kill()
            calls = scene.model_calls("s")
            if worker_lives_at_answer:
                await scene.start_worker(*A_WEEK_LATER)
            assert await sessions.question("s") == question
            assert not await sessions.client.answer_question("s", question.interrupt_id, "  ")
            assert await sessions.client.answer_question("s", question.interrupt_id, "Graz")
            assert not await sessions.client.answer_question("s", question.interrupt_id, "Linz")
            if not worker_lives_at_answer:
                await scene.start_worker(*A_WEEK_LATER)
            answer = await sessions.completed("s")
            assert answer.startswith('answer: {"status": "answered", "answer": "Graz"} | charge_card done')
            assert calls == [("0", 1)]
            assert scene.model_calls("s") == [*calls, ("1", 1)]
            assert await sessions.statuses("s") == [("ask_user", "succeeded"), ("charge_card", "succeeded")]
            assert len(scene.runs("charge_card")) == 1
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert [message.role for message in messages if "Graz" in message.text] == ["tool", "assistant"]
            await sessions.greet("s")

    play(tmp_path, scenario)


@pytest.mark.parametrize("tool", CALL_STEPS)
def test_a_kill_between_a_tools_run_and_its_question(tmp_path: Path, tool: str) -> None:
    """A tool that may repeat asks again, once; one that must not may have taken effect, for all anybody knows."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            point = f"s.{CALL_STEPS[tool]}.commit"
            scene.gates.close(point)
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan([tool]))
            await scene.replace_worker_at(point, worker)
            if tool == "ask_and_put":
                await answer_tool(scene, sessions, tool)
                assert (await sessions.completed("s")).startswith("answer: 5: ask_and_put done")
                assert scene.events(f"{tool}.run-") == [("0", 1), ("0", 2), ("1", 1)]
                assert len(scene.runs(tool)) == 1
            else:
                assert await sessions.completed("s") == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"
                assert scene.events(f"{tool}.run-") == [("0", 1)]
                assert scene.runs(tool) == []
                assert [event for event in await sessions.events("s") if event.type == "interrupt_raised"] == []
            await sessions.greet("s")

    play(tmp_path, scenario)


@pytest.mark.parametrize("tool", CALL_STEPS)
def test_f48_a_kill_while_a_question_of_a_tool_waits(tmp_path: Path, tool: str) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan([tool, "look_up"]))
            await sessions.question("s")
            worker.kill()
            await scene.start_worker(*A_WEEK_LATER)
            await answer_tool(scene, sessions, tool)
            assert not await sessions.client.answer_question("s", "turn-1.call_0_0-input-1", "6")
            assert (await sessions.completed("s")).startswith(f"answer: 5: {tool} done")
            assert scene.events(f"{tool}.run-") == [("0", 1), ("1", 1)]
            assert [attempt for _, attempt, _ in scene.runs(tool)] == [1]
            assert scene.model_calls("s") == [("0", 1), ("1", 1)]
            await sessions.greet("s")

    play(tmp_path, scenario)


@pytest.mark.parametrize("tool", CALL_STEPS)
def test_a_kill_before_the_second_run_of_a_tool_that_asked_runs_it_once(tmp_path: Path, tool: str) -> None:
    """The answer is accepted; the commit that starts the run is not reached."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan([tool]))
            await sessions.question("s")
            point = f"s.{CALL_STEPS[tool]}.before_run"
            scene.gates.close(point)
            await answer_tool(scene, sessions, tool)
            await scene.replace_worker_at(point, worker)
            assert (await sessions.completed("s")).startswith(f"answer: 5: {tool} done")
            assert scene.events(f"{tool}.run-") == [("0", 1), ("1", 1)]
            assert [attempt for _, attempt, _ in scene.runs(tool)] == [1]
            await sessions.greet("s")

    play(tmp_path, scenario)


@pytest.mark.parametrize("tool", CALL_STEPS)
def test_a_kill_after_the_effect_of_a_tool_that_asked(tmp_path: Path, tool: str) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            point = f"s.{tool}.after_effect"
            scene.gates.close(point)
            await sessions.client.start_session("s", initial_message=plan([tool]))
            await answer_tool(scene, sessions, tool)
            await scene.replace_worker_at(point, worker)
            answer = await sessions.completed("s")
            assert {key for key, _, _ in scene.runs(tool)} == {"s/turn-1/call_0_0"}
            if tool == "ask_and_put":
                assert answer.startswith("answer: 5: ask_and_put done")
                assert [attempt for _, attempt, _ in scene.runs(tool)] == [1, 2]
                assert scene.events(f"{tool}.run-") == [("0", 1), ("1", 1), ("1", 2)]
            else:
                assert answer == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"
                assert [attempt for _, attempt, _ in scene.runs(tool)] == [1]
                assert scene.events(f"{tool}.run-") == [("0", 1), ("1", 1)]
            await sessions.greet("s")

    play(tmp_path, scenario)
