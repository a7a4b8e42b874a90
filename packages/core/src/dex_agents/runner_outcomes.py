"""What a runner hands back to the session: outcomes of model steps and tool calls, and its errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dex_agents.session.tool_values import DeferredToolCall
from dex_agents.session.values import AgentUsage, FrameworkMessage

__all__ = [
    "AgentTurnOutcome",
    "ContextSummaryResult",
    "DeferredToolOutcome",
    "ModelCallMetadata",
    "ModelStepContinues",
    "ToolCallsRequested",
    "ToolExecutionError",
    "ToolExecutionResult",
    "ToolInputRequested",
    "ToolTaskPending",
    "ToolTaskPollOutcome",
    "ToolTaskStarted",
    "TurnCompleted",
    "TurnRefusedError",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallMetadata:
    """What the framework says about one model call; names spans, is never stored. Leave out what is unknown."""

    request_model: str | None = None
    response_model: str | None = None
    provider_name: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted:
    """The model gave its final answer.

    Attributes:
        new_messages: Every message of the turn that is not stored yet, in order, after its user message.
        usage: This model call's usage. None counts one model call with unknown tokens; `AgentUsage()` counts none.
        model_call_metadata: What the framework says about the call.
    """

    new_messages: tuple[FrameworkMessage, ...]
    usage: AgentUsage | None = None
    model_call_metadata: ModelCallMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallsRequested:
    """The model asked for tools.

    Attributes:
        framework_run_state: Non-empty opaque text; the next model step of the turn receives it.
        tool_calls: At least one, in the order the model made them.
        usage: As in `TurnCompleted`.
        new_messages: Messages to store now. A runner that uses this implements `UnfinishedTurnMessageBuilder`.
        model_call_metadata: What the framework says about the call.
    """

    framework_run_state: str
    tool_calls: tuple[DeferredToolCall, ...]
    usage: AgentUsage | None = None
    new_messages: tuple[FrameworkMessage, ...] = ()
    model_call_metadata: ModelCallMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStepContinues:
    """The framework needs another model call before it can answer or ask for tools, with the same tools offered.

    For example the answer did not fit the output type, or the reply was empty. It counts against the session's
    `max_model_step_continuations`.

    Attributes:
        framework_run_state: Non-empty opaque text; the next model step receives it.
        new_messages: Messages to store now.
        usage: As in `TurnCompleted`.
        model_call_metadata: What the framework says about the call.
    """

    framework_run_state: str
    new_messages: tuple[FrameworkMessage, ...] = ()
    usage: AgentUsage | None = None
    model_call_metadata: ModelCallMetadata | None = None


AgentTurnOutcome: TypeAlias = TurnCompleted | ToolCallsRequested | ModelStepContinues


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionResult:
    """The tool returned.

    Attributes:
        output: The text the model sees.
        framework_result: Opaque text stored beside it and handed back to the runner, never shown to clients.
    """

    output: str
    framework_result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputRequested:
    """The tool asks the user before it takes any effect; the same Step type runs the call again after the answer.

    Attributes:
        question: What the user reads.
        choices: Answers to choose from.
        allows_free_text: Whether the answer may be none of the choices.
        continuation: Opaque text the next run reads as `input_continuation`.
    """

    question: str
    choices: tuple[str, ...] = ()
    allows_free_text: bool = True
    continuation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTaskStarted:
    """The tool started remote work that the session polls.

    Attributes:
        task_id: The remote system's handle.
        poll_interval_seconds: Wanted time between polls, rounded up to whole seconds from 1 to a day.
    """

    task_id: str
    poll_interval_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTaskPending:
    """The remote work goes on.

    Attributes:
        poll_interval_seconds: Time until the next poll.
        continuation: Opaque text the next poll reads; None clears it.
    """

    poll_interval_seconds: float
    continuation: str | None = None


DeferredToolOutcome: TypeAlias = ToolExecutionResult | ToolInputRequested | ToolTaskStarted
ToolTaskPollOutcome: TypeAlias = ToolExecutionResult | ToolInputRequested | ToolTaskPending


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSummaryResult:
    """A summary of earlier messages.

    Attributes:
        text: The summary, not blank.
        usage: The summary call's usage.
        model_call_metadata: What the framework says about the call.
    """

    text: str
    usage: AgentUsage | None = None
    model_call_metadata: ModelCallMetadata | None = None


class ToolExecutionError(Exception):
    """A tool failed in a way the model should see; the call is recorded `failed` and never retried.

    Args:
        args: The text the model sees.
        framework_result: Opaque text stored beside it and handed back to the runner, never shown to clients.
    """

    def __init__(self, *args: object, framework_result: str | None = None) -> None:
        super().__init__(*args)
        self.framework_result = framework_result


class TurnRefusedError(Exception):
    """The turn cannot succeed (content refused, context too long, bad credentials): it ends at once, without retries.

    Args:
        message: What the user should know; becomes the turn's error.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
