"""A driven session with shorthands for what the model, the tools and the user do in it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    ToolCallInputRequested,
    ToolCallSucceeded,
    ToolCallTaskStarted,
)
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.tool_values import AgentToolCallRecord, ResolvedToolPolicy, ToolEffect
from dex_agents.session.values import AgentState, AgentStatus, AgentUsage, FrameworkMessage
from dex_agents.testing import SessionDriver
from dex_flow.kernel import ClaimedAttempt

READ = ToolEffect.READ
IDEMPOTENT_WRITE = ToolEffect.IDEMPOTENT_WRITE
NON_IDEMPOTENT_WRITE = ToolEffect.NON_IDEMPOTENT_WRITE
UNCLASSIFIED = ToolEffect.UNCLASSIFIED

BUILT_INS = ("ask_user", "durable_wait")


def wanted(
    tool_call_id: str,
    effect: ToolEffect = READ,
    *,
    gated: bool = False,
    tool_name: str = "tool",
    arguments: str = '{"n":1}',
    **fields: Any,
) -> RequestedToolCall:
    """A call the model asks for."""
    policy = ResolvedToolPolicy(effect=effect, requires_approval=gated)
    return RequestedToolCall(
        tool_call_id=tool_call_id, tool_name=tool_name, arguments=arguments, policy=policy, **fields
    )


def asking(tool_call_id: str, **arguments: Any) -> RequestedToolCall:
    """An `ask_user` call; the question is there unless given."""
    given = {"question": "Which city?", **arguments}
    return wanted(tool_call_id, UNCLASSIFIED, gated=True, tool_name="ask_user", arguments=json.dumps(given))


def waiting(tool_call_id: str, seconds: Any = 60, **arguments: Any) -> RequestedToolCall:
    """A `durable_wait` call."""
    given = {"duration_seconds": seconds, "reason": "the build", **arguments}
    return wanted(tool_call_id, UNCLASSIFIED, gated=True, tool_name="durable_wait", arguments=json.dumps(given))


def question(text: str = "Which account?", **fields: Any) -> ToolCallInputRequested:
    """What a tool or a task returns to ask the user."""
    return ToolCallInputRequested(question=text, **fields)


class PlayedSession(SessionDriver):
    """A session with both built-in tools whose model just asked for some calls.

    Args:
        calls: The calls of the first response; without any, the first model call is still running.
        driver: Arguments of `SessionDriver`.
        options: Options of the session.
    """

    def __init__(self, *calls: RequestedToolCall, driver: dict[str, Any] | None = None, **options: Any) -> None:
        options = {"built_in_tools": BUILT_INS, "attempt_backoff": timedelta(seconds=1), **options}
        super().__init__(AgentSessionOptions(**options), **(driver or {}))
        self.start("Hello")
        if calls:
            self.ask_for(*calls)

    # The model

    def ask_for(self, *calls: RequestedToolCall, messages: tuple[FrameworkMessage, ...] = ()) -> None:
        """The model asks for tools."""
        outcome = ModelStepToolCallsRequested(
            framework_run_state="run state", tool_calls=calls, usage=AgentUsage(model_calls=1), new_messages=messages
        )
        self.succeed(self.attempt_of("RunModel"), outcome)

    def answer_turn(self, text: str = "done") -> None:
        """The model gives its final answer."""
        item = json.dumps({"role": "assistant", "text": text, "calls": []})
        message = FrameworkMessage(role="assistant", framework_item=item, text=text)
        outcome = ModelStepCompleted(new_messages=(message,), usage=AgentUsage(model_calls=1))
        self.succeed(self.attempt_of("RunModel"), outcome)

    def model_results(self) -> list[str]:
        """What the model call that runs sees as results, in call order."""
        return [tool_result_text(call) for call in self.snapshot_of(self.attempt_of("RunModel")).tool_calls]

    # Tools

    def tool_attempt(self, tool_call_id: str | None = None) -> ClaimedAttempt:
        """The running attempt of a tool call, of either Step type."""
        found = [
            claim
            for claim in self.running.values()
            if claim.step_type in ("CallTool", "CallSingleAttemptTool")
            and (tool_call_id is None or json.loads(claim.input) == tool_call_id)
        ]
        assert len(found) == 1, f"{len(found)} attempts of {tool_call_id} run"
        return found[0]

    def return_from_tool(self, tool_call_id: str | None = None, output: str = "ok") -> None:
        """The tool returns."""
        self.succeed(self.tool_attempt(tool_call_id), ToolCallSucceeded(output=output))

    def start_task(self, tool_call_id: str | None = None, interval: int = 5, task_id: str = "task-7") -> None:
        """The tool starts remote work."""
        outcome = ToolCallTaskStarted(task_id=task_id, poll_interval_seconds=interval)
        self.succeed(self.tool_attempt(tool_call_id), outcome)

    def poll(self, tool_call_id: str | None = None) -> ClaimedAttempt:
        """The running poll."""
        return self.attempt_of("PollToolTask", tool_call_id)

    # What is stored

    @property
    def state(self) -> AgentState:
        """The session's state."""
        state = self.snapshot().state
        assert state is not None
        return state

    def record(self, tool_call_id: str = "c1") -> AgentToolCallRecord:
        """The record of a call of the active turn."""
        (record,) = (call for call in self.snapshot().tool_calls if call.tool_call_id == tool_call_id)
        return record

    def interrupt_ids(self) -> list[str]:
        """What waits for a person."""
        return [interrupt.interrupt_id for interrupt in self.snapshot().pending_interrupts]

    def payloads(self, event_type: str) -> list[dict[str, Any]]:
        """Payloads of every event of a type."""
        return [decode_event_payload(event) for event in self.events() if event.type == event_type]

    def texts(self) -> list[tuple[str, str, str]]:
        """Turn, role and text of every stored message."""
        return [(message.turn_id, message.role, message.text) for message in self.snapshot().messages]

    def finished(self) -> dict[str, str]:
        """Status of every call that became final, in the order of their ends; fails when one ended twice."""
        finished = [(call["tool_call_id"], call["status"]) for call in self.payloads("tool_call_finished")]
        assert len(dict(finished)) == len(finished), finished
        return dict(finished)

    def finished_record(self, tool_call_id: str = "c1") -> AgentToolCallRecord:
        """A record that became final in the turn that still runs."""
        record = self.record(tool_call_id)
        assert record.finished_at is not None, record
        return record

    def assert_idle(self) -> None:
        """No turn is active, and nothing of any turn is left but its messages."""
        snapshot = self.snapshot()
        assert self.state.status is AgentStatus.WAITING_FOR_USER_MESSAGE
        assert self.state.active_turn_id is None
        assert (snapshot.tool_calls, snapshot.pending_interrupts) == ((), ())
        assert (snapshot.queued_messages, snapshot.steered_messages) == ((), ())
        assert self.open_step_types == ["AwaitUserMessage"]
        assert not self.running
        assert self.store.channels == {}
        assert {name for name, _ in self.store.attributes}.isdisjoint(
            {"FrameworkRunState", "AgentToolCalls", "TurnCancellationRequest"}
        )


def stored_state(session: SessionDriver) -> tuple[Any, ...]:
    """A copy of everything a command could have changed."""
    store = session.store
    channels = {slot: dict(messages) for slot, messages in store.channels.items()}
    return dict(store.attributes), channels, session.event_types(), session.open_step_types, dict(session.running)
