"""The session's Steps, one module per group."""

from dex_agents.session.steps.approval import AwaitToolApproval
from dex_agents.session.steps.compaction import CompactContext, RecordCompactionFailure
from dex_agents.session.steps.model import ResumeTurn, RunModel
from dex_agents.session.steps.questions import AwaitQuestionAnswer
from dex_agents.session.steps.start import AwaitUserMessage, StartAgentSession
from dex_agents.session.steps.timers import AwaitTimer
from dex_agents.session.steps.tool_failures import RecordToolFailure, RecordToolOutcomeUnknown
from dex_agents.session.steps.tool_tasks import CancelToolTask, PollToolTask
from dex_agents.session.steps.tools import CallSingleAttemptTool, CallTool
from dex_agents.session.steps.turn_control import (
    ApplyTurnControl,
    ApplyTurnControlNote,
    ApplyTurnControlWithRunnerMessages,
    FinishTurnCancellation,
)
from dex_agents.session.steps.turn_failure import (
    RecordTurnFailure,
    RecordTurnFailureNote,
    RecordTurnFailureWithRunnerMessages,
)

__all__ = (
    "ApplyTurnControl",
    "ApplyTurnControlNote",
    "ApplyTurnControlWithRunnerMessages",
    "AwaitQuestionAnswer",
    "AwaitTimer",
    "AwaitToolApproval",
    "AwaitUserMessage",
    "CallSingleAttemptTool",
    "CallTool",
    "CancelToolTask",
    "CompactContext",
    "FinishTurnCancellation",
    "PollToolTask",
    "RecordCompactionFailure",
    "RecordToolFailure",
    "RecordToolOutcomeUnknown",
    "RecordTurnFailure",
    "RecordTurnFailureNote",
    "RecordTurnFailureWithRunnerMessages",
    "ResumeTurn",
    "RunModel",
    "StartAgentSession",
)
