"""The story of the demo: two sessions, two workers killed at the worst moments, and what is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from dex_agents import AgentInterrupt, AgentSessionClient, AgentSessionFlow, AgentToolCallRecordStatus
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.demo_files import DemoFiles
from dex_agents_server.demo.facts import FactSink, Happened, PhaseStarted, Who
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_server.demo.report import DemoReport, SessionReport, measure_recovery_ms
from dex_agents_server.demo.session_feed import SessionFeed, follow_session
from dex_agents_server.demo.support_agent import create_support_flow
from dex_agents_server.demo.worker_messages import RefundPaused
from dex_agents_server.demo.worker_process import WorkerProcess, WorkerProcesses, worker_processes
from dex_flow.embedded import EmbeddedEngine

__all__ = ["TIME_LIMIT_SECONDS", "run_scenario"]

TIME_LIMIT_SECONDS = 25.0
_FIRST_ORDER = 7
_SECOND_ORDER = 12
_PHASES = (
    "A customer asks for a refund, and the refund needs approval",
    "The worker is killed while the approval waits",
    "A new worker starts, you approve, the refund runs",
    "A second customer asks, you approve right away",
    "The worker is killed inside the refund, after the money has moved",
    "A new worker starts: nothing is repeated, and the model is told",
)
_SUCCEEDED = AgentToolCallRecordStatus.SUCCEEDED.value
_OUTCOME_UNKNOWN = AgentToolCallRecordStatus.OUTCOME_UNKNOWN.value


async def run_scenario(files: DemoFiles, report: FactSink) -> DemoReport:
    """Run the story on fresh databases in `files`; no worker process is left at its end, however it comes.

    Args:
        files: An empty folder.
        report: Told every fact as it becomes known.

    Raises:
        DemoError: A worker ended by itself, or the story took too long.
    """
    story = _Story(files, report)
    try:
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            return await story.tell()
    except TimeoutError:
        phase = _PHASES[max(story.phase, 1) - 1]
        raise DemoError(
            f"the demo did not end within {TIME_LIMIT_SECONDS:g} s; it stopped at: {phase}. Is the machine very busy?"
        ) from None


class _Story:
    def __init__(self, files: DemoFiles, report: FactSink) -> None:
        self.phase = 0
        self._files = files
        self._report = report
        self._orders = OrdersDatabase.create(files.orders)
        self._flow: AgentSessionFlow = create_support_flow(self._orders)
        self._engine = EmbeddedEngine(files.sessions, [self._flow], runs_worker=False)
        self._sessions = AgentSessionClient(self._engine, self._flow)

    async def tell(self) -> DemoReport:
        async with self._engine, worker_processes(self._files) as workers:
            self._next_phase()
            first_worker = await self._start_worker(workers, _SECOND_ORDER)
            first_report, second_worker = await self._tell_kill_during_approval(workers, first_worker[0])
            second_report, third_worker = await self._tell_kill_during_refund(workers, second_worker)
            await third_worker.stop()
        return DemoReport(sessions=(first_report, second_report))

    async def _tell_kill_during_approval(
        self, workers: WorkerProcesses, worker: WorkerProcess
    ) -> tuple[SessionReport, WorkerProcess]:
        order_id = _FIRST_ORDER
        async with self._session(order_id) as (session_id, feed):
            interrupt = await self._wait_for_approval(worker, session_id, feed)
            self._next_phase()
            await self._kill(worker, "the approval waits in the database")
            self._next_phase()
            async with feed.silence():
                worker, ready_at = await self._start_worker(workers, _SECOND_ORDER)
            await self._approve(session_id, interrupt)
            await worker.while_running(self._sessions.wait_until_idle(session_id))
            await feed.collect()
            approved_at = _time_of_event(feed, "interrupt_resolved")
            recovery = measure_recovery_ms(feed.history, max(ready_at, approved_at))
            report = await self._report_session(session_id, order_id, feed, (_SUCCEEDED, _SUCCEEDED), recovery)
        return report, worker

    async def _tell_kill_during_refund(
        self, workers: WorkerProcesses, worker: WorkerProcess
    ) -> tuple[SessionReport, WorkerProcess]:
        order_id = _SECOND_ORDER
        self._next_phase()
        async with self._session(order_id) as (session_id, feed):
            interrupt = await self._wait_for_approval(worker, session_id, feed)
            await self._approve(session_id, interrupt)
            paused = await worker.wait_for_message(RefundPaused)
            await feed.collect()
            self._say("worker", f"worker {worker.number} has paid order {paused.order_id} back", paused.at)
            self._next_phase()
            await self._kill(worker, "the tool's result is lost")
            self._next_phase()
            async with feed.silence():
                worker, ready_at = await self._start_worker(workers)
            await worker.while_running(self._sessions.wait_until_idle(session_id))
            await feed.collect()
            recovery = measure_recovery_ms(feed.history, ready_at)
            report = await self._report_session(session_id, order_id, feed, (_SUCCEEDED, _OUTCOME_UNKNOWN), recovery)
        return report, worker

    @contextlib.asynccontextmanager
    async def _session(self, order_id: int) -> AsyncIterator[tuple[str, SessionFeed]]:
        session_id = f"refund-order-{order_id}"
        text = f"Refund order {order_id}"
        self._say("user", f"{text!r} in the new session {session_id!r}")
        await self._sessions.start_session(session_id, initial_message=text)
        async with follow_session(self._engine, self._flow, session_id, self._report) as feed:
            yield session_id, feed

    async def _wait_for_approval(self, worker: WorkerProcess, session_id: str, feed: SessionFeed) -> AgentInterrupt:
        [interrupt] = await worker.while_running(self._sessions.wait_for_interrupts(session_id))
        await feed.collect()
        return interrupt

    async def _approve(self, session_id: str, interrupt: AgentInterrupt) -> None:
        order_id = json.loads(interrupt.arguments)["order_id"]
        self._say("decision", f"approved: {interrupt.tool_name} of order {order_id}")
        if not await self._sessions.resolve_interrupt(session_id, interrupt.interrupt_id, approved=True):
            raise DemoError(f"the approval of {interrupt.tool_name} in session {session_id!r} was refused")

    async def _start_worker(
        self, workers: WorkerProcesses, pause_refund: int | None = None
    ) -> tuple[WorkerProcess, datetime]:
        worker, ready = await workers.start(pause_refund=pause_refund)
        self._say("worker", f"worker {worker.number} runs in process {worker.pid}", ready.at)
        return worker, ready.at

    async def _kill(self, worker: WorkerProcess, consequence: str) -> None:
        killed_at = await worker.kill()
        self._say("kill", f"SIGKILL to worker {worker.number}, process {worker.pid}: {consequence}", killed_at)

    async def _report_session(
        self, session_id: str, order_id: int, feed: SessionFeed, expected: tuple[str, ...], recovery_ms: float
    ) -> SessionReport:
        finished = [event.payload for event in feed.events if event.type == "tool_call_finished"]
        order = await asyncio.to_thread(self._orders.find_order, order_id)
        return SessionReport(
            session_id=session_id,
            order_id=order_id,
            final_text=next((message.text for message in reversed(feed.messages) if message.role == "assistant"), ""),
            tool_runs=await asyncio.to_thread(self._orders.count_tool_runs, session_id),
            tool_statuses=tuple(str(payload["status"]) for payload in finished),
            expected_statuses=expected,
            told=tuple(message.text for message in feed.messages if message.role == "tool"),
            payments=order.refunds,
            worker_kills=1,
            recovery_ms=(recovery_ms,),
        )

    def _next_phase(self) -> None:
        self.phase += 1
        title = _PHASES[self.phase - 1]
        self._report(PhaseStarted(at=datetime.now(UTC), number=self.phase, total=len(_PHASES), title=title))

    def _say(self, who: Who, text: str, at: datetime | None = None) -> None:
        self._report(Happened(at=at or datetime.now(UTC), who=who, text=text))


def _time_of_event(feed: SessionFeed, event_type: str) -> datetime:
    times = [event.event.created_at for event in feed.events if event.type == event_type]
    if not times:
        raise DemoError(f"the session has no event {event_type}")
    return times[-1]
