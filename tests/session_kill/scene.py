"""What the session kill tests share: one database, worker processes on it, and a client in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from dex_agents.testing.kill_points import create_kill_point_flow
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import ProgramProcess, ProgramProcesses
from tests.session_kill.forked_workers import WORKER_ENVIRONMENT, worker_fork_server
from tests.session_kill.planned_agent import PlannedAgent
from tests.session_kill.sessions import Sessions

__all__ = ["DAYS", "Scene", "play"]

WORKER_PROGRAM = Path(__file__).parent / "programs" / "session_worker.py"
DEADLINE_SECONDS = 100.0
DAYS = 86_400.0  #: seconds of one


class Scene:
    """One test's processes and files."""

    def __init__(self, directory: Path, processes: ProgramProcesses) -> None:
        self.database = directory / "sessions.db"
        self.directory = directory
        self.processes = processes
        self._workers: list[ProgramProcess] = []
        self.agent = PlannedAgent(directory)
        self.gates = self.agent.gates
        self.log = self.agent.log
        self.flow = create_kill_point_flow(self.agent.create_flow(), self.gates)

    @contextlib.asynccontextmanager
    async def sessions(self, *, runs_worker: bool = False) -> AsyncIterator[Sessions]:
        """A client of this process, which runs no Steps unless told otherwise."""
        async with EmbeddedEngine(self.database, flows=[self.flow], runs_worker=runs_worker) as engine:
            yield Sessions(engine, self.flow)

    async def start_worker(self, *options: str, is_awaited: bool = True, is_cold_start: bool = False) -> ProgramProcess:
        """A worker process, ready unless told otherwise; forked from one that imported its modules, unless cold."""
        worker = await asyncio.to_thread(
            self.processes.start,
            WORKER_PROGRAM,
            str(self.database),
            str(self.directory),
            *options,
            environment=WORKER_ENVIRONMENT,
            fork_server=None if is_cold_start else worker_fork_server(),
            ready_line="ready" if is_awaited else None,
        )
        self._workers.append(worker)
        return worker

    def kill_workers(self) -> None:
        """SIGKILL for every worker that still runs."""
        for worker in self._workers:
            if worker.is_running:
                worker.kill()

    async def replace_worker_at(self, point: str, worker: ProgramProcess, *options: str) -> ProgramProcess:
        """Kill the worker once it stops at the gate, open the gate, and start another worker."""
        await self.reached(point, worker)
        worker.kill()
        self.gates.open(point)
        return await self.start_worker(*options)

    async def stop_workers(self) -> None:
        """End the workers that still run, in good order, so that they take their wake-up sockets with them."""
        for worker in self._workers:
            if worker.is_running:
                await asyncio.to_thread(worker.wait_for_line, "ready")
                assert await asyncio.to_thread(worker.stop) == 0

    async def reached(self, point: str, worker: ProgramProcess) -> None:
        """Wait until the worker stops at the gate."""
        await asyncio.to_thread(self.gates.wait_until_reached, point, process=worker.process_id)

    def runs(self, tool: str) -> list[tuple[str, int, int]]:
        """Every effect of a tool: its idempotency key, attempt and process, in order."""
        return [(line.key, line.attempt, line.process) for line in self.log.read() if line.event == f"{tool}.before"]

    def events(self, prefix: str) -> list[tuple[str, int]]:
        """The rest of every logged event that begins so, and its attempt, in order."""
        return [
            (line.event.removeprefix(prefix), line.attempt) for line in self.log.read() if line.event.startswith(prefix)
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
        # A worker that is held inside its transaction keeps this process from writing, and so from closing its engine.
        last_resort = asyncio.get_running_loop().call_later(DEADLINE_SECONDS, scene.kill_workers)
        async with asyncio.timeout(DEADLINE_SECONDS + 1):
            await scenario(scene)
            await scene.stop_workers()
        last_resort.cancel()

    with ProgramProcesses() as processes:
        scene = Scene(directory, processes)
        asyncio.run(within_deadline(scene))
    scene.check_integrity()
