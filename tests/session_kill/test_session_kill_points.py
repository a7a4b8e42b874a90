"""A worker is killed at every point of a turn, and the next one goes on: no write twice, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from tests.session_kill.planned_agent import plan
from tests.session_kill.scene import Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

TOOLS = ["look_up", "put_item", "charge_card"]
CALL_STEPS = {"look_up": "CallTool", "put_item": "CallTool", "charge_card": "CallSingleAttemptTool"}


async def kill_at(scene: Scene, sessions: Sessions, point: str, message: str) -> None:
    """Start session `s` with this message, kill its worker at the point, and start another worker."""
    scene.gates.close(point)
    worker = await scene.start_worker()
    await sessions.client.start_session("s", initial_message=message)
    await scene.reached(point, worker)
    worker.kill()
    scene.gates.open(point)
    await scene.start_worker()


def test_a_message_accepted_while_no_worker_lives_is_answered_once(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            await sessions.client.start_session("s")
            assert await sessions.client.send_user_message("s", plan(["look_up", "charge_card"]))
            assert scene.log.read() == []
            await scene.start_worker()
            answer = await sessions.completed("s")
            assert answer.count("done in process") == 2
            assert scene.model_calls("s") == [("0", 1), ("1", 1)]
            assert [len(scene.runs(tool)) for tool in ("look_up", "charge_card")] == [1, 1]
            assert await sessions.statuses("s") == [("look_up", "succeeded"), ("charge_card", "succeeded")]

    play(tmp_path, scenario)


def test_a_kill_inside_a_model_call_repeats_the_call_and_marks_its_deltas(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            scene.gates.close("s.model-0")
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan())
            await scene.reached("s.model-0", worker)
            async for event in sessions.client.stream_events("s"):
                if event.type == "text_delta":
                    break
            worker.kill()
            scene.gates.open("s.model-0")
            await scene.start_worker()
            answer = await sessions.completed("s")

            assert scene.model_calls("s") == [("0", 1), ("0", 2)]
            assert await sessions.attempts("s", "RunModel") == [(1, "lost"), (2, "succeeded")]
            state = await sessions.idle("s")
            assert (state.turn_count, state.last_message_sequence) == (1, 2)
            deltas = [event for event in await sessions.events("s") if event.type == "text_delta"]
            assert len({delta.event.step_execution_id for delta in deltas}) == 1
            texts = {1: "", 2: ""}
            for delta in deltas:
                texts[delta.event.attempt] += delta.payload["text"]
            assert texts == {1: "ans", 2: answer}
            usage = (await sessions.client.get_agent_snapshot("s")).usage
            assert usage.model_calls == 1

    play(tmp_path, scenario)


def test_a_kill_inside_a_tool_repeats_it_under_the_same_key_or_tells_the_model(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            cases = {f"{tool}-{stage}": (tool, stage) for tool in TOOLS for stage in ("before_effect", "after_effect")}
            points = [f"{session_id}.{tool}.{stage}" for session_id, (tool, stage) in cases.items()]
            for point in points:
                scene.gates.close(point)
            worker = await scene.start_worker()
            for session_id, (tool, _) in cases.items():
                await sessions.client.start_session(session_id, initial_message=plan([tool]))
            for point in points:
                await scene.reached(point, worker)
            worker.kill()
            for point in points:
                scene.gates.open(point)
            second = await scene.start_worker()

            for session_id, (tool, stage) in cases.items():
                answer = await sessions.completed(session_id)
                runs = [(key, attempt) for key, attempt, _ in scene.runs(tool) if key.startswith(f"{session_id}/")]
                key = f"{session_id}/turn-1/call_0_0"
                attempts = await sessions.attempts(session_id, CALL_STEPS[tool])
                assert scene.model_calls(session_id) == [("0", 1), ("1", 1)]
                if tool == "charge_card":
                    assert answer == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"
                    assert runs == [(key, 1)][: stage == "after_effect"]
                    assert attempts == [(1, "lost")]
                    assert await sessions.statuses(session_id) == [(tool, "outcome_unknown")]
                else:
                    assert answer == f"answer: {tool} done in process {second.process_id}"
                    assert runs == [(key, 1), (key, 2)][stage == "before_effect" :]
                    assert attempts == [(1, "lost"), (2, "succeeded")]
                    assert await sessions.statuses(session_id) == [(tool, "succeeded")]

            # The session goes on, and the same call of a later turn has a key of its own.
            lost = "charge_card-after_effect"
            assert await sessions.client.send_user_message(lost, plan(["charge_card"]))
            assert "charge_card done" in await sessions.completed(lost)
            assert scene.runs("charge_card")[-1][0] == f"{lost}/turn-2/call_2_0"

    play(tmp_path, scenario)


def test_a_kill_after_the_claim_and_before_the_start_loses_nothing(tmp_path: Path) -> None:
    """The started marker of a single-attempt tool was not committed, so the tool cannot have run, and may run now."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            await kill_at(scene, sessions, "s.CallSingleAttemptTool.before_run", plan(["charge_card"]))
            assert "charge_card done" in await sessions.completed("s")
            assert [attempt for _, attempt, _ in scene.runs("charge_card")] == [1]
            assert await sessions.statuses("s") == [("charge_card", "succeeded")]

    play(tmp_path, scenario)


def test_a_kill_after_the_run_and_before_the_commit(tmp_path: Path) -> None:
    """The writer of a worker is held at one commit at a time, so each tool takes a worker of its own with it."""

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            for tool in TOOLS:
                point = f"{tool}.{CALL_STEPS[tool]}.commit"
                scene.gates.close(point)
                worker = await scene.start_worker()
                await sessions.client.start_session(tool, initial_message=plan([tool]))
                await scene.reached(point, worker)
                worker.kill()
                scene.gates.open(point)
            await scene.start_worker()
            for tool in TOOLS:
                answer = await sessions.completed(tool)
                runs = scene.runs(tool)
                assert {key for key, _, _ in runs} == {f"{tool}/turn-1/call_0_0"}
                assert scene.log.count(f"{tool}.after").total() == len(runs)
                if tool == "charge_card":
                    assert [attempt for _, attempt, _ in runs] == [1]
                    assert answer == f"answer: {OUTCOME_UNKNOWN_TOOL_RESULT}"
                    assert await sessions.statuses(tool) == [(tool, "outcome_unknown")]
                else:
                    assert [attempt for _, attempt, _ in runs] == [1, 2]
                    assert f"{tool} done" in answer
                    assert await sessions.statuses(tool) == [(tool, "succeeded")]

    play(tmp_path, scenario)


def test_a_kill_before_the_commit_of_a_model_call_makes_only_the_call_again(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            await kill_at(scene, sessions, "s.RunModel.commit", plan(["charge_card"]))
            assert "charge_card done" in await sessions.completed("s")
            assert scene.model_calls("s") == [("0", 1), ("0", 2), ("1", 1)]
            assert len(scene.runs("charge_card")) == 1

    play(tmp_path, scenario)


def test_a_kill_after_the_commit_runs_no_tool_again(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            await kill_at(scene, sessions, "s.model-1", plan(TOOLS))
            answer = await sessions.completed("s")
            for tool in TOOLS:
                assert f"{tool} done" in answer
                assert [attempt for _, attempt, _ in scene.runs(tool)] == [1]
            assert scene.model_calls("s") == [("0", 1), ("1", 1), ("1", 2)]
            assert await sessions.statuses("s") == [(tool, "succeeded") for tool in TOOLS]

    play(tmp_path, scenario)


@pytest.mark.parametrize("worker_lives_at_decision", [True, False])
def test_f48_a_kill_while_an_approval_waits(tmp_path: Path, worker_lives_at_decision: bool) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            worker = await scene.start_worker()
            await sessions.client.start_session("s", initial_message=plan(["refund_order", "look_up"]))
            (interrupt,) = await sessions.client.wait_for_interrupts("s", timeout=60)
            worker.kill()
            before = await sessions.client.pending_interrupts("s")
            calls = scene.model_calls("s")
            if worker_lives_at_decision:
                await scene.start_worker()
            assert await sessions.client.pending_interrupts("s") == before == (interrupt,)
            assert scene.runs("refund_order") == []
            assert await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
            assert not await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=False)
            if not worker_lives_at_decision:
                assert scene.runs("refund_order") == []
                await scene.start_worker()
            assert "refund_order done" in await sessions.completed("s")
            assert len(scene.runs("refund_order")) == 1
            assert calls == [("0", 1)]
            assert scene.model_calls("s") == [*calls, ("1", 1)]
            assert await sessions.statuses("s") == [("refund_order", "succeeded"), ("look_up", "succeeded")]

    play(tmp_path, scenario)


def test_an_approved_refund_killed_after_its_effect_is_not_repeated_and_siblings_go_on(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            for tool in ("refund_order", "put_item"):
                scene.gates.close(f"s.{tool}.after_effect")
            worker = await scene.start_worker()
            message = plan(["refund_order", "put_item", "charge_card"])
            await sessions.client.start_session("s", initial_message=message)
            (interrupt,) = await sessions.client.wait_for_interrupts("s", timeout=60)
            assert await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
            for tool in ("refund_order", "put_item"):
                await scene.reached(f"s.{tool}.after_effect", worker)
            await sessions.succeeded("s", "charge_card")
            worker.kill()
            for tool in ("refund_order", "put_item"):
                scene.gates.open(f"s.{tool}.after_effect")
            await scene.start_worker()
            answer = await sessions.completed("s")
            first, second, third = answer.removeprefix("answer: ").split(" | ")
            assert first == OUTCOME_UNKNOWN_TOOL_RESULT
            assert (second[:13], third[:16]) == ("put_item done", "charge_card done")
            assert [len(scene.runs(tool)) for tool in ("refund_order", "put_item", "charge_card")] == [1, 2, 1]
            assert not await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)

    play(tmp_path, scenario)


def test_every_worker_of_a_turn_may_die(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            points = [
                "s.model-0",
                "s.put_item.after_effect",
                "s.model-1",
                "s.CallSingleAttemptTool.before_run",
                "s.model-2",
            ]
            for point in points:
                scene.gates.close(point)
            await sessions.client.start_session("s", initial_message=plan(["put_item"], ["charge_card"]))
            for point in points:
                worker = await scene.start_worker()
                await scene.reached(point, worker)
                worker.kill()
                scene.gates.open(point)
            await scene.start_worker()
            assert "charge_card done" in await sessions.completed("s")
            assert scene.model_calls("s") == [("0", 1), ("0", 2), ("1", 1), ("1", 2), ("2", 1), ("2", 2)]
            assert [(key, attempt) for key, attempt, _ in scene.runs("put_item")] == [
                ("s/turn-1/call_0_0", 1),
                ("s/turn-1/call_0_0", 2),
            ]
            assert [attempt for _, attempt, _ in scene.runs("charge_card")] == [1]

    play(tmp_path, scenario)
