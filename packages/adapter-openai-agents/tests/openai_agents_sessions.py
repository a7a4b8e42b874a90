"""A durable session of a test's agent on the embedded engine, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from agents import Agent, Tool, set_tracing_disabled

from dex_agents import AgentEvent, AgentMessage, AgentSessionFlow, TurnResult
from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.testing import AgentSessionTestClient, AgentTestEnvironment, poll_until
from dex_agents_openai_agents import create_openai_agents_session_flow
from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item

set_tracing_disabled(True)

SESSION = "session-1"


class LiveSession:
    """One session and what tests do to it."""

    def __init__(self, environment: AgentTestEnvironment) -> None:
        self._environment = environment
        self.client: AgentSessionTestClient = environment.client

    async def say(self, text: str, **options: Any) -> TurnResult:
        """Send a message and wait for the end of its turn, or for a person."""
        await self.client.start_session(SESSION, already_started="ignore")
        return await self.client.send_and_wait(SESSION, text, timeout=30, **options)

    async def answer_of(self, text: str) -> str:
        """The answer of a turn that must complete."""
        result = await self.say(text)
        assert result.status == "completed", result
        return result.text

    async def finished(self) -> None:
        """Wait until no turn is active."""
        await self.client.wait_until_idle(SESSION, timeout=30)

    async def messages(self) -> tuple[AgentMessage, ...]:
        """The stored messages."""
        return (await self.client.get_agent_snapshot(SESSION)).messages

    async def statuses(self) -> list[tuple[str, str]]:
        """Every finished call, in the order they became final."""
        return await self.client.read_tool_call_statuses(SESSION)

    async def error(self) -> str:
        """Type and text of the latest turn's failure."""
        state = (await self.client.get_agent_snapshot(SESSION)).state
        assert state is not None
        assert state.last_turn_error is not None, state
        return f"{state.last_turn_error.type}: {state.last_turn_error.message}"

    async def events(self, type: str) -> list[dict[str, Any]]:
        """Payloads of the events of a type."""
        flow = self._environment.flow
        found = await self._environment.engine.read_stream(SESSION, flow.streams[AGENT_EVENTS.name], limit=100_000)
        events: list[AgentEvent] = [event.value for event in found]
        return [decode_event_payload(event) for event in events if event.type == type]

    async def event(self, type: str) -> dict[str, Any]:
        """Payload of the first event of a type, once it is there."""

        async def read() -> dict[str, Any] | None:
            return next(iter(await self.events(type)), None)

        return await poll_until(read, awaited=f"an event {type}")

    async def streamed_text(self) -> str:
        """All text deltas."""
        return "".join(payload["text"] for payload in await self.events("text_delta"))


@contextlib.asynccontextmanager
async def open_session(
    agent: Agent[Any] | AgentSessionFlow, directory: Path, **options: Any
) -> AsyncIterator[LiveSession]:
    """A session of an agent; failed attempts are repeated at once."""
    if isinstance(agent, AgentSessionFlow):
        flow = agent
    else:
        flow = create_openai_agents_session_flow(agent, "TestAgent", **{"attempt_backoff": timedelta(0), **options})
    async with AgentTestEnvironment(lambda _: flow, runs_worker=True, directory=directory) as environment:
        yield LiveSession(environment)


def agent_with_tools(model: ScriptedModel, *tools: Tool, **fields: Any) -> Agent[Any]:
    """An agent that is called Assistant."""
    return Agent[Any](name="Assistant", instructions="You help.", model=model, tools=list(tools), **fields)


def one_call(name: str, arguments: Any = "{}") -> ScriptedModel:
    """A model that calls a tool once and is done."""
    return ScriptedModel([call_item(name, arguments, "c1")], [text_item("done", 2)])


def read_results(model: ScriptedModel) -> list[Any]:
    """Outputs of calls that the model read in its latest request."""
    return [item["output"] for item in model.requests[-1].items if str(item.get("type", "")).endswith("_output")]
