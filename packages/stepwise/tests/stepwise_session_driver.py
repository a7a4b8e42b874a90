"""A session reduced to what a runner sees of it, and a provider that refuses every transcript a real one might."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dex_agents import (
    AgentMessage,
    AgentPlan,
    AgentSessionOptions,
    AgentToolCall,
    AgentToolCallStatus,
    AgentTurnContext,
    ContextSummary,
    ContextSummaryRequest,
    DeferredToolExecution,
    FrameworkMessage,
    InteractionMode,
    ToolCallsRequested,
    ToolEffect,
    ToolExecutionError,
    ToolExecutionResult,
    ToolPolicy,
    ToolTaskCancellation,
    ToolTaskPoll,
    TurnCompleted,
)
from dex_agents.session.identity import allocate_tool_call_id, idempotency_key
from dex_agents.session.ingress import model_step_outcome
from dex_agents.session.outcomes import ModelStepCompleted, ModelStepToolCallsRequested
from dex_agents_stepwise import (
    ModelClient,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelToolResult,
    ModelUserText,
    RequiredTool,
    StepwiseAgentRunner,
)

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Hypothesis without a clock: the outcome of a test must not depend on how busy the machine is."""

storable_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
"""Text that the session's repair leaves as it is."""

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SESSION_ID = "session"


@dataclass
class RecordedEvents:
    """Live events of one attempt."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def write_text_delta(self, text: str) -> None:
        self.text.append(text)

    def write_reasoning_delta(self, text: str) -> None:
        self.reasoning.append(text)

    def write_event(self, type: str, payload: Mapping[str, Any]) -> None:
        self.events.append((type, dict(payload)))


def no_heartbeat() -> None:
    """Nobody listens."""


async def drop_checkpoint(text: str) -> None:
    """Nobody reads it."""


def tool_call(tool_name: str, arguments: str = "{}", **fields: Any) -> AgentToolCall:
    """An approved call."""
    given: dict[str, Any] = {
        "tool_call_id": "c1",
        "tool_name": tool_name,
        "arguments": arguments,
        "effect": ToolEffect.READ,
        "requires_approval": False,
        "status": AgentToolCallStatus.APPROVED,
        "deferral_order": 0,
        "model_step_number": 1,
        **fields,
    }
    return AgentToolCall(**given)


def tool_execution(call: AgentToolCall, **fields: Any) -> DeferredToolExecution:
    """One attempt of a call."""
    given: dict[str, Any] = {
        "flow_id": SESSION_ID,
        "turn_id": "turn-1",
        "tool_call": call,
        "idempotency_key": idempotency_key(SESSION_ID, "turn-1", call.tool_call_id),
        "attempt": 1,
        "step_execution_id": 7,
        "events": RecordedEvents(),
        "heartbeat": no_heartbeat,
        "save_heartbeat_checkpoint": drop_checkpoint,
        **fields,
    }
    return DeferredToolExecution(**given)


def task_poll(call: AgentToolCall, **fields: Any) -> ToolTaskPoll:
    """One attempt of a poll."""
    given: dict[str, Any] = {
        "flow_id": SESSION_ID,
        "turn_id": "turn-1",
        "tool_call": call,
        "idempotency_key": idempotency_key(SESSION_ID, "turn-1", call.tool_call_id),
        "attempt": 1,
        "step_execution_id": 8,
        "events": RecordedEvents(),
        "heartbeat": no_heartbeat,
        **fields,
    }
    return ToolTaskPoll(**given)


def task_cancellation(call: AgentToolCall, **fields: Any) -> ToolTaskCancellation:
    """One attempt to stop a task."""
    given: dict[str, Any] = {
        "flow_id": SESSION_ID,
        "turn_id": "turn-1",
        "tool_call": call,
        "idempotency_key": idempotency_key(SESSION_ID, "turn-1", call.tool_call_id),
        "attempt": 1,
        **fields,
    }
    return ToolTaskCancellation(**given)


Decide = Callable[[AgentToolCall], AgentToolCall | None]
"""Makes a call final by itself, as a person or a crash would, or leaves it to the tool with None."""


def run_every_tool(call: AgentToolCall) -> AgentToolCall | None:
    """Nobody interferes."""
    return None


def final(call: AgentToolCall, status: AgentToolCallStatus, **fields: Any) -> AgentToolCall:
    """The call with a final status."""
    values = {name: getattr(call, name) for name in AgentToolCall.__struct_fields__}
    return AgentToolCall(**{**values, "status": status, **fields})


class SessionDriver:
    """Drives a runner through turns and keeps what the session would have stored."""

    def __init__(self, runner: StepwiseAgentRunner, tool_policies: Mapping[str, ToolPolicy] | None = None) -> None:
        self.runner = runner
        self.tool_policies = dict(tool_policies or {})
        self.messages: list[AgentMessage] = []
        self.turn_number = 0
        self.tool_calls: list[AgentToolCall] = []
        self.run_state: str | None = None
        self.model_steps = 0
        self.interaction_mode = InteractionMode.CHAT
        self.plan: AgentPlan | None = None
        self.context_summary: ContextSummary | None = None
        self.settings: dict[str, Any] = {}
        self.events: list[RecordedEvents] = []
        self.outcomes: list[ToolCallsRequested | TurnCompleted] = []

    @property
    def turn_id(self) -> str:
        return f"turn-{self.turn_number}"

    @property
    def summarized_count(self) -> int:
        """How many of the oldest messages the summary stands for."""
        return 0 if self.context_summary is None else self.context_summary.last_sequence

    def begin_turn(self, text: str) -> None:
        """Store the user message of a new turn."""
        self.turn_number += 1
        self.tool_calls, self.run_state, self.model_steps = [], None, 0
        self.store(self.runner.build_user_message(text))

    def store(self, *messages: FrameworkMessage) -> None:
        """Append messages."""
        for message in messages:
            fields = {name: getattr(message, name) for name in FrameworkMessage.__struct_fields__}
            self.messages.append(
                AgentMessage(sequence=len(self.messages) + 1, turn_id=self.turn_id, created_at=NOW, **fields)
            )

    def turn_context(self, **fields: Any) -> AgentTurnContext:
        """What the next model step sees."""
        self.events.append(RecordedEvents())
        given: dict[str, Any] = {
            "flow_id": SESSION_ID,
            "turn_id": self.turn_id,
            "attempt": 1,
            "step_execution_id": 3,
            "messages": tuple(self.messages[self.summarized_count :]),
            "interaction_mode": self.interaction_mode,
            "plan": self.plan,
            "context_summary": self.context_summary,
            "session_settings": self.settings,
            "events": self.events[-1],
            "heartbeat": no_heartbeat,
            "tool_calls": tuple(self.tool_calls),
            "framework_run_state": self.run_state,
            "model_step_count": self.model_steps,
            "tool_policies": self.tool_policies,
            "default_tool_effect": self.runner.definition.default_tool_effect,
            "enabled_built_in_tools": tuple(self.runner.definition.built_in_tools),
            **fields,
        }
        return AgentTurnContext(**given)

    def summary_request(self, through_sequence: int, **fields: Any) -> ContextSummaryRequest:
        """What the session asks to be summarised when it is cut there."""
        given: dict[str, Any] = {
            "flow_id": SESSION_ID,
            "turn_id": self.turn_id,
            "attempt": 1,
            "messages": tuple(self.messages[self.summarized_count : through_sequence]),
            "previous_summary": self.context_summary,
            "input_token_budget": 1_000_000,
            "session_settings": self.settings,
            "events": RecordedEvents(),
            "heartbeat": no_heartbeat,
            **fields,
        }
        return ContextSummaryRequest(**given)

    def store_summary(self, text: str, through_sequence: int) -> None:
        """Let a summary stand for the messages up to there."""
        generation = 1 if self.context_summary is None else self.context_summary.generation + 1
        self.context_summary = ContextSummary(
            generation=generation, text=text, last_sequence=through_sequence, created_at=NOW
        )

    async def model_step(self) -> ToolCallsRequested | TurnCompleted:
        """Run one model step and store what came of it."""
        outcome = await self.runner.run_model_step(self.turn_context())
        assert isinstance(outcome, (ToolCallsRequested, TurnCompleted))
        self.outcomes.append(outcome)
        storable = model_step_outcome(outcome, AgentSessionOptions())
        assert isinstance(storable, (ModelStepToolCallsRequested, ModelStepCompleted))
        self.store(*storable.new_messages)
        self.model_steps += 1
        if isinstance(storable, ModelStepCompleted):
            return outcome
        self.run_state = storable.framework_run_state
        for call in storable.tool_calls:
            order = len(self.tool_calls)
            taken = {known.tool_call_id for known in self.tool_calls}
            record = AgentToolCall(
                tool_call_id=allocate_tool_call_id(call.tool_call_id, order, taken.__contains__),
                provider_tool_call_id=call.tool_call_id,
                tool_name=call.tool_name,
                arguments=call.arguments,
                effect=call.policy.effect,
                requires_approval=call.policy.requires_approval and call.arguments_error is None,
                status=AgentToolCallStatus.APPROVED,
                deferral_order=order,
                model_step_number=self.model_steps,
            )
            if call.arguments_error is not None:
                record = final(record, AgentToolCallStatus.FAILED, error=call.arguments_error)
            self.tool_calls.append(record)
        return outcome

    async def run_tools(self, decide: Decide = run_every_tool, *, last_first: bool = False) -> None:
        """Make every open call final, in call order or the other way round."""
        positions = range(len(self.tool_calls))
        for position in reversed(positions) if last_first else positions:
            call = self.tool_calls[position]
            if call.status is AgentToolCallStatus.APPROVED:
                self.tool_calls[position] = decide(call) or await self._run_tool(call)

    async def run_turn(self, text: str, decide: Decide = run_every_tool) -> str:
        """Run a whole turn and return its answer."""
        self.begin_turn(text)
        while True:
            outcome = await self.model_step()
            if isinstance(outcome, TurnCompleted):
                return outcome.new_messages[-1].text
            await self.run_tools(decide)

    async def _run_tool(self, call: AgentToolCall) -> AgentToolCall:
        try:
            result = await self.runner.execute_deferred_tool_call(tool_execution(call, turn_id=self.turn_id))
        except ToolExecutionError as error:
            return final(call, AgentToolCallStatus.FAILED, error=str(error))
        assert isinstance(result, ToolExecutionResult)
        return final(call, AgentToolCallStatus.SUCCEEDED, output=result.output)


class StrictModelClient:
    """Refuses what a strict provider refuses, then asks the client behind it.

    Every call has exactly one result right behind its output in call order, under its ID; arguments are JSON objects;
    IDs are new and not blank (unless the script repeats them); no text is empty or impossible to encode.
    """

    def __init__(self, client: ModelClient, *, has_odd_ids: bool = False) -> None:
        self.client = client
        self.has_odd_ids = has_odd_ids

    @property
    def provider(self) -> str:
        return self.client.provider

    @property
    def api(self) -> str:
        return self.client.api

    async def generate(self, request: ModelRequest) -> ModelResponse:
        check_transcript(request, has_odd_ids=self.has_odd_ids)
        choice = request.tool_choice
        if isinstance(choice, RequiredTool):
            assert choice.tool_name in {tool.name for tool in request.tools}, "a tool that is not offered is required"
        else:
            assert choice == ("auto" if request.tools else "none")
        first, last = request.input_items[0], request.input_items[-1]
        assert isinstance(first, ModelUserText), "the input does not begin with a user"
        assert isinstance(last, (ModelUserText, ModelToolResult)), "there is nothing to answer"
        return await self.client.generate(request)


def check_transcript(request: ModelRequest, *, has_odd_ids: bool = False) -> None:
    """Raise AssertionError for a request that a strict provider refuses."""
    repr(request).encode()  # lone surrogates cannot be encoded
    items = list(request.input_items)
    assert items, "the input is empty"
    seen: set[str] = set()
    while items:
        item = items.pop(0)
        assert not isinstance(item, ModelToolResult), f"a result without a call: {item}"
        if isinstance(item, ModelUserText):
            assert item.text.strip()
            continue
        assert isinstance(item, ModelOutput)
        assert item.item is not None or item.text or item.tool_calls, "an empty output"
        for call in item.tool_calls:
            assert isinstance(json.loads(call.arguments), dict)
            if not has_odd_ids:
                assert call.tool_call_id.strip(), "a blank ID"
                assert call.tool_call_id not in seen, f"the ID {call.tool_call_id} repeats"
                seen.add(call.tool_call_id)
        for call in item.tool_calls:
            result = items.pop(0) if items else None
            assert isinstance(result, ModelToolResult), f"no result behind the call {call}"
            assert (result.tool_call_id, result.tool_name) == (call.tool_call_id, call.tool_name)
