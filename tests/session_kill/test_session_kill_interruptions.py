"""People steer, cancel, answer and approve at random moments, while workers die at random moments."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.session_kill.planned_agent import PlannedCall, plan
from tests.session_kill.scene import Scene, play
from tests.session_kill.sessions import Sessions

pytestmark = pytest.mark.processes

KILLS = 8
SESSION_IDS = [f"session-{number}" for number in range(4)]
INTERRUPTIONS = 14
#: Tools whose effect must not happen twice for one call; starting a task is such an effect too.
ONCE = ("charge_card", "refund_order", "ask_and_charge", "build_report")
STEPS: list[list[PlannedCall]] = [
    ["look_up", "charge_card"],
    ["put_item", "refund_order"],
    ["ask_and_charge", "ask_and_put"],
    [("ask_user", {"question": "Which city?"}), "charge_card"],
    [("durable_wait", {"duration_seconds": 1, "reason": "the parcel"}), "look_up"],
    [("build_report", {"course": "pending ask done", "seconds": 1}), "refund_order"],
]


class Person:
    """Somebody at one session; remembers what was accepted.

    Args:
        sessions: The client.
        session_id: The session.
        chance: Decides everything.
    """

    def __init__(self, sessions: Sessions, session_id: str, chance: random.Random) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self._chance = chance
        self.said: list[str] = []
        self.cancels = 0

    async def interrupt(self) -> None:
        """Do something to the session, every now and then."""
        for number in range(INTERRUPTIONS):
            match self._chance.choice(["send", "send", "steer", "steer", "move", "cancel", "decide", "decide"]):
                case "send":
                    await self._say(number, is_steer=False)
                case "steer":
                    await self._say(number, is_steer=True)
                case "move":
                    for message in (await self._sessions.client.get_agent_snapshot(self._session_id)).queued_messages:
                        await self._sessions.client.steer_user_message(self._session_id, message_id=message.message_id)
                case "cancel":
                    self.cancels += await self._sessions.client.cancel_turn(self._session_id)
                case "decide":
                    await self.decide()
            await asyncio.sleep(self._chance.uniform(0.0, 0.3))

    async def decide(self) -> None:
        """Decide about everything that waits for a person."""
        for interrupt in await self._sessions.client.pending_interrupts(self._session_id):
            if interrupt.kind == "question" and self._chance.random() < 0.8:
                await self._sessions.client.answer_question(self._session_id, interrupt.interrupt_id, "Graz")
            else:
                approved = interrupt.kind == "approval" and self._chance.random() < 0.8
                resolve = self._sessions.client.resolve_interrupt
                await resolve(self._session_id, interrupt.interrupt_id, approved=approved)

    async def decide_until_idle(self) -> None:
        """Let the session come to rest."""
        idle = asyncio.create_task(self._sessions.idle(self._session_id))
        while not idle.done():
            await self.decide()
            await asyncio.wait([idle], timeout=0.05)
        await idle

    async def _say(self, number: int, *, is_steer: bool) -> None:
        steps = self._chance.sample(STEPS, self._chance.randint(0, 2))
        text = plan(*steps, label=f"{self._session_id}.{number}")
        send = self._sessions.client.steer_user_message if is_steer else self._sessions.client.send_user_message
        assert await send(self._session_id, text)
        self.said.append(text)


async def check_session(scene: Scene, sessions: Sessions, session_id: str, person: Person) -> list[str]:
    """Nothing is lost or doubled, and the session goes on; how its turns ended."""
    messages = (await sessions.client.get_agent_snapshot(session_id)).messages
    assert sorted(message.text for message in messages if message.role == "user") == sorted(person.said)
    turns = [message.turn_id for message in messages]
    assert turns == sorted(turns, key=lambda turn_id: int(turn_id.removeprefix("turn-")))
    endings = await sessions.endings(session_id)
    failed = [event.payload["error"] for event in await sessions.events(session_id) if event.type == "turn_failed"]
    assert all("WorkerLost" in error for error in failed)
    assert endings.count("turn_cancelled") <= person.cancels
    statuses = await sessions.statuses(session_id)
    tools = {
        (message.turn_id, call.tool_call_id): call.tool_name for message in messages for call in message.tool_calls
    }
    assert len(statuses) == len(tools)
    for message in messages:
        if message.tool_call_id is not None and " done in process " in message.text:
            tool = tools[message.turn_id, message.tool_call_id]
            key = f"{session_id}/{message.turn_id}/{message.tool_call_id}"
            assert scene.log.count(f"{tool}.after")[key] >= 1, key
    await sessions.greet(session_id)
    return endings


def test_interruptions_while_workers_die_at_random_moments(tmp_path: Path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def kill_workers(scene: Scene) -> None:
        for _ in range(KILLS):
            worker = await scene.start_worker()
            await asyncio.sleep(chance.uniform(0.1, 0.6))
            worker.kill()
        await scene.start_worker()

    async def scenario(scene: Scene) -> None:
        async with scene.sessions() as sessions:
            people = [Person(sessions, session_id, random.Random(chance.random())) for session_id in SESSION_IDS]
            for session_id in SESSION_IDS:
                await sessions.client.start_session(session_id)
            await asyncio.gather(kill_workers(scene), *(person.interrupt() for person in people))
            await asyncio.gather(*(person.decide_until_idle() for person in people))
            endings: list[str] = []
            for session_id, person in zip(SESSION_IDS, people, strict=True):
                endings += await check_session(scene, sessions, session_id, person)
            for tool in ONCE:
                runs = scene.log.count(f"{tool}.before")
                assert set(runs.values()) <= {1}, (tool, runs)
            print({ending: endings.count(ending) for ending in sorted(set(endings))})

    play(tmp_path, scenario)
