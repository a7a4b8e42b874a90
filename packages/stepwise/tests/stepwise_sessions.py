"""One session of an agent on the embedded engine, and what tests do to it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from dex_agents import (
    AgentInterrupt,
    AgentSessionClient,
    AgentSnapshot,
    AgentState,
    AgentToolCallRecord,
    ExecutePlanInput,
    ResolveInterruptInput,
    UpdateSessionSettingsInput,
)
from dex_agents.session.persistence import AGENT_TOOL_CALLS
from dex_agents.session.rpcs import EXECUTE_PLAN, RESOLVE_INTERRUPT, UPDATE_SESSION_SETTINGS
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
        self.flow = flow
        self.client = AgentSessionClient(engine, flow)

    async def plan(self, text: str) -> None:
        """Ask for a plan, in the session's first message or a later one."""
        await self.client.start_session(SESSION_ID, already_started="ignore")
        assert await self.client.send_user_message(SESSION_ID, text, plan_mode=True)

    async def execute_plan(self, revision: int) -> bool:
        """Approve a revision of the plan."""
        return await self.engine.invoke_rpc(self.flow, SESSION_ID, EXECUTE_PLAN, ExecutePlanInput(revision=revision))

    async def update_settings(self, **settings: Any) -> None:
        """Replace the session's settings."""
        await self.client.start_session(SESSION_ID, already_started="ignore")
        update = UpdateSessionSettingsInput(session_settings=settings)
        assert await self.engine.invoke_rpc(self.flow, SESSION_ID, UPDATE_SESSION_SETTINGS, update)

    async def approve_with(self, arguments: dict[str, Any]) -> bool:
        """Approve the one call that waits, or will, with other arguments."""
        (interrupt,) = await self.interrupts()
        decision = ResolveInterruptInput(interrupt_id=interrupt.interrupt_id, approved=True, arguments=arguments)
        return await self.engine.invoke_rpc(self.flow, SESSION_ID, RESOLVE_INTERRUPT, decision)

    async def snapshot(self) -> AgentSnapshot:
        return await self.client.get_agent_snapshot(SESSION_ID)

    async def ended_state(self) -> AgentState:
        """The session's state once no turn is active, whatever became of it."""
        return await self.client.wait_until_idle(SESSION_ID, timeout=WAIT_SECONDS)

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
        messages = (await self.snapshot()).messages
        assert [message.sequence for message in messages] == list(
            range(messages[0].sequence, state.last_message_sequence + 1)
        )
        # Retention may have deleted the call of a result that is still there.
        messages = messages[next(index for index, message in enumerate(messages) if message.role != "tool") :]
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
    directory: Path,
    script: Callable[[ModelRequest], ScriptedModelReply],
    *,
    flow_options: Mapping[str, Any] | None = None,
    **definition: Any,
) -> AsyncIterator[LiveSession]:
    """Run an agent's session.

    Args:
        directory: Holds the database.
        script: What the model says.
        flow_options: Options of the session Flow besides the definition's.
        definition: Further fields of the agent definition.
    """
    model = ScriptedModelClient(script)
    fields = {"name": "live", "instructions": "Help.", "model": StrictModelClient(model), **definition}
    agent = AgentDefinition(**fields)
    options = {"attempt_backoff": timedelta(0), **(flow_options or {})}
    flow = create_stepwise_agent_session_flow(agent, "LiveAgent", **options)
    async with EmbeddedEngine(directory / "agents.db", flows=[flow], durability="process") as engine:
        yield LiveSession(engine, flow, model)
