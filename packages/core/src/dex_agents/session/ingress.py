"""Where everything a runner returns enters the session: repaired, checked and limited, before it is stored.

Pure; the execution side calls it in `run`, so that none of this costs time while a commit holds the database.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dex_agents.runner_outcomes import (
    AgentTurnOutcome,
    ContextSummaryResult,
    DeferredToolOutcome,
    ModelStepContinues,
    ToolCallsRequested,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskPending,
    ToolTaskPollOutcome,
    ToolTaskStarted,
    TurnCompleted,
    TurnRefusedError,
)
from dex_agents.session.arguments import check_arguments
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ContextSummarized,
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepOutcome,
    ModelStepRefused,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallTaskStarted,
    ToolOutcome,
    ToolTaskOutcome,
    ToolTaskStillPending,
    UnfinishedTurnOutcome,
)
from dex_agents.session.result_limits import limit_tool_result
from dex_agents.session.sanitizer import (
    sanitize_error_text,
    sanitize_json_text,
    sanitize_name,
    sanitize_text,
    text_size,
)
from dex_agents.session.texts import TOOL_FAILED_WITHOUT_MESSAGE
from dex_agents.session.tool_values import DeferredToolCall, ResolvedToolPolicy, ToolEffect
from dex_agents.session.values import AgentMessageToolCall, AgentUsage, FrameworkMessage

__all__ = [
    "EmptySummaryError",
    "MessageTooLargeError",
    "RunnerContractError",
    "SummaryTooLongError",
    "context_summarized",
    "failed_tool_call",
    "model_step_outcome",
    "refused_model_step",
    "repair_message",
    "tool_outcome",
    "tool_task_outcome",
    "unfinished_turn_outcome",
]

MAX_POLL_INTERVAL_SECONDS = 24 * 3600

_COUNT_FIELDS = AgentUsage.__struct_fields__


class RunnerContractError(TypeError):
    """A runner returned something its contract does not allow; names what.

    A model call that ends so is not tried again: the runner's code would do the same with the next paid answer.
    """

    is_retryable = False


class MessageTooLargeError(TurnRefusedError):
    """A message of a turn is too large to store; the turn fails and is not tried again.

    Args:
        role: Who wrote the message.
        size: Its UTF-8 bytes.
        limit: Most bytes of one message.
    """

    def __init__(self, role: str, size: int, limit: int) -> None:
        super().__init__(f"a message of the {role} has {size} bytes; the limit is {limit} bytes (max_message_bytes)")


class EmptySummaryError(ValueError):
    """A summary of earlier messages says nothing; this attempt of the compaction failed."""

    def __init__(self) -> None:
        super().__init__("the summary of the earlier messages is blank")


class SummaryTooLongError(ValueError):
    """A summary is not shorter than the messages it stands for; this attempt of the compaction failed.

    Args:
        size: Its UTF-8 bytes.
        summarized_size: Bytes of the messages.
    """

    def __init__(self, size: int, summarized_size: int) -> None:
        super().__init__(f"the summary has {size} bytes, and the messages it stands for have {summarized_size}")


def model_step_outcome(outcome: AgentTurnOutcome, options: AgentSessionOptions) -> ModelStepOutcome:
    """The storable form of what `run_model_step` returned; a message too large to store is a refusal.

    Raises:
        RunnerContractError: The runner broke its contract.
    """
    usage = _repair_usage(getattr(outcome, "usage", None))
    try:
        match outcome:
            case TurnCompleted():
                return ModelStepCompleted(new_messages=_repair_messages(outcome.new_messages, options), usage=usage)
            case ToolCallsRequested():
                if not outcome.tool_calls:
                    raise RunnerContractError("ToolCallsRequested needs at least one tool call")
                return ModelStepToolCallsRequested(
                    framework_run_state=_repair_run_state(outcome.framework_run_state),
                    tool_calls=tuple(_repair_tool_call(call) for call in outcome.tool_calls),
                    usage=usage,
                    new_messages=_repair_messages(outcome.new_messages, options),
                )
            case ModelStepContinues():
                return ModelStepContinued(
                    framework_run_state=_repair_run_state(outcome.framework_run_state),
                    usage=usage,
                    new_messages=_repair_messages(outcome.new_messages, options),
                )
    except MessageTooLargeError as error:
        return refused_model_step(error, usage)
    raise RunnerContractError(
        f"run_model_step must return TurnCompleted, ToolCallsRequested or ModelStepContinues, not {outcome!r}"
    )


def refused_model_step(error: TurnRefusedError, usage: AgentUsage | None = None) -> ModelStepRefused:
    """The outcome of a model step that cannot succeed."""
    return ModelStepRefused(
        error_type=sanitize_name(type(error).__name__),
        message=sanitize_error_text(error.message),
        usage=usage or AgentUsage(),
    )


def context_summarized(result: ContextSummaryResult, summarized_size: int) -> ContextSummarized:
    """The storable form of what `summarize_context` returned.

    Args:
        result: What the runner returned.
        summarized_size: UTF-8 bytes of the framework items that the summary stands for.

    Raises:
        RunnerContractError: The runner broke its contract.
        EmptySummaryError: The summary is blank.
        SummaryTooLongError: It is not shorter than what it stands for.
    """
    if not isinstance(result, ContextSummaryResult):
        raise RunnerContractError(f"summarize_context must return a ContextSummaryResult, not {type(result).__name__}")
    text = _contract_text("ContextSummaryResult.text", result.text)
    if not text.strip():
        raise EmptySummaryError()
    if text_size(text) >= summarized_size:
        raise SummaryTooLongError(text_size(text), summarized_size)
    return ContextSummarized(text=text, usage=_repair_usage(result.usage))


def tool_outcome(outcome: DeferredToolOutcome, tool_name: str, options: AgentSessionOptions) -> ToolOutcome:
    """The storable form of what `execute_deferred_tool_call` returned, within the limit of results.

    Raises:
        RunnerContractError: The runner broke its contract.
    """
    match outcome:
        case ToolExecutionResult():
            _contract_text("ToolExecutionResult.output", outcome.output)
            return limit_tool_result(tool_name, outcome, options)
        case ToolInputRequested():
            return _input_requested(outcome)
        case ToolTaskStarted():
            return ToolCallTaskStarted(
                task_id=_contract_text("ToolTaskStarted.task_id", outcome.task_id),
                poll_interval_seconds=_whole_interval(
                    "ToolTaskStarted.poll_interval_seconds", outcome.poll_interval_seconds
                ),
            )
    raise RunnerContractError(
        "execute_deferred_tool_call must return ToolExecutionResult, ToolInputRequested or ToolTaskStarted, "
        f"not {type(outcome).__name__}"
    )


def tool_task_outcome(outcome: ToolTaskPollOutcome, tool_name: str, options: AgentSessionOptions) -> ToolTaskOutcome:
    """The storable form of what `poll_tool_task` returned, within the limit of results.

    Raises:
        RunnerContractError: The runner broke its contract.
    """
    match outcome:
        case ToolExecutionResult():
            _contract_text("ToolExecutionResult.output", outcome.output)
            return limit_tool_result(tool_name, outcome, options)
        case ToolInputRequested():
            return _input_requested(outcome)
        case ToolTaskPending():
            return ToolTaskStillPending(
                poll_interval_seconds=_whole_interval(
                    "ToolTaskPending.poll_interval_seconds", outcome.poll_interval_seconds
                ),
                continuation=_optional_text("ToolTaskPending.continuation", outcome.continuation),
            )
    raise RunnerContractError(
        "poll_tool_task must return ToolExecutionResult, ToolInputRequested or ToolTaskPending, "
        f"not {type(outcome).__name__}"
    )


def _input_requested(asked: ToolInputRequested) -> ToolCallInputRequested:
    question = _contract_text("ToolInputRequested.question", asked.question)
    if not question.strip():
        raise RunnerContractError("ToolInputRequested.question must not be blank")
    if isinstance(asked.choices, str):
        raise RunnerContractError("ToolInputRequested.choices must be a sequence of texts, not str")
    choices = tuple(_contract_text("ToolInputRequested.choices", choice) for choice in asked.choices)
    if not all(choice.strip() for choice in choices):
        raise RunnerContractError("ToolInputRequested.choices must not be blank, or nothing can choose them")
    if not choices and not asked.allows_free_text:
        raise RunnerContractError("ToolInputRequested without choices must allow free text, or nothing can answer it")
    return ToolCallInputRequested(
        question=question,
        choices=choices,
        allows_free_text=bool(asked.allows_free_text),
        continuation=_optional_text("ToolInputRequested.continuation", asked.continuation),
    )


def failed_tool_call(error: ToolExecutionError, options: AgentSessionOptions) -> ToolCallFailed:
    """The outcome of a failure for the model; a `framework_result` above the limit of messages is left out."""
    framework_result = error.framework_result
    if framework_result is not None:
        framework_result = sanitize_json_text(_contract_text("ToolExecutionError.framework_result", framework_result))
        if text_size(framework_result) > options.max_message_bytes:
            framework_result = None
    return ToolCallFailed(
        message=sanitize_error_text(str(error)) or TOOL_FAILED_WITHOUT_MESSAGE, framework_result=framework_result
    )


def unfinished_turn_outcome(
    messages: Iterable[FrameworkMessage], error: Exception | None, options: AgentSessionOptions
) -> UnfinishedTurnOutcome:
    """The outcome of `build_unfinished_turn_messages`: its messages, or why there are none."""
    if error is None:
        try:
            return UnfinishedTurnOutcome(messages=_repair_messages(messages, options))
        except (RunnerContractError, MessageTooLargeError) as raised:
            error = raised
    return UnfinishedTurnOutcome(error=sanitize_error_text(f"{type(error).__name__}: {error}"))


def repair_message(message: FrameworkMessage, max_bytes: int | None) -> FrameworkMessage:
    """A runner's message with every text repaired.

    Raises:
        RunnerContractError: It is no `FrameworkMessage`.
        MessageTooLargeError: It has more than `max_bytes` UTF-8 bytes; None is no limit.
    """
    if not isinstance(message, FrameworkMessage):
        raise RunnerContractError(f"a message must be a FrameworkMessage, not {type(message).__name__}")
    repaired = FrameworkMessage(
        role=message.role,
        framework_item=sanitize_json_text(_contract_text("FrameworkMessage.framework_item", message.framework_item)),
        text=_contract_text("FrameworkMessage.text", message.text),
        reasoning_text=_optional_text("FrameworkMessage.reasoning_text", message.reasoning_text),
        tool_calls=tuple(
            AgentMessageToolCall(
                tool_call_id=sanitize_name(call.tool_call_id),
                tool_name=sanitize_name(call.tool_name),
                arguments=sanitize_json_text(call.arguments),
            )
            for call in message.tool_calls
        ),
        tool_call_id=_optional_text("FrameworkMessage.tool_call_id", message.tool_call_id),
    )
    characters = len(repaired.framework_item) + len(repaired.text) + len(repaired.reasoning_text or "")
    if max_bytes is not None and characters * 4 > max_bytes:
        size = sum(map(text_size, (repaired.framework_item, repaired.text, repaired.reasoning_text or "")))
        if size > max_bytes:
            raise MessageTooLargeError(repaired.role, size, max_bytes)
    return repaired


def _repair_messages(
    messages: Iterable[FrameworkMessage], options: AgentSessionOptions
) -> tuple[FrameworkMessage, ...]:
    return tuple(repair_message(message, options.max_message_bytes) for message in messages)


def _repair_tool_call(call: DeferredToolCall) -> RequestedToolCall:
    if not isinstance(call, DeferredToolCall):
        raise RunnerContractError(f"a tool call must be a DeferredToolCall, not {type(call).__name__}")
    tool_name = sanitize_name(_contract_text("DeferredToolCall.tool_name", call.tool_name))
    arguments = check_arguments(tool_name, call.arguments if isinstance(call.arguments, str) else "")
    return RequestedToolCall(
        tool_call_id=sanitize_name(call.tool_call_id or ""),
        tool_name=tool_name,
        arguments=arguments.text,
        policy=ResolvedToolPolicy(
            effect=ToolEffect(call.policy.effect), requires_approval=call.policy.requires_approval
        ),
        tool_source_reference=_optional_text("DeferredToolCall.tool_source_reference", call.tool_source_reference),
        arguments_schema=_optional_text("DeferredToolCall.arguments_schema", call.arguments_schema),
        arguments_error=arguments.error,
    )


def _repair_run_state(text: Any) -> str:
    repaired = sanitize_json_text(_contract_text("framework_run_state", text))
    if not repaired:
        raise RunnerContractError("framework_run_state must not be empty")
    return repaired


def _repair_usage(usage: Any) -> AgentUsage:
    if usage is None:
        return AgentUsage(model_calls=1)
    counts: dict[str, Any] = {name: getattr(usage, name, None) for name in _COUNT_FIELDS}
    if all(type(count) is int and count >= 0 for count in counts.values()):
        return AgentUsage(**counts)
    known = {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}
    return AgentUsage(**{"model_calls": 1 if counts["model_calls"] is None else 0, **known})


def _whole_interval(what: str, seconds: float) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or math.isnan(seconds):
        raise RunnerContractError(f"{what} must be a number, not {seconds!r}")
    return max(1, math.ceil(min(seconds, MAX_POLL_INTERVAL_SECONDS)))


def _contract_text(what: str, text: Any) -> str:
    if not isinstance(text, str):
        raise RunnerContractError(f"{what} must be text, not {type(text).__name__}")
    return sanitize_text(text)


def _optional_text(what: str, text: Any) -> str | None:
    return None if text is None else _contract_text(what, text)
