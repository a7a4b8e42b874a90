"""One session of an agent on the embedded engine, and what tests do to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from dex_agents import AgentInterrupt, AgentSessionClient, AgentToolCallRecord
from dex_agents.session.persistence import AGENT_TOOL_CALLS
from dex_agents_stepwise import (
    AgentDefinition,
    ModelRequest,
    ModelToolResult,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    create_stepwise_agent_session_flow,
)
from dex_flow import Flow, StateView
from dex_flow.embedded import EmbeddedEngine

from .stepwise_session_driver import StrictModelClient

SESSION_ID = "s"
WAIT_SECONDS = 60.0


class LiveSession:
    """A session with a scripted model behind the strict provider.

    Args:
        engine: Runs it.
        flow: Its Flow.
        model: The scripted model.
    """

    def __init__(self, engine: EmbeddedEngine, flow: Flow, model: ScriptedModelClient) -> None:
        self.engine = engine
        self.model = model
        self.client = AgentSessionClient(engine, flow)

    async def say(self, text: str) -> None:
        """Send a user message, the first of which starts the session."""
        if not await self.client.start_session(SESSION_ID, initial_message=text, already_started="ignore"):
            assert await self.client.send_user_message(SESSION_ID, text)

    async def steer(self, text: str) -> None:
        assert await self.client.steer_user_message(SESSION_ID, text)

    async def cancel_turn(self) -> None:
        assert await self.client.cancel_turn(SESSION_ID)

    async def interrupts(self, count: int = 1) -> tuple[AgentInterrupt, ...]:
        """What waits for a person, once it is so much."""
        return await self.client.wait_for_interrupts(SESSION_ID, count=count, timeout=WAIT_SECONDS)

    async def answer(self, question: str, answer: str) -> None:
        """Answer the one question that waits, or will."""
        (interrupt,) = await self.interrupts()
        assert interrupt.question == question
        await self.answer_interrupt(interrupt.interrupt_id, answer)

    async def answer_interrupt(self, interrupt_id: str, answer: str) -> None:
        assert await self.client.answer_question(SESSION_ID, interrupt_id, answer)

    async def decline(self, words: str | None = None) -> None:
        """Decline or reject the one decision that waits, or will."""
        (interrupt,) = await self.interrupts()
        assert await self.client.resolve_interrupt(
            SESSION_ID, interrupt.interrupt_id, approved=False, rejection_message=words
        )

    async def record(
        self, tool_name: str, status: str, fits: Callable[[AgentToolCallRecord], bool] = lambda record: True
    ) -> AgentToolCallRecord:
        """The record of the active turn's latest call of a tool, once it has the status and fits."""

        def find(view: StateView) -> AgentToolCallRecord | None:
            records = [record for _, record in view.read_range(AGENT_TOOL_CALLS) if record.tool_name == tool_name]
            latest = max(records, key=lambda record: record.deferral_order, default=None)
            return latest if latest is not None and latest.status == status and fits(latest) else None

        return await self.engine.wait_until(SESSION_ID, find, timeout=WAIT_SECONDS)

    async def skip_timer(self, step_type: str) -> None:
        """End the timer that the one open Step of a type waits for."""
        description = await self.engine.describe_flow(SESSION_ID)
        (step,) = [step for step in description.open_steps if step.step_type == step_type]
        assert await self.engine.skip_timer(SESSION_ID, step.step_execution_id)

    async def idle(self) -> str:
        """The last stored text, once no turn is active; every call has exactly one result, in call order."""
        state = await self.client.wait_until_idle(SESSION_ID, timeout=WAIT_SECONDS)
        assert state.last_turn_error is None
        messages = (await self.client.get_agent_snapshot(SESSION_ID)).messages
        expected: list[str] = []
        for message in messages:
            if message.role == "tool":
                assert message.tool_call_id == expected.pop(0)
            else:
                assert expected == []
                expected = [call.tool_call_id for call in message.tool_calls]
        assert expected == []
        return messages[-1].text

    def results_seen(self) -> list[str]:
        """The tool results in the latest request, oldest first."""
        return [item.output for item in self.model.requests[-1].input_items if isinstance(item, ModelToolResult)]

    def users_seen(self) -> list[str]:
        """The user texts in the latest request, oldest first."""
        return [item.text for item in self.model.requests[-1].input_items if isinstance(item, ModelUserText)]


@contextlib.asynccontextmanager
async def live_session(
    directory: Path, script: Callable[[ModelRequest], ScriptedModelReply], **definition: Any
) -> AsyncIterator[LiveSession]:
    """Run an agent's session.

    Args:
        directory: Holds the database.
        script: What the model says.
        definition: Further fields of the agent definition.
    """
    model = ScriptedModelClient(script)
    agent = AgentDefinition(name="live", instructions="Help.", model=StrictModelClient(model), **definition)
    flow = create_stepwise_agent_session_flow(agent, "LiveAgent", attempt_backoff=timedelta(0))
    async with EmbeddedEngine(directory / "agents.db", flows=[flow], durability="process") as engine:
        yield LiveSession(engine, flow, model)
