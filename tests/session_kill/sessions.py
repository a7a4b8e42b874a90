"""What tests read of sessions, with the rules that hold for every session."""

from __future__ import annotations

from dex_agents import (
    AgentInterrupt,
    AgentSessionClient,
    AgentState,
    AgentToolCallRecord,
    StreamedAgentEvent,
)
from dex_agents.session.persistence import AGENT_EVENTS, AGENT_TOOL_CALLS
from dex_agents.session.transition_rules import TURN_ENDINGS
from dex_flow import Flow, StateView
from dex_flow.embedded import EmbeddedEngine
from tests.session_kill.strict_transcript import check_stored_messages

__all__ = ["WAIT_SECONDS", "Sessions"]

WAIT_SECONDS = 60.0


class Sessions:
    """A client with what the tests read of sessions.

    Args:
        engine: Runs the sessions, or reaches the file they are in.
        flow: Their Flow.
    """

    def __init__(self, engine: EmbeddedEngine, flow: Flow) -> None:
        self.engine = engine
        self.flow = flow
        self.client = AgentSessionClient(engine, flow)

    async def idle(self, session_id: str) -> AgentState:
        """The state once no turn is active and no message waits."""
        return await self.client.wait_until_idle(session_id, timeout=WAIT_SECONDS)

    async def succeeded(self, session_id: str, tool: str) -> None:
        """Wait until a call of the tool in the active turn has succeeded."""

        def has_succeeded(view: StateView) -> bool:
            records = [record for _, record in view.read_range(AGENT_TOOL_CALLS)]
            return any((record.tool_name, record.status) == (tool, "succeeded") for record in records)

        await self.engine.wait_until(session_id, has_succeeded, timeout=WAIT_SECONDS)

    async def answers(self, session_id: str) -> list[str]:
        """The last text of every turn; sequences and tool results must be complete."""
        snapshot = await self.client.get_agent_snapshot(session_id)
        check_stored_messages(snapshot.messages)
        return list({message.turn_id: message.text for message in snapshot.messages}.values())

    async def completed(self, session_id: str) -> str:
        """The answer of the latest turn, which must have succeeded, with every call final exactly once."""
        state = await self.idle(session_id)
        assert state.last_turn_error is None
        answers = await self.answers(session_id)
        assert len(answers) == state.turn_count
        await self.statuses(session_id)
        return answers[-1]

    async def events(self, session_id: str) -> list[StreamedAgentEvent]:
        """Every event so far."""
        stream = self.flow.streams[AGENT_EVENTS.name]
        events = await self.engine.read_stream(session_id, stream, limit=100_000)
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        return [StreamedAgentEvent(event.position, event.value) for event in events]

    async def statuses(self, session_id: str) -> list[tuple[str, str]]:
        """Tool names and final statuses in the order of the calls; each call that was made is final exactly once."""
        events = await self.events(session_id)
        deferred = [
            (event.turn_id, event.payload["tool_call_id"]) for event in events if event.type == "tool_call_deferred"
        ]
        finished = {
            (event.turn_id, event.payload["tool_call_id"]): (event.payload["tool_name"], event.payload["status"])
            for event in events
            if event.type == "tool_call_finished"
        }
        count = sum(event.type == "tool_call_finished" for event in events)
        assert (len(finished), count) == (len(deferred), len(deferred))
        return [finished[key] for key in deferred]

    async def endings(self, session_id: str) -> list[str]:
        """How the turns ended, in order; every turn that began has ended exactly once."""
        events = await self.events(session_id)
        started = [event.turn_id for event in events if event.type == "turn_started"]
        ended = [(event.turn_id, event.type) for event in events if event.type in TURN_ENDINGS]
        assert [turn_id for turn_id, _ in ended] == started
        return [ending for _, ending in ended]

    async def greet(self, session_id: str) -> None:
        """The session takes a message and answers it, whatever happened before; nothing waits any more."""
        assert await self.client.send_user_message(session_id, "hi")
        assert await self.completed(session_id) == "answer: "
        assert (await self.endings(session_id))[-1] == "turn_completed"
        snapshot = await self.client.get_agent_snapshot(session_id)
        left = [*snapshot.pending_interrupts, *snapshot.tool_calls, *snapshot.steered_messages]
        assert left == []
        (step,) = (await self.engine.describe_flow(session_id)).open_steps
        assert step.step_type == "AwaitUserMessage"

    async def record(self, session_id: str, tool: str, status: str) -> AgentToolCallRecord:
        """The record of the active turn's only call of the tool, once it has this status."""

        def reached(view: StateView) -> AgentToolCallRecord | None:
            records = [record for _, record in view.read_range(AGENT_TOOL_CALLS) if record.tool_name == tool]
            return next((record for record in records if record.status == status), None)

        return await self.engine.wait_until(session_id, reached, timeout=WAIT_SECONDS)

    async def continued(self, session_id: str, tool: str, continuation: str) -> None:
        """Wait until the latest poll of the tool's task has stored this continuation."""

        def has_continued(view: StateView) -> bool:
            records = [record for _, record in view.read_range(AGENT_TOOL_CALLS)]
            return any((record.tool_name, record.input_continuation) == (tool, continuation) for record in records)

        await self.engine.wait_until(session_id, has_continued, timeout=WAIT_SECONDS)

    async def question(self, session_id: str) -> AgentInterrupt:
        """The only interrupt, a question, once it is pending."""
        (interrupt,) = await self.client.wait_for_interrupts(session_id, timeout=WAIT_SECONDS)
        assert interrupt.kind == "question"
        return interrupt

    async def attempts(self, session_id: str, step_type: str) -> list[tuple[int, str]]:
        """Attempts and outcomes of `run` in the history, oldest first."""
        history = await self.engine.read_step_history(session_id)
        return [
            (entry.attempt, entry.outcome)
            for entry in history
            if entry.step_type == step_type and entry.method == "run"
        ]
