"""Durable names of the session's Step types."""

from __future__ import annotations

__all__ = [
    "AWAIT_TOOL_APPROVAL",
    "AWAIT_USER_MESSAGE",
    "CALL_SINGLE_ATTEMPT_TOOL",
    "CALL_TOOL",
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
CALL_TOOL = "CallTool"
CALL_SINGLE_ATTEMPT_TOOL = "CallSingleAttemptTool"
RESUME_TURN = "ResumeTurn"
RECORD_TOOL_FAILURE = "RecordToolFailure"
RECORD_TOOL_OUTCOME_UNKNOWN = "RecordToolOutcomeUnknown"
RECORD_TURN_FAILURE = "RecordTurnFailure"
RECORD_TURN_FAILURE_NOTE = "RecordTurnFailureNote"
