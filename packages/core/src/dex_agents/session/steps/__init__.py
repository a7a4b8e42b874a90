"""The session's Steps, one module per group."""

from dex_agents.session.steps.approval import AwaitToolApproval
from dex_agents.session.steps.model import ResumeTurn, RunModel
from dex_agents.session.steps.start import AwaitUserMessage, StartAgentSession
from dex_agents.session.steps.tool_failures import RecordToolFailure, RecordToolOutcomeUnknown
from dex_agents.session.steps.tools import CallSingleAttemptTool, CallTool
from dex_agents.session.steps.turn_failure import (
    RecordTurnFailure,
    RecordTurnFailureNote,
    RecordTurnFailureWithRunnerMessages,
)

__all__ = (
    "AwaitToolApproval",
    "AwaitUserMessage",
    "CallSingleAttemptTool",
    "CallTool",
    "RecordToolFailure",
    "RecordToolOutcomeUnknown",
    "RecordTurnFailure",
    "RecordTurnFailureNote",
    "RecordTurnFailureWithRunnerMessages",
    "ResumeTurn",
    "RunModel",
    "StartAgentSession",
)
