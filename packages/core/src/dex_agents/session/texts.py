"""Every text the session itself says to the model. Plain and short: what is known, and what to do."""

from __future__ import annotations

__all__ = [
    "APPROVAL_DEADLINE_PASSED",
    "ARGUMENTS_CHANGED_BY_USER",
    "CONTEXT_SUMMARY_INSTRUCTIONS",
    "CONTEXT_SUMMARY_NOTE_HEADER",
    "EARLIER_ATTEMPT_FAILED",
    "MISSING_TOOL_TASK_POLLER",
    "NOTE_PREFIX",
    "NO_FURTHER_ATTEMPT_STEERED",
    "NO_FURTHER_ATTEMPT_TURN_CANCELLED",
    "OUTCOME_UNKNOWN_TOOL_RESULT",
    "QUESTION_DEADLINE_PASSED",
    "QUESTION_DECLINED",
    "TASK_ABANDONED_ERROR",
    "TODOS_WRITTEN_TWICE",
    "TOOL_CALL_CANCELLED_BY_STEERING_RESULT",
    "TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT",
    "TOOL_CALL_NOT_RUN_ERROR_PREFIX",
    "TOOL_CALL_NOT_RUN_IN_PLANNING_TURN",
    "TOOL_CALL_REJECTED_RESULT",
    "TOOL_FAILED_WITHOUT_MESSAGE",
    "TURN_CANCELLED_NOTE_HEADER",
    "TURN_FAILURE_NOTE_FOOTER",
    "TURN_FAILURE_NOTE_HEADER",
    "TURN_STEERED_NOTE_HEADER",
    "context_summary_omission_note",
    "invalid_arguments_text",
    "invalid_built_in_arguments_text",
    "model_call_limit_text",
    "result_dropped_text",
    "result_truncated_mark",
    "turn_limit_text",
    "unknown_tool_text",
]

NOTE_PREFIX = "[Dex]"

TOOL_CALL_REJECTED_RESULT = "The user rejected this tool call; it was not run. Do not call it again unless they ask."
APPROVAL_DEADLINE_PASSED = "approval deadline passed"
QUESTION_DEADLINE_PASSED = "question deadline passed"
QUESTION_DECLINED = "The user declined to answer."
OUTCOME_UNKNOWN_TOOL_RESULT = (
    "It is unknown whether this tool call took effect: it was interrupted and may have run to the end. "
    "Check what happened before you call it again."
)
TOOL_CALL_NOT_RUN_ERROR_PREFIX = "the tool did not run, so it is safe to call again"
TOOL_CALL_CANCELLED_BY_STEERING_RESULT = "This tool call was not run: the user sent a new message first."
TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT = "This tool call was not run: the user stopped the turn."
TOOL_CALL_NOT_RUN_IN_PLANNING_TURN = "The tool call was not run: a planning turn can only call write_todos."
ARGUMENTS_CHANGED_BY_USER = "The user changed the arguments before approving; the tool ran with: "
TOOL_FAILED_WITHOUT_MESSAGE = "the tool failed without a message"
MISSING_TOOL_TASK_POLLER = (
    "The tool started remote work that this agent cannot follow. It may still be running; check before you call the "
    "tool again."
)

TASK_ABANDONED_ERROR = "the user stopped the turn while the tool's remote work was running"
EARLIER_ATTEMPT_FAILED = "an earlier attempt failed and may have taken effect; the call went no further"
NO_FURTHER_ATTEMPT_STEERED = "not tried again: the user sent a new message"
NO_FURTHER_ATTEMPT_TURN_CANCELLED = "not tried again: the user stopped the turn"

TURN_STEERED_NOTE_HEADER = (
    f"{NOTE_PREFIX} The user sent a new message before the previous turn was answered. These tool calls were made:"
)
TURN_CANCELLED_NOTE_HEADER = (
    f"{NOTE_PREFIX} The user stopped the previous turn before it was answered. These tool calls were made:"
)
TURN_FAILURE_NOTE_HEADER = f"{NOTE_PREFIX} The previous turn failed before it was answered. These tool calls were made:"
TURN_FAILURE_NOTE_FOOTER = "Do not repeat these tool calls unless the user asks again."

TODOS_WRITTEN_TWICE = "write_todos was called more than once in one response"
CONTEXT_SUMMARY_NOTE_HEADER = f"{NOTE_PREFIX} Summary of the earlier conversation:"
CONTEXT_SUMMARY_INSTRUCTIONS = (
    "Summarise the conversation so far for the assistant who continues it and sees nothing else of it. Keep what the "
    "user asked for and decided, facts and identifiers, what the tool calls did and their results, open questions and "
    "the next steps. Leave out pleasantries. Write plain text and call no tools."
)


def context_summary_omission_note(omitted_count: int) -> str:
    """Tells a summary call that its oldest messages did not fit."""
    return f"{NOTE_PREFIX} The {omitted_count} oldest messages are left out because they do not fit."


def turn_limit_text(limit: str, value: int | None) -> str:
    """A call the model asked for after its turn reached a limit; a value of None is one a deploy took away since."""
    of = "" if value is None else f"{value} "
    return f"The tool call was not run: this turn reached its limit of {of}{limit.replace('_', ' ')}."


def unknown_tool_text(tool_name: str) -> str:
    """A call of a tool that does not exist."""
    return f"unknown tool {tool_name}"


def invalid_arguments_text(tool_name: str, problem: str) -> str:
    """Arguments the tool cannot run with."""
    return f"The tool {tool_name} was not run: its arguments are invalid: {problem}"


def invalid_built_in_arguments_text(tool_name: str, reason: str) -> str:
    """Arguments that one of the session's own tools cannot run with."""
    return f"invalid {tool_name} arguments: {reason}"


def model_call_limit_text(limit: int) -> str:
    """A call the model asked for after its last allowed model call."""
    return f"The tool call was not run: this turn reached its limit of {limit} model calls."


def result_dropped_text(tool_name: str, size: int, limit: int) -> str:
    """A result that is too large to keep, in bytes."""
    return (
        f"The tool {tool_name} ran, but its result was dropped: it has {size} bytes and the limit is {limit} bytes. "
        "What the tool did has taken effect. Ask for less, such as a page or a filter."
    )


def result_truncated_mark(size: int, limit: int) -> str:
    """The end of a result that was cut, in bytes."""
    return f"\n[Dex] The result was cut here: it has {size} bytes and the limit is {limit} bytes."
