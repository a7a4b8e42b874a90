"""One session of a scenario: what a person does with it, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime

from dex_agents import AgentInterrupt, AgentSessionClient, AgentSessionFlow, StreamedAgentEvent
from dex_agents.session import events
from dex_agents_server.demo.chronicle import Chronicle
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.facts import Happened, Who
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_server.demo.report import Check, ExpectedSession, SessionReport, ToolCallFound, measure_recovery_ms
from dex_agents_server.demo.session_feed import SessionFeed, follow_session
from dex_agents_server.demo.worker_process import WorkerProcess
from dex_flow import Engine

__all__ = ["DemoSession", "started_session"]

_UNFINISHED = "unfinished"


class DemoSession:
    """Acts on a session and reports each act; made by `started_session`.

    Attributes:
        session_id: The session.
        feed: What it has committed.
    """

    def __init__(self, session_id: str, sessions: AgentSessionClient, feed: SessionFeed, chronicle: Chronicle) -> None:
        self.session_id = session_id
        self.feed = feed
        self._sessions = sessions
        self._chronicle = chronicle
        self._kills = 0
        self._recoveries: list[float] = []

    def say(self, who: Who, text: str, at: datetime | None = None) -> None:
        """Report what the session's own records do not tell; `at` is now unless given."""
        self._chronicle.add(Happened(at=at or datetime.now(UTC), who=who, text=text))

    async def send(self, text: str) -> None:
        """Send a user message."""
        self.say("user", repr(text))
        self._require(await self._sessions.send_user_message(self.session_id, text), f"the message {text!r}")
        await self.feed.collect()

    async def steer(self, text: str) -> datetime:
        """Steer the running turn; returns when that was recorded."""
        self.say("user", f"steers: {text!r}")
        self._require(await self._sessions.steer_user_message(self.session_id, text), f"the steering message {text!r}")
        return datetime.now(UTC)

    async def cancel_turn(self) -> datetime:
        """Stop the active turn; returns when that was recorded."""
        self.say("user", "stops the turn")
        self._require(await self._sessions.cancel_turn(self.session_id), "stopping the turn")
        return datetime.now(UTC)

    async def approve(self, interrupt: AgentInterrupt) -> None:
        """Approve a tool call."""
        order_id = json.loads(interrupt.arguments)["order_id"]
        self.say("decision", f"approved: {interrupt.tool_name} of order {order_id}")
        self._require(await self.try_to_approve(interrupt), f"the approval of {interrupt.tool_name}")

    async def try_to_approve(self, interrupt: AgentInterrupt) -> bool:
        """Approve a tool call that may not wait any more."""
        return await self._sessions.resolve_interrupt(self.session_id, interrupt.interrupt_id, approved=True)

    async def try_to_answer(self, interrupt: AgentInterrupt, answer: str) -> bool:
        """Answer a question with what may be no answer to it."""
        return await self._sessions.answer_question(self.session_id, interrupt.interrupt_id, answer)

    async def answer(self, interrupt: AgentInterrupt, answer: str) -> None:
        """Answer a question."""
        self.say("user", f"answers: {answer!r}")
        self._require(await self.try_to_answer(interrupt, answer), f"the answer {answer!r}")

    async def count_queued_messages(self) -> int:
        """How many user messages wait for a turn."""
        return (await self._sessions.get_agent_snapshot(self.session_id)).queued_message_count

    async def wait_for_interrupt(self, worker: WorkerProcess) -> AgentInterrupt:
        """The one approval or question that waits, once `worker` has come so far."""
        [interrupt] = await worker.while_running(self._sessions.wait_for_interrupts(self.session_id))
        await self.feed.collect()
        return interrupt

    async def wait_for_event(self, worker: WorkerProcess, event_type: str) -> StreamedAgentEvent:
        """The first event of a type, once `worker` has come so far."""
        return await worker.while_running(self.feed.wait_for_event(event_type))

    async def wait_until_idle(self, worker: WorkerProcess) -> None:
        """Wait until `worker` has ended every turn there is."""
        await worker.while_running(self._sessions.wait_until_idle(self.session_id))
        await self.feed.collect()

    async def kill(self, worker: WorkerProcess, consequence: str) -> None:
        """SIGKILL the worker under the session; `consequence` says what that leaves."""
        await self.feed.collect()
        killed_at = await worker.kill()
        self._kills += 1
        self.say("kill", f"SIGKILL to worker {worker.number}, process {worker.pid}: {consequence}", killed_at)

    def measure_recovery(self, since: datetime) -> None:
        """Measure how long the session took to go on after the kill; see `measure_recovery_ms`."""
        self._recoveries.append(measure_recovery_ms(self.feed.history, since))

    def events_of(self, event_type: str) -> list[StreamedAgentEvent]:
        """The collected events of a type."""
        return [event for event in self.feed.events if event.type == event_type]

    def time_of(self, event_type: str) -> datetime:
        """When the first collected event of a type was written.

        Raises:
            DemoError: There is none.
        """
        found = self.events_of(event_type)
        if not found:
            raise DemoError(f"session {self.session_id!r} has no event {event_type}")
        return found[0].event.created_at

    def answers(self) -> list[str]:
        """What the agent said, oldest first."""
        return [message.text for message in self.feed.messages if message.role == "assistant"]

    async def report(
        self, orders: OrdersDatabase, expected: ExpectedSession, checks: Sequence[Check] = ()
    ) -> SessionReport:
        """What came of the session.

        Args:
            orders: The shop's database.
            expected: What should have come of it.
            checks: What else was promised.
        """
        return SessionReport(
            session_id=self.session_id,
            final_text=next(iter(reversed(self.answers())), ""),
            calls=self._calls(),
            tool_runs=await asyncio.to_thread(orders.count_tool_runs, self.session_id),
            payments=await asyncio.to_thread(_count_payments, orders, expected.payments),
            told=tuple(message.text for message in self.feed.messages if message.role == "tool"),
            worker_kills=self._kills,
            recovery_ms=tuple(self._recoveries),
            checks=tuple(checks),
            expected=expected,
        )

    def _calls(self) -> tuple[ToolCallFound, ...]:
        statuses = {
            (event.turn_id, event.payload["tool_call_id"]): str(event.payload["status"])
            for event in self.events_of(events.TOOL_CALL_FINISHED)
        }
        return tuple(
            ToolCallFound(
                str(event.payload["tool_name"]),
                statuses.get((event.turn_id, event.payload["tool_call_id"]), _UNFINISHED),
            )
            for event in self.events_of(events.TOOL_CALL_DEFERRED)
        )

    def _require(self, accepted: bool, what: str) -> None:
        if not accepted:
            raise DemoError(f"session {self.session_id!r} refused {what}")


@contextlib.asynccontextmanager
async def started_session(
    engine: Engine, flow: AgentSessionFlow, chronicle: Chronicle, session_id: str, text: str
) -> AsyncIterator[DemoSession]:
    """A new session with its first message, whose commits are reported while the body runs.

    Args:
        engine: Reaches the sessions.
        flow: The support agent's.
        chronicle: Gets what happens.
        session_id: Of the new session.
        text: Its first message.
    """
    sessions = AgentSessionClient(engine, flow)
    chronicle.add(Happened(at=datetime.now(UTC), who="user", text=f"{text!r} in the new session {session_id!r}"))
    await sessions.start_session(session_id, initial_message=text)
    async with follow_session(engine, flow, session_id, chronicle.add) as feed:
        yield DemoSession(session_id, sessions, feed, chronicle)


def _count_payments(orders: OrdersDatabase, order_ids: Collection[int]) -> dict[int, int]:
    return {order_id: orders.find_order(order_id).refunds for order_id in order_ids}
