"""What the kill tests share: one database, worker processes on it, and a client in the test's own process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

from dex_flow import FlowDescription, StepHistoryEntry
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import GatedFlow, ProgramProcess, ProgramProcesses

WORKER_PROGRAM = Path(__file__).parent / "programs" / "embedded_worker.py"
DEADLINE_SECONDS = 90.0


class Scene:
    """One test's processes and files."""

    def __init__(self, directory: Path, processes: ProgramProcesses) -> None:
        self.database = directory / "flows.db"
        self.directory = directory
        self.processes = processes
        self.flow = GatedFlow(directory)
        self.gates = self.flow.gates
        self.log = self.flow.log

    def client(self) -> EmbeddedEngine:
        """An engine of this process that runs no Steps."""
        return EmbeddedEngine(self.database, flows=[self.flow], runs_worker=False)

    async def start_worker(self, *options: str, is_awaited: bool = True) -> ProgramProcess:
        """A worker process, ready unless told otherwise."""
        return await asyncio.to_thread(
            self.processes.start,
            WORKER_PROGRAM,
            str(self.database),
            str(self.directory),
            *options,
            ready_line="ready" if is_awaited else None,
        )

    async def reached(self, point: str, worker: ProgramProcess) -> None:
        """Wait until the worker stops at the gate."""
        await asyncio.to_thread(self.gates.wait_until_reached, point, process=worker.process_id)

    async def begun_by(self, worker: ProgramProcess) -> None:
        """Wait until the worker has begun a job."""
        async with asyncio.timeout(30):
            while True:
                if any(line.process == worker.process_id for line in self.log.read()):
                    return
                await asyncio.sleep(0.005)

    def events(self, flow_id: str, number: int) -> list[str]:
        """What the log has of one job, in order, with attempts."""
        key = GatedFlow.job_key(flow_id, number)
        return [f"{line.event} {line.attempt}" for line in self.log.read() if line.key == key]

    def check_integrity(self) -> None:
        """The closed database is sound."""
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


async def ended(client: EmbeddedEngine, flow_id: str) -> FlowDescription:
    """The description once the Flow has ended."""
    while True:
        description = await client.describe_flow(flow_id)
        if description.status != "open":
            return description
        await asyncio.sleep(0.01)


async def job_history(client: EmbeddedEngine, flow_id: str) -> list[StepHistoryEntry]:
    """Finished attempts of jobs."""
    history = await client.read_step_history(flow_id)
    return [entry for entry in history if entry.step_type.endswith("Job") and entry.method == "run"]
