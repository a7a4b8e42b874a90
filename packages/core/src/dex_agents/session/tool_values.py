"""Values of tool calls: effects and policies, the stored record, what runners see of it, and interrupts."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

__all__ = [
    "AgentInterrupt",
    "AgentInterruptResolution",
    "AgentToolCall",
    "AgentToolCallRecord",
    "AgentToolCallRecordStatus",
    "AgentToolCallStatus",
    "CancellationReason",
    "DeferredToolCall",
    "InterruptKind",
    "QuestionAnswer",
    "QuestionResolution",
    "ResolvedToolPolicy",
    "ToolCallCancellation",
    "ToolCallCompleted",
    "ToolEffect",
    "ToolPolicy",
    "TurnCancellationRequest",
    "TurnControlKind",
    "TurnControlRequest",
]

CancellationReason = Literal["steered", "turn_cancelled"]
TurnControlKind = Literal["steer", "cancel"]
InterruptKind = Literal["approval", "question"]
QuestionResolution = Literal["answered", "declined", "deadline_passed"]


class ToolEffect(StrEnum):
    """What a tool does to the world; decides attempts, approval and how a lost call is recorded."""

    READ = "read"  #: changes nothing
    IDEMPOTENT_WRITE = "idempotent_write"  #: the same idempotency key takes effect once
    NON_IDEMPOTENT_WRITE = "non_idempotent_write"  #: every run takes effect again
    UNCLASSIFIED = "unclassified"  #: unknown, treated like `non_idempotent_write`


class AgentToolCallRecordStatus(StrEnum):
    """Where a stored call is. A final status never changes."""

    AWAITING_APPROVAL = "awaiting_approval"  #: a person decides
    APPROVED = "approved"  #: free to run, running, or between two attempts
    AWAITING_ANSWER = "awaiting_answer"  #: a question waits for the user
    WAITING_FOR_TIMER = "waiting_for_timer"  #: a durable wait
    WAITING_FOR_TASK = "waiting_for_task"  #: remote work is polled
    SUCCEEDED = "succeeded"  #: final: the tool returned
    FAILED = "failed"  #: final: the tool failed or was not run, and nothing took effect that the model must fear
    REJECTED = "rejected"  #: final: not run, by decision of a person, a deadline or a cancellation
    OUTCOME_UNKNOWN = "outcome_unknown"  #: final: it may have taken effect


class AgentToolCallStatus(StrEnum):
    """The six statuses a runner can meet."""

    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    OUTCOME_UNKNOWN = "outcome_unknown"


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the application says about one tool; beats what the framework or the tool says.

    Attributes:
        effect: The tool's effect; None leaves it to the framework, the tool or the default.
        requires_approval: Whether a person must approve each call; None leaves it to the effect.
    """

    effect: ToolEffect | None = None
    requires_approval: bool | None = None


class ResolvedToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy in force for one call, stored with it."""

    effect: ToolEffect
    requires_approval: bool


class DeferredToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call the model asked for, which runs in a Step of its own.

    Attributes:
        tool_call_id: The provider's ID; data, not identity: it may repeat or be blank.
        tool_name: Name of the tool.
        arguments: The arguments as the model sent them; text that should be a JSON object.
        policy: Effect and approval rule, from `resolve_tool_policy` or the runner's own.
        tool_source_reference: Opaque text that lets the tool's source find the tool again.
        arguments_schema: JSON Schema of the arguments as JSON text, for a person who changes them before approving.
    """

    tool_call_id: str
    tool_name: str
    arguments: str
    policy: ResolvedToolPolicy
    tool_source_reference: str | None = None
    arguments_schema: str | None = None


class QuestionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a question of a tool ended.

    Attributes:
        question: The question as it was asked.
        resolution: `answered`, `declined` or `deadline_passed`.
        answer: The answer's text, None unless answered.
        rejection_message: The words of a person who declined, if they said any.
    """

    question: str
    resolution: QuestionResolution = "answered"
    answer: str | None = None
    rejection_message: str | None = None


class AgentToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call as runners see it.

    Attributes:
        tool_call_id: The session's own ID, unique in the turn.
        provider_tool_call_id: The ID the model's provider gave, possibly blank or repeated.
        tool_name: Name of the tool.
        arguments: JSON object text: what the model asked for.
        executed_arguments: JSON object text that a person put in its place; None when unchanged.
        effect: The tool's effect when the model asked.
        requires_approval: Whether a person had to approve.
        status: Where the call is.
        output: The result of a `succeeded` call.
        error: Why a `failed` or `outcome_unknown` call ended so.
        rejection_message: The person's words, or the session's reason, of a `rejected` call.
        cancellation_reason: What cancelled the call before it ran.
        deferral_order: Position among the turn's calls, from 0, in the order the model made them.
        model_step_number: Which model step of the turn asked for it, from 1.
        tool_source_reference: The opaque text of `DeferredToolCall`.
        framework_result: The opaque text of `ToolExecutionResult` or `ToolExecutionError`.
        input_continuation: What the tool stored when it asked its latest question.
        task_id: The remote task the call started.
        trace_context: The W3C `traceparent` its span belongs to.
    """

    tool_call_id: str
    tool_name: str
    arguments: str
    effect: ToolEffect
    requires_approval: bool
    status: AgentToolCallStatus
    deferral_order: int
    model_step_number: int
    provider_tool_call_id: str = ""
    executed_arguments: str | None = None
    output: str | None = None
    error: str | None = None
    rejection_message: str | None = None
    cancellation_reason: CancellationReason | None = None
    tool_source_reference: str | None = None
    framework_result: str | None = None
    input_continuation: str | None = None
    task_id: str | None = None
    trace_context: str | None = None

    @property
    def arguments_to_run(self) -> str:
        """The arguments the tool runs with: a person's when they changed them, else the model's."""
        return self.arguments if self.executed_arguments is None else self.executed_arguments


class AgentToolCallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool call as stored; the fields of `AgentToolCall`, and those only the session uses.

    Attributes:
        is_running: Whether an attempt has started and not ended.
        attempt: The latest started attempt, 0 before the first.
        step_execution_id: The Step execution of the latest started attempt, 0 before the first.
        last_attempt_error: Why the latest failed attempt failed, while another one follows.
        earlier_attempt_failed: Whether any attempt failed or was lost, so that the call may have taken effect.
        deferred_at: When the model's request was stored.
        started_at: When the latest attempt started.
        finished_at: When the record became final.
        arguments_schema: JSON Schema text that changed arguments must fit; kept only while a person may change them.
        wait_until: When a durable wait ends.
        input_question: The question the tool asked.
        input_choices: Its choices.
        input_allows_free_text: Whether the answer may be none of them.
        input_answers: The tool's questions that ended.
        task_poll_interval_seconds: How long until the task is polled again.
        task_answer_pending: Whether the next poll hands over an answer.
    """

    tool_call_id: str
    tool_name: str
    arguments: str
    effect: ToolEffect
    requires_approval: bool
    status: AgentToolCallRecordStatus
    deferral_order: int
    model_step_number: int
    deferred_at: datetime
    provider_tool_call_id: str = ""
    executed_arguments: str | None = None
    output: str | None = None
    error: str | None = None
    rejection_message: str | None = None
    cancellation_reason: CancellationReason | None = None
    is_running: bool = False
    attempt: int = 0
    step_execution_id: int = 0
    last_attempt_error: str | None = None
    earlier_attempt_failed: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    tool_source_reference: str | None = None
    framework_result: str | None = None
    arguments_schema: str | None = None
    wait_until: datetime | None = None
    input_continuation: str | None = None
    input_question: str | None = None
    input_choices: tuple[str, ...] = ()
    input_allows_free_text: bool = True
    input_answers: tuple[QuestionAnswer, ...] = ()
    task_id: str | None = None
    task_poll_interval_seconds: int | None = None
    task_answer_pending: bool = False
    trace_context: str | None = None

    def to_tool_call(self) -> AgentToolCall:
        """What runners see of the record; a waiting call reads as `approved`, since nothing it waits for is final."""
        return AgentToolCall(
            tool_call_id=self.tool_call_id,
            provider_tool_call_id=self.provider_tool_call_id,
            tool_name=self.tool_name,
            arguments=self.arguments,
            executed_arguments=self.executed_arguments,
            effect=self.effect,
            requires_approval=self.requires_approval,
            status=_RUNNER_STATUS[self.status],
            output=self.output,
            error=self.error,
            rejection_message=self.rejection_message,
            cancellation_reason=self.cancellation_reason,
            deferral_order=self.deferral_order,
            model_step_number=self.model_step_number,
            tool_source_reference=self.tool_source_reference,
            framework_result=self.framework_result,
            input_continuation=self.input_continuation,
            task_id=self.task_id,
            trace_context=self.trace_context,
        )


_RUNNER_STATUS = {
    AgentToolCallRecordStatus.AWAITING_APPROVAL: AgentToolCallStatus.AWAITING_APPROVAL,
    AgentToolCallRecordStatus.APPROVED: AgentToolCallStatus.APPROVED,
    AgentToolCallRecordStatus.AWAITING_ANSWER: AgentToolCallStatus.APPROVED,
    AgentToolCallRecordStatus.WAITING_FOR_TIMER: AgentToolCallStatus.APPROVED,
    AgentToolCallRecordStatus.WAITING_FOR_TASK: AgentToolCallStatus.APPROVED,
    AgentToolCallRecordStatus.SUCCEEDED: AgentToolCallStatus.SUCCEEDED,
    AgentToolCallRecordStatus.FAILED: AgentToolCallStatus.FAILED,
    AgentToolCallRecordStatus.REJECTED: AgentToolCallStatus.REJECTED,
    AgentToolCallRecordStatus.OUTCOME_UNKNOWN: AgentToolCallStatus.OUTCOME_UNKNOWN,
}


class AgentInterrupt(msgspec.Struct, frozen=True, kw_only=True):
    """A decision or answer the session waits for.

    Attributes:
        interrupt_id: The ID that resolves it; carries the turn, so that a stale page never decides a later call.
        kind: `approval` or `question`.
        tool_call_id: The call it belongs to.
        tool_name: Name of the call's tool.
        arguments: JSON object text: what an approval allows to run.
        raised_at: When it was raised.
        deadline: When it is decided without an answer; None for never.
        question: The question's text.
        choices: The question's choices.
        allows_free_text: Whether the answer may be none of them.
    """

    interrupt_id: str
    kind: InterruptKind
    tool_call_id: str
    tool_name: str
    arguments: str
    raised_at: datetime
    deadline: datetime | None = None
    question: str | None = None
    choices: tuple[str, ...] = ()
    allows_free_text: bool = True


class AgentInterruptResolution(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted decision on an interrupt.

    Attributes:
        approved: Whether the call may run.
        rejection_message: The person's words when it may not.
        answer: The answer to a question.
        arguments: JSON object text that the person put in place of the call's arguments.
        resolved_at: When the session accepted it.
    """

    approved: bool
    resolved_at: datetime
    rejection_message: str | None = None
    answer: str | None = None
    arguments: str | None = None


class TurnControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Wakes the Step that waits: look at what is steered or cancelled."""

    kind: TurnControlKind


class TurnCancellationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The user stopped this turn."""

    turn_id: str
    requested_at: datetime


class ToolCallCancellation(msgspec.Struct, frozen=True, kw_only=True):
    """Ends the wait of a call that was not run."""

    reason: CancellationReason


class ToolCallCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """A call's record became final."""

    tool_call_id: str
