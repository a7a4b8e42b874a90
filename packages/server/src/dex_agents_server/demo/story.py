"""What every scenario is told with: phases, workers, sessions and the shop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from dex_agents import AgentSessionFlow
from dex_agents_server.demo.chronicle import Chronicle
from dex_agents_server.demo.demo_files import DemoFiles
from dex_agents_server.demo.demo_session import DemoSession, started_session
from dex_agents_server.demo.facts import Happened, PhaseStarted
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.support_agent import Script, create_support_flow
from dex_agents_server.demo.worker_process import WorkerProcess, WorkerProcesses, worker_processes
from dex_flow import Engine
from dex_flow.embedded import EmbeddedEngine

__all__ = ["Story", "beginning_story"]


class Story:
    """One run of a scenario; made by `beginning_story`.

    Attributes:
        orders: The shop's database.
        phase: The title of the current phase.
    """

    def __init__(
        self,
        phases: Sequence[str],
        chronicle: Chronicle,
        orders: OrdersDatabase,
        flow: AgentSessionFlow,
        engine: Engine,
        workers: WorkerProcesses,
    ) -> None:
        self.orders = orders
        self.phase = phases[0]
        self._phases = phases
        self._phase_number = 0
        self._chronicle = chronicle
        self._flow = flow
        self._engine = engine
        self._workers = workers

    def next_phase(self) -> None:
        """Begin the next phase; everything before it must have been collected."""
        self._chronicle.show_all()
        self.phase = self._phases[self._phase_number]
        self._phase_number += 1
        self._chronicle.add(
            PhaseStarted(at=datetime.now(UTC), number=self._phase_number, total=len(self._phases), title=self.phase)
        )
        self._chronicle.show_all()

    async def start_worker(self, *pauses: str) -> WorkerProcess:
        """Start a worker that stands still at `pauses`, and wait until it runs Steps."""
        worker = await self._workers.start(*pauses)
        text = f"worker {worker.number} runs in process {worker.pid}"
        self._chronicle.add(Happened(at=worker.ready_at, who="worker", text=text))
        return worker

    def session(self, session_id: str, text: str) -> AbstractAsyncContextManager[DemoSession]:
        """Start a session with a first message and report what it commits."""
        return started_session(self._engine, self._flow, self._chronicle, session_id, text)


@contextlib.asynccontextmanager
async def beginning_story(
    files: DemoFiles, name: ScenarioName, phases: Sequence[str], script: Script, chronicle: Chronicle
) -> AsyncIterator[Story]:
    """A story on fresh databases in `files`; no worker process is left at its end, however it comes.

    Args:
        files: An empty folder.
        name: What the workers play.
        phases: The titles of the phases.
        script: What the model says.
        chronicle: Gets what happens.
    """
    orders = OrdersDatabase.create(files.orders)
    flow = create_support_flow(orders, script)
    async with (
        EmbeddedEngine(files.sessions, [flow], runs_worker=False) as engine,
        worker_processes(files, name) as workers,
    ):
        yield Story(phases, chronicle, orders, flow, engine, workers)
