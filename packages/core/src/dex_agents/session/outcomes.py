"""What crosses between pure code and I/O: snapshots from `load` to `run`, and storable outcomes from `run` to `commit`.

An outcome is stored before it is committed, so that a failing commit is repeated without repeating the effect. All of
its texts are repaired and checked; `dex_agents.session.ingress` builds outcomes from what runners return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.plan_values import AgentPlan, ContextSummary
from dex_agents.session.tool_values import AgentToolCall, AgentToolCallRecord, ResolvedToolPolicy
from dex_agents.session.values import AgentMessage, AgentState, AgentUsage, FrameworkMessage

__all__ = [
    "CompactionSnapshot",
    "ContextSummarized",
    "ModelStepCompleted",
    "ModelStepContinued",
    "ModelStepNeedsCompaction",
    "ModelStepOutcome",
    "ModelStepRefused",
    "ModelStepSnapshot",
    "ModelStepToolCallsRequested",
    "RequestedToolCall",
    "ToolCallFailed",
    "ToolCallInputRequested",
    "ToolCallSnapshot",
    "ToolCallSucceeded",
    "ToolCallTaskStarted",
    "ToolOutcome",
    "ToolTaskCancelled",
    "ToolTaskOutcome",
    "ToolTaskStillPending",
    "UnfinishedTurnOutcome",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStepSnapshot:
    """Everything a model step needs.

    Attributes:
        state: The session's state.
        turn_id: The active turn.
        messages: Stored messages after `context_summary`, oldest first.
        tool_calls: The turn's calls as runners see them, in call order.
        framework_run_state: What the previous model step left.
        options: The session's options.
        session_settings: The turn's settings.
        context_summary: The summary that stands for earlier messages.
        plan: The session's plan.
        first_stored_sequence: The oldest message that retention has kept.
    """

    state: AgentState
    turn_id: str
    messages: tuple[AgentMessage, ...]
    tool_calls: tuple[AgentToolCall, ...]
    framework_run_state: str | None
    options: AgentSessionOptions
    session_settings: dict[str, Any]
    context_summary: ContextSummary | None = None
    plan: AgentPlan | None = None
    first_stored_sequence: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSnapshot:
    """Everything a summary needs.

    Attributes:
        turn_id: The active turn.
        messages: The messages to summarise, oldest first.
        previous_summary: The summary of what came before them.
        session_settings: The turn's settings.
        options: The session's options.
    """

    turn_id: str
    messages: tuple[AgentMessage, ...]
    previous_summary: ContextSummary | None
    session_settings: dict[str, Any]
    options: AgentSessionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallSnapshot:
    """Everything a tool call needs.

    Attributes:
        record: The call's record; `record.to_tool_call()` is what the runner sees.
        turn_id: The active turn.
        idempotency_key: The call's key, the same on every attempt.
        messages: The stored messages a model step would see, oldest first; empty unless the runner needs them.
        framework_run_state: The turn's run state.
        options: The session's options.
    """

    record: AgentToolCallRecord
    turn_id: str
    idempotency_key: str
    messages: tuple[AgentMessage, ...]
    framework_run_state: str | None
    options: AgentSessionOptions


class ModelStepCompleted(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="completed"):
    """The model gave its final answer."""

    new_messages: tuple[FrameworkMessage, ...]
    usage: AgentUsage


class RequestedToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call the model asked for, checked.

    Attributes:
        tool_call_id: The provider's ID, repaired; possibly blank or repeated.
        tool_name: Name of the tool.
        arguments: JSON object text.
        policy: Effect and approval rule.
        tool_source_reference: Opaque text that lets the tool's source find the tool again.
        arguments_schema: JSON Schema text of the arguments, for a person who changes them before approving.
        arguments_error: What the model is told when its arguments were invalid; the call is not run then.
    """

    tool_call_id: str
    tool_name: str
    arguments: str
    policy: ResolvedToolPolicy
    tool_source_reference: str | None = None
    arguments_schema: str | None = None
    arguments_error: str | None = None


class ModelStepToolCallsRequested(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_calls"):
    """The model asked for tools."""

    framework_run_state: str
    tool_calls: tuple[RequestedToolCall, ...]
    usage: AgentUsage
    new_messages: tuple[FrameworkMessage, ...] = ()


class ModelStepContinued(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="continues"):
    """The framework needs another model step."""

    framework_run_state: str
    usage: AgentUsage
    new_messages: tuple[FrameworkMessage, ...] = ()


class ModelStepRefused(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="refused"):
    """The turn cannot succeed and ends at once.

    Attributes:
        error_type: Name of the error's class.
        message: What the user should know.
        usage: What the call used, when it is known.
    """

    error_type: str
    message: str
    usage: AgentUsage = AgentUsage()


class ModelStepNeedsCompaction(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="needs_compaction"):
    """The input is too large: summarise through this message first. No model call was made."""

    through_sequence: int
    usage: AgentUsage = AgentUsage()


class ContextSummarized(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of older messages, checked."""

    text: str
    usage: AgentUsage


ModelStepOutcome: TypeAlias = (
    ModelStepCompleted | ModelStepToolCallsRequested | ModelStepContinued | ModelStepRefused | ModelStepNeedsCompaction
)


class ToolCallSucceeded(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="succeeded"):
    """The tool returned."""

    output: str
    framework_result: str | None = None


class ToolCallFailed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """The tool failed in a way the model sees; not retried."""

    message: str
    framework_result: str | None = None


class ToolCallInputRequested(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="input_requested"):
    """The tool asks the user before it takes any effect."""

    question: str
    choices: tuple[str, ...] = ()
    allows_free_text: bool = True
    continuation: str | None = None


class ToolCallTaskStarted(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="task_started"):
    """The tool started remote work."""

    task_id: str
    poll_interval_seconds: int


class ToolTaskStillPending(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="task_pending"):
    """The remote work goes on."""

    poll_interval_seconds: int
    continuation: str | None = None


class ToolTaskCancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The runner was asked to stop an abandoned task."""


ToolTaskOutcome: TypeAlias = ToolCallSucceeded | ToolCallFailed | ToolCallInputRequested | ToolTaskStillPending
ToolOutcome: TypeAlias = ToolCallSucceeded | ToolCallFailed | ToolCallInputRequested | ToolCallTaskStarted


class UnfinishedTurnOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's messages for a turn that ends without an answer.

    Attributes:
        messages: What completes the stored transcript; empty when the builder raised.
        error: Why the builder raised.
    """

    messages: tuple[FrameworkMessage, ...] = ()
    error: str | None = None
