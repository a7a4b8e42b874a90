"""What the model sees as the result of a final tool call."""

from __future__ import annotations

from dex_agents.session.texts import (
    ARGUMENTS_CHANGED_BY_USER,
    OUTCOME_UNKNOWN_TOOL_RESULT,
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
    TOOL_CALL_REJECTED_RESULT,
)
from dex_agents.session.tool_values import AgentToolCall, AgentToolCallStatus

__all__ = ["tool_result_text"]

_CANCELLATION_TEXTS = {
    "steered": TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    "turn_cancelled": TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
}


def tool_result_text(call: AgentToolCall) -> str:
    """The text of a final call's result: its output, its error, the person's words, or what the session knows.

    Raises:
        ValueError: The call is not final, so there is no result yet.
    """
    match call.status:
        case AgentToolCallStatus.SUCCEEDED:
            return f"{_changed_arguments(call)}{call.output or ''}"
        case AgentToolCallStatus.FAILED:
            return f"{_changed_arguments(call)}{call.error or ''}"
        case AgentToolCallStatus.REJECTED:
            if call.cancellation_reason is not None:
                return _CANCELLATION_TEXTS[call.cancellation_reason]
            return call.rejection_message or TOOL_CALL_REJECTED_RESULT
        case AgentToolCallStatus.OUTCOME_UNKNOWN:
            return _changed_arguments(call) + OUTCOME_UNKNOWN_TOOL_RESULT
        case _:
            raise ValueError(f"tool call {call.tool_call_id!r} is {call.status.value} and has no result yet")


def _changed_arguments(call: AgentToolCall) -> str:
    if call.executed_arguments is None:
        return ""
    return f"{ARGUMENTS_CHANGED_BY_USER}{call.executed_arguments}\n"
