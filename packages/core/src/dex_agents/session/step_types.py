"""Durable names of the session's Step types."""

from __future__ import annotations

__all__ = [
    "APPLY_TURN_CONTROL",
    "APPLY_TURN_CONTROL_NOTE",
    "AWAIT_QUESTION_ANSWER",
    "AWAIT_TIMER",
    "AWAIT_TOOL_APPROVAL",
    "AWAIT_USER_MESSAGE",
    "CALL_SINGLE_ATTEMPT_TOOL",
    "CALL_TOOL",
    "CANCEL_TOOL_TASK",
    "COMPACT_CONTEXT",
    "FINISH_TURN_CANCELLATION",
    "POLL_TOOL_TASK",
    "RECORD_COMPACTION_FAILURE",
    "RECORD_TOOL_FAILURE",
    "RECORD_TOOL_OUTCOME_UNKNOWN",
    "RECORD_TURN_FAILURE",
    "RECORD_TURN_FAILURE_NOTE",
    "RESUME_TURN",
    "RUN_MODEL",
    "START_AGENT_SESSION",
]

START_AGENT_SESSION = "StartAgentSession"
AWAIT_USER_MESSAGE = "AwaitUserMessage"
RUN_MODEL = "RunModel"
AWAIT_TOOL_APPROVAL = "AwaitToolApproval"
AWAIT_QUESTION_ANSWER = "AwaitQuestionAnswer"
AWAIT_TIMER = "AwaitTimer"
CALL_TOOL = "CallTool"
CALL_SINGLE_ATTEMPT_TOOL = "CallSingleAttemptTool"
POLL_TOOL_TASK = "PollToolTask"
CANCEL_TOOL_TASK = "CancelToolTask"
COMPACT_CONTEXT = "CompactContext"
RECORD_COMPACTION_FAILURE = "RecordCompactionFailure"
RESUME_TURN = "ResumeTurn"
APPLY_TURN_CONTROL = "ApplyTurnControl"
APPLY_TURN_CONTROL_NOTE = "ApplyTurnControlNote"
FINISH_TURN_CANCELLATION = "FinishTurnCancellation"
RECORD_TOOL_FAILURE = "RecordToolFailure"
RECORD_TOOL_OUTCOME_UNKNOWN = "RecordToolOutcomeUnknown"
RECORD_TURN_FAILURE = "RecordTurnFailure"
RECORD_TURN_FAILURE_NOTE = "RecordTurnFailureNote"
