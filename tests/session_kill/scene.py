"""What the session kill tests share: one database, worker processes on it, and a client in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from dex_agents import AgentSessionClient, AgentState, StreamedAgentEvent
from dex_agents.session.persistence import AGENT_EVENTS, AGENT_TOOL_CALLS
from dex_flow import StateView
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import ProgramProcess, ProgramProcesses
from tests.session_kill.kill_points import create_kill_point_flow
from tests.session_kill.planned_agent import PlannedAgent
from tests.session_kill.strict_transcript import check_stored_messages

__all__ = ["Scene", "Sessions", "play"]

ROOT = Path(__file__).parents[2]
WORKER_PROGRAM = Path(__file__).parent / "programs" / "session_worker.py"
WAIT_SECONDS = 60.0
DEADLINE_SECONDS = 100.0


class Sessions:
    """A client of the test's process, with what the tests read of a session."""

    def __init__(self, engine: EmbeddedEngine, client: AgentSessionClient, scene: Scene) -> None:
        self.engine = engine
        self.client = client
        self._scene = scene

    async def idle(self, session_id: str) -> AgentState:
        """The state once no turn is active and no message waits."""
        return await self.client.wait_until_idle(session_id, timeout=WAIT_SECONDS)

    async def succeeded(self, session_id: str, tool: str) -> None:
        """Wait until a call of the tool in the active turn has succeeded."""

        def has_succeeded(view: StateView) -> bool:
            records = [record for _, record in view.read_range(AGENT_TOOL_CALLS)]
            return any((record.tool_name, record.status) == (tool, "succeeded") for record in records)

        await self.engine.wait_until(session_id, has_succeeded, timeout=WAIT_SECONDS)

    async def answers(self, session_id: str) -> list[str]:
        """The text of the last message of every turn; sequences and tool results must be complete."""
        snapshot = await self.client.get_agent_snapshot(session_id)
        check_stored_messages(snapshot.messages)
        return list({message.turn_id: message.text for message in snapshot.messages}.values())

    async def completed(self, session_id: str) -> str:
        """The answer of the latest turn, which must have succeeded, with every call final exactly once."""
        state = await self.idle(session_id)
        assert state.last_turn_error is None
        answers = await self.answers(session_id)
        assert len(answers) == state.turn_count
        assert answers[-1].startswith("answer: ")
        await self.statuses(session_id)
        return answers[-1]

    async def events(self, session_id: str) -> list[StreamedAgentEvent]:
        """Every event so far."""
        stream = self._scene.flow.streams[AGENT_EVENTS.name]
        events = await self.engine.read_stream(session_id, stream, limit=100_000)
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        return [StreamedAgentEvent(event.position, event.value) for event in events]

    async def statuses(self, session_id: str) -> list[tuple[str, str]]:
        """Tool names and final statuses in the order of the calls; each call that was made is final exactly once."""
        events = await self.events(session_id)
        deferred = [
            (event.turn_id, event.payload["tool_call_id"]) for event in events if event.type == "tool_call_deferred"
        ]
        finished = {
            (event.turn_id, event.payload["tool_call_id"]): (event.payload["tool_name"], event.payload["status"])
            for event in events
            if event.type == "tool_call_finished"
        }
        count = sum(event.type == "tool_call_finished" for event in events)
        assert (len(finished), count) == (len(deferred), len(deferred))
        return [finished[key] for key in deferred]

    async def attempts(self, session_id: str, step_type: str) -> list[tuple[int, str]]:
        """Attempts and outcomes of `run` in the history, oldest first."""
        history = await self.engine.read_step_history(session_id)
        return [
            (entry.attempt, entry.outcome)
            for entry in history
            if entry.step_type == step_type and entry.method == "run"
        ]


class Scene:
    """One test's processes and files."""

    def __init__(self, directory: Path, processes: ProgramProcesses) -> None:
        self.database = directory / "sessions.db"
        self.directory = directory
        self.processes = processes
        self.agent = PlannedAgent(directory)
        self.gates = self.agent.gates
        self.log = self.agent.log
        self.flow = create_kill_point_flow(self.agent.create_flow(), self.gates)

    @contextlib.asynccontextmanager
    async def sessions(self, *, runs_worker: bool = False) -> AsyncIterator[Sessions]:
        """A client of this process, which runs no Steps unless told otherwise."""
        async with EmbeddedEngine(self.database, flows=[self.flow], runs_worker=runs_worker) as engine:
            yield Sessions(engine, AgentSessionClient(engine, self.flow), self)

    async def start_worker(self, *options: str, is_awaited: bool = True) -> ProgramProcess:
        """A worker process, ready unless told otherwise."""
        return await asyncio.to_thread(
            self.processes.start,
            WORKER_PROGRAM,
            str(self.database),
            str(self.directory),
            *options,
            environment={"PYTHONPATH": os.fspath(ROOT)},
            ready_line="ready" if is_awaited else None,
        )

    async def reached(self, point: str, worker: ProgramProcess) -> None:
        """Wait until the worker stops at the gate."""
        await asyncio.to_thread(self.gates.wait_until_reached, point, process=worker.process_id)

    def runs(self, tool: str) -> list[tuple[str, int, int]]:
        """Every effect of a tool: its idempotency key, attempt and process, in order."""
        return [
            (line.key, line.attempt, line.process) for line in self.log.read() if line.event == f"{tool}.before"
        ]

    def model_calls(self, session_id: str, turn: int = 1) -> list[tuple[str, int]]:
        """Every model call of a turn: the number of the model step, and the attempt."""
        prefix = f"{session_id}/turn-{turn}/"
        return [
            (line.key.removeprefix(prefix), line.attempt)
            for line in self.log.read()
            if line.event == "model" and line.key.startswith(prefix)
        ]

    def check_integrity(self) -> None:
        """The database is sound."""
        connection = sqlite3.connect(self.database)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            connection.close()


def play(directory: Path, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    """Run a scenario; no process is left behind, and the database must be sound at the end."""

    async def within_deadline(scene: Scene) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario(scene)

    with ProgramProcesses() as processes:
        scene = Scene(directory, processes)
        asyncio.run(within_deadline(scene))
    scene.check_integrity()
