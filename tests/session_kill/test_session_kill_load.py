"""Sessions under load from several engines and processes, and workers that die at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from dex_agents import AgentMessage
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from tests.session_kill.planned_agent import plan
from tests.session_kill.scene import Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

KILLS = 10
TURNS_PER_KILL = 2
TURNS = KILLS * TURNS_PER_KILL
SESSION_IDS = [f"session-{number}" for number in range(6)]
TURN = plan(["look_up", "charge_card"], ["put_item", "charge_card"])
TURN_TOOLS = ["look_up", "charge_card", "put_item", "charge_card"]

LOAD_SESSION_IDS = [f"load-{number:02d}" for number in range(20)]
LOAD_TURNS = 5


def check_turn_order(messages: tuple[AgentMessage, ...], turns: int) -> None:
    """Every turn is one block that begins with its user message."""
    turn_ids = list(dict.fromkeys(message.turn_id for message in messages))
    assert turn_ids == [f"turn-{number}" for number in range(1, turns + 1)]
    numbers = [int(message.turn_id.removeprefix("turn-")) for message in messages]
    assert numbers == sorted(numbers)
    first = {turn_id: next(message for message in messages if message.turn_id == turn_id) for turn_id in turn_ids}
    assert {message.role for message in first.values()} == {"user"}


async def check_session(scene: Scene, sessions: Sessions, session_id: str) -> tuple[int, int]:
    """Every turn and call of a randomly killed session came to its end once; how many turns failed and writes are lost.

    A turn may fail only because three attempts of one model call died with their workers.
    """
    await sessions.answers(session_id)
    snapshot = await sessions.client.get_agent_snapshot(session_id)
    check_turn_order(snapshot.messages, TURNS)
    failed = [event.payload["error"] for event in await sessions.events(session_id) if event.type == "turn_failed"]
    assert all("WorkerLost" in error for error in failed)
    completed = [event for event in await sessions.events(session_id) if event.type == "turn_completed"]
    assert len(completed) + len(failed) == TURNS
    if not failed:
        assert [tool for tool, _ in await sessions.statuses(session_id)] == TURN_TOOLS * TURNS
        assert snapshot.usage.model_calls == 3 * TURNS

    lost = 0
    before = {tool: scene.log.count(f"{tool}.before") for tool in TURN_TOOLS}
    after = {tool: scene.log.count(f"{tool}.after") for tool in TURN_TOOLS}
    tools = {
        (message.turn_id, call.tool_call_id): call.tool_name
        for message in snapshot.messages
        for call in message.tool_calls
    }
    for message in snapshot.messages:
        if message.tool_call_id is None:
            continue
        tool = tools[message.turn_id, message.tool_call_id]
        key = f"{session_id}/{message.turn_id}/{message.tool_call_id}"
        if tool == "charge_card":
            assert before[tool][key] <= 1, key
        if message.text.startswith(f"{tool} done"):
            assert after[tool][key] >= 1, key
        elif tool == "look_up":
            assert "WorkerLost" in message.text
        else:
            assert message.text == OUTCOME_UNKNOWN_TOOL_RESULT
            lost += 1
    return len(failed), lost


async def has_begun_work(scene: Scene, process: int, seconds: float) -> bool:
    """Whether the process did something within these seconds; returns as soon as it did."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if any(line.process == process for line in scene.log.read()):
            return True
        await asyncio.sleep(0.01)
    return False


def test_workers_killed_at_random_moments(tmp_path: Path) -> None:
    """Up to two workers live at a time; the older one is killed at work, or while the younger one has its sessions."""
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            for session_id in SESSION_IDS:
                await sessions.client.start_session(session_id)
            interrupted = 0
            next_worker = asyncio.create_task(scene.start_worker())
            for number in range(KILLS):
                for session_id in SESSION_IDS:
                    for _ in range(TURNS_PER_KILL):
                        assert await sessions.client.send_user_message(session_id, TURN)
                worker = await next_worker
                # Now and then the next one may die while it opens the file.
                next_worker = asyncio.create_task(scene.start_worker(is_awaited=chance.random() > 0.2))
                patience = 60.0 if number == 0 else 0.5
                interrupted += await has_begun_work(scene, worker.process_id, patience)
                await asyncio.sleep(chance.uniform(0.0, 0.1))
                worker.kill()
            await next_worker
            for session_id in SESSION_IDS:
                await sessions.idle(session_id)
            failed = lost = 0
            for session_id in SESSION_IDS:
                session_failed, session_lost = await check_session(scene, sessions, session_id)
                failed += session_failed
                lost += session_lost
            print(f"{interrupted} workers were killed at work: {lost} unknown outcomes, {failed} failed turns")
            assert interrupted >= 1

    play(tmp_path, scenario)


def test_two_engines_of_one_process_beside_a_worker_process_under_load(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        worker = await scene.start_worker()
        async with scene.sessions() as sessions:  # the worker process alone can begin these
            for session_id in LOAD_SESSION_IDS[::3]:
                await sessions.client.start_session(session_id, initial_message=TURN)
            assert await has_begun_work(scene, worker.process_id, 60.0)
        async with scene.sessions(runs_worker=True) as first, scene.sessions(runs_worker=True) as second:

            async def drive(number: int, session_id: str) -> None:
                clients = [first.client, second.client]
                await clients[number % 2].start_session(session_id, initial_message=TURN, already_started="ignore")
                sends = [clients[turn % 2].send_user_message(session_id, TURN) for turn in range(1, LOAD_TURNS)]
                assert all(await asyncio.gather(*sends))

            await asyncio.gather(*(drive(number, session_id) for number, session_id in enumerate(LOAD_SESSION_IDS)))
            states = await asyncio.gather(*(first.idle(session_id) for session_id in LOAD_SESSION_IDS))
            assert {(state.turn_count, state.last_turn_error) for state in states} == {(LOAD_TURNS, None)}
            for session_id in LOAD_SESSION_IDS:
                answers = await second.answers(session_id)
                assert [answer[:20] for answer in answers] == ["answer: look_up done"] * LOAD_TURNS
                check_turn_order((await second.client.get_agent_snapshot(session_id)).messages, LOAD_TURNS)
                statuses = [(tool, "succeeded") for tool in TURN_TOOLS * LOAD_TURNS]
                assert await second.statuses(session_id) == statuses
            for tool, count in (("look_up", 1), ("put_item", 1), ("charge_card", 2)):
                runs = scene.log.count(f"{tool}.before")
                assert set(runs.values()) == {1}
                assert runs.total() == count * LOAD_TURNS * len(LOAD_SESSION_IDS)
            assert {line.process for line in scene.log.read()} == {worker.process_id, os.getpid()}

    play(tmp_path, scenario)
