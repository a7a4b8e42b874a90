"""What the session gives a runner: contexts of a model step, a tool call, a task poll and a summary."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from dex_agents.session.plan_values import AgentPlan, ContextSummary
from dex_agents.session.policies import resolve_tool_policy
from dex_agents.session.tool_values import AgentToolCall, QuestionAnswer, ResolvedToolPolicy, ToolEffect, ToolPolicy
from dex_agents.session.values import AgentMessage, InteractionMode

__all__ = [
    "AgentEventWriter",
    "AgentTurnContext",
    "ContextSummaryRequest",
    "DeferredToolExecution",
    "ToolTaskCancellation",
    "ToolTaskPoll",
]


class AgentEventWriter(Protocol):
    """Writes live events of one attempt; best effort, never waits, ignored once the attempt is over."""

    def write_text_delta(self, text: str) -> None:
        """Append to the visible text. Pieces are joined before they are written."""
        ...

    def write_reasoning_delta(self, text: str) -> None:
        """Append to the visible reasoning."""
        ...

    def write_event(self, type: str, payload: Mapping[str, Any]) -> None:
        """Write an event of the adapter's own; `payload` must be encodable as a JSON object."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurnContext:
    """One model step: everything to build the framework's input from, and what the attempt may do.

    Attributes:
        flow_id: The session's ID.
        turn_id: The active turn.
        attempt: This Step's attempt, from 1.
        step_execution_id: This Step execution, the same for every attempt.
        messages: Stored messages after `context_summary`, oldest first.
        tool_calls: All of the turn's calls, in call order.
        framework_run_state: What the turn's previous model step left; None at its first.
        model_step_count: Finished model steps of this turn.
        events: Live events of this attempt.
        deadline: When the attempt times out, aware UTC; None without a limit.
        heartbeat: Says that the attempt lives; the session does so every 20 seconds by itself.
        enabled_built_in_tools: Built-in tools to offer to the model.
        tool_policies: The session's explicit policies by tool name.
        default_tool_effect: The effect of a tool that nothing else classifies.
        interaction_mode: Kind of turn; a `planning` one offers `write_todos` alone.
        session_settings: The turn's settings; read-only.
        context_summary: The summary that stands for earlier messages.
        plan: The session's plan.
        turn_limit_reached: What a call asked for now would be told, once the turn has reached a limit: this is its last
            model call, so offer no tools. None before.
    """

    flow_id: str
    turn_id: str
    attempt: int
    step_execution_id: int
    messages: tuple[AgentMessage, ...]
    events: AgentEventWriter
    heartbeat: Callable[[], None]
    tool_calls: tuple[AgentToolCall, ...] = ()
    framework_run_state: str | None = None
    model_step_count: int = 0
    deadline: datetime | None = None
    enabled_built_in_tools: tuple[str, ...] = ()
    tool_policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    default_tool_effect: ToolEffect = ToolEffect.UNCLASSIFIED
    interaction_mode: InteractionMode = InteractionMode.CHAT
    session_settings: Mapping[str, Any] = field(default_factory=dict)
    context_summary: ContextSummary | None = None
    plan: AgentPlan | None = None
    turn_limit_reached: str | None = None

    @property
    def previous_step_tool_calls(self) -> tuple[AgentToolCall, ...]:
        """The calls the turn's previous model step asked for, in call order; all of them are final."""
        return tuple(call for call in self.tool_calls if call.model_step_number == self.model_step_count)

    def resolve_tool_policy(
        self,
        tool_name: str,
        framework_effect: ToolEffect | None = None,
        *,
        framework_requires_approval: bool | None = None,
    ) -> ResolvedToolPolicy:
        """The policy in force for a tool.

        Args:
            tool_name: Name of the tool.
            framework_effect: The effect the framework or the tool declares.
            framework_requires_approval: Whether the framework or the tool asks for approval; ignored for a tool
                with a policy of the session.
        """
        return resolve_tool_policy(
            tool_name,
            framework_effect,
            tool_policies=self.tool_policies,
            default_tool_effect=self.default_tool_effect,
            framework_requires_approval=framework_requires_approval,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredToolExecution:
    """One tool call to run.

    Attributes:
        flow_id: The session's ID.
        turn_id: The active turn.
        tool_call: The call; run it with `tool_call.arguments_to_run`.
        idempotency_key: The same on every attempt, different for every call.
        attempt: This Step's attempt, from 1.
        step_execution_id: This Step execution.
        events: Live events of this attempt.
        heartbeat: Says that the attempt lives.
        save_heartbeat_checkpoint: Stores a text durably for the next attempt.
        heartbeat_checkpoint: The text an earlier attempt saved last.
        deadline: When the attempt times out, aware UTC; None without a limit.
        input_answers: How the tool's own questions ended, oldest first.
        supports_tool_tasks: Whether `ToolTaskStarted` may be returned.
        framework_run_state: The turn's run state, read-only.
        messages: The stored messages a model step would see, read-only.
    """

    flow_id: str
    turn_id: str
    tool_call: AgentToolCall
    idempotency_key: str
    attempt: int
    step_execution_id: int
    events: AgentEventWriter
    heartbeat: Callable[[], None]
    save_heartbeat_checkpoint: Callable[[str], Coroutine[Any, Any, None]]
    heartbeat_checkpoint: str | None = None
    deadline: datetime | None = None
    input_answers: tuple[QuestionAnswer, ...] = ()
    supports_tool_tasks: bool = False
    framework_run_state: str | None = None
    messages: tuple[AgentMessage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTaskPoll:
    """One poll of a remote task.

    Attributes:
        flow_id: The session's ID.
        turn_id: The active turn.
        tool_call: The call; `task_id` and `input_continuation` are on it.
        idempotency_key: The call's key.
        attempt: This Step's attempt, from 1.
        step_execution_id: This Step execution.
        events: Live events of this attempt.
        heartbeat: Says that the attempt lives.
        deadline: When the attempt times out.
        input_answers: How the task's questions ended, oldest first.
        pending_answer: The latest of them, on the poll right after it.
    """

    flow_id: str
    turn_id: str
    tool_call: AgentToolCall
    idempotency_key: str
    attempt: int
    step_execution_id: int
    events: AgentEventWriter
    heartbeat: Callable[[], None]
    deadline: datetime | None = None
    input_answers: tuple[QuestionAnswer, ...] = ()
    pending_answer: QuestionAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTaskCancellation:
    """A remote task nobody waits for any more."""

    flow_id: str
    turn_id: str
    tool_call: AgentToolCall
    idempotency_key: str
    attempt: int
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSummaryRequest:
    """What to summarise.

    Attributes:
        flow_id: The session's ID.
        turn_id: The active turn.
        attempt: This Step's attempt, from 1.
        messages: The messages to summarise, oldest first.
        previous_summary: The summary of what came before them.
        input_token_budget: Most tokens the request may have.
        session_settings: The turn's settings.
        events: Live events of this attempt.
        heartbeat: Says that the attempt lives.
        deadline: When the attempt times out.
    """

    flow_id: str
    turn_id: str
    attempt: int
    messages: tuple[AgentMessage, ...]
    input_token_budget: int
    events: AgentEventWriter
    heartbeat: Callable[[], None]
    previous_summary: ContextSummary | None = None
    session_settings: Mapping[str, Any] = field(default_factory=dict)
    deadline: datetime | None = None
