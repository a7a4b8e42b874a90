"""Turns what a session commits, its events and its Step history, into facts in the order of their times."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from dex_agents import AgentSessionClient, AgentSessionFlow, StreamedAgentEvent
from dex_agents_server.demo.facts import EventWritten, FactSink, StepFinished
from dex_flow import Engine, StepHistoryEntry

__all__ = ["SessionFeed", "follow_session"]


class SessionFeed:
    """Everything a session has committed so far; made by `follow_session`.

    Attributes:
        events: The session's events.
        history: Its finished Step methods.
    """

    def __init__(self, engine: Engine, flow: AgentSessionFlow, session_id: str, report: FactSink) -> None:
        self.events: list[StreamedAgentEvent] = []
        self.history: list[StepHistoryEntry] = []
        self._engine = engine
        self._flow = flow
        self._session_id = session_id
        self._report = report
        self._collecting = asyncio.Lock()

    async def collect(self) -> None:
        """Report what was committed since the last call."""
        async with self._collecting:
            position = self.events[-1].position if self.events else 0
            number = self.history[-1].number if self.history else 0
            stored = await self._engine.read_stream(self._session_id, self._flow.agent_events, after=position)
            events = [StreamedAgentEvent(event.position, event.value) for event in stored]
            history = await self._engine.read_step_history(self._session_id, after=number)
            self.events += events
            self.history += history
            facts: list[EventWritten | StepFinished] = []
            facts += [EventWritten(at=event.event.created_at, event=event) for event in events]
            facts += [StepFinished(at=entry.finished_at, entry=entry) for entry in history]
            for fact in sorted(facts, key=lambda fact: fact.at):
                self._report(fact)

    @contextlib.asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Report nothing inside, so that what the caller reports at the end comes before what it sets off."""
        async with self._collecting:
            yield

    async def follow(self, sessions: AgentSessionClient) -> None:
        """Collect with every new event, until cancelled."""
        async for _ in sessions.stream_events(self._session_id):
            await self.collect()


@contextlib.asynccontextmanager
async def follow_session(
    engine: Engine, flow: AgentSessionFlow, session_id: str, report: FactSink
) -> AsyncIterator[SessionFeed]:
    """Report what a started session commits while the body runs, and all of it by the end.

    Raises:
        DexFlowError: The session cannot be read.
    """
    feed = SessionFeed(engine, flow, session_id, report)
    task = asyncio.create_task(feed.follow(AgentSessionClient(engine, flow)))
    try:
        yield feed
        await feed.collect()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
