"""Turns what a session commits, its messages, events and Step history, into facts in the order of its commits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from datetime import datetime

from dex_agents import AgentMessage, AgentSessionClient, AgentSessionFlow, StreamedAgentEvent
from dex_agents_server.demo.commit_order import in_order_of_commits
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.facts import FactSink
from dex_flow import Engine, StepHistoryEntry

__all__ = ["SessionFeed", "follow_session"]


class SessionFeed:
    """Everything a session has committed so far; made by `follow_session`.

    Attributes:
        events: The session's events.
        history: Its finished Step methods.
        messages: Its messages.
    """

    def __init__(self, engine: Engine, flow: AgentSessionFlow, session_id: str, report: FactSink) -> None:
        self.events: list[StreamedAgentEvent] = []
        self.history: list[StepHistoryEntry] = []
        self.messages: list[AgentMessage] = []
        self._engine = engine
        self._flow = flow
        self._sessions = AgentSessionClient(engine, flow)
        self._session_id = session_id
        self._report = report
        self._collecting = asyncio.Lock()

    async def collect(self) -> None:
        """Report what was committed since the last call."""
        async with self._collecting:
            # Only up to here: what is committed between the reads below would be told in a wrong order.
            until = (await self._engine.describe_flow(self._session_id)).updated_at
            events = await self._read_events(until)
            history = await self._read_history(until)
            messages = await self._read_messages(until)
            for fact in in_order_of_commits(messages, events, history):
                self._report(fact)

    async def wait_for_event(self, event_type: str) -> StreamedAgentEvent:
        """The first event of a type, as soon as it is written.

        Raises:
            DemoError: The session ended without one.
        """
        async with contextlib.aclosing(self._sessions.stream_events(self._session_id)) as stream:
            async for event in stream:
                if event.type == event_type:
                    await self.collect()
                    return event
        raise DemoError(f"session {self._session_id!r} ended without an event {event_type}")

    async def _read_events(self, until: datetime) -> list[StreamedAgentEvent]:
        after = self.events[-1].position if self.events else 0
        stored = await self._engine.read_stream(self._session_id, self._flow.agent_events, after=after)
        known = itertools.takewhile(lambda event: event.value.created_at <= until, stored)
        events = [StreamedAgentEvent(event.position, event.value) for event in known]
        self.events += events
        return events

    async def _read_history(self, until: datetime) -> list[StepHistoryEntry]:
        after = self.history[-1].number if self.history else 0
        stored = await self._engine.read_step_history(self._session_id, after=after)
        history = list(itertools.takewhile(lambda entry: entry.finished_at <= until, stored))
        self.history += history
        return history

    async def _read_messages(self, until: datetime) -> list[AgentMessage]:
        after = self.messages[-1].sequence if self.messages else 0
        page = await self._sessions.list_agent_messages(self._session_id)
        messages = [message for message in page.messages if message.sequence > after and message.created_at <= until]
        self.messages += messages
        return messages

    async def follow(self) -> None:
        """Collect with every new event, until cancelled."""
        async for _ in self._sessions.stream_events(self._session_id):
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
    task = asyncio.create_task(feed.follow())
    try:
        yield feed
        await feed.collect()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
