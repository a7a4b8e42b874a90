"""Interprets Flows without I/O: commands in, changes out."""

from dex_flow.kernel.attempts import AttemptDiscardedError
from dex_flow.kernel.changes import Changes, ClaimedAttempt, CommandResult, HistoryRow
from dex_flow.kernel.commands import (
    AttemptFailed,
    AttemptsLost,
    AttemptStarted,
    AttemptSucceeded,
    ClaimReady,
    Command,
    FireTimers,
    InvokeRpc,
    SaveCheckpoint,
    SkipTimer,
    StartFlow,
    StopFlow,
)
from dex_flow.kernel.detached_view import DetachedView
from dex_flow.kernel.interpreter import Kernel
from dex_flow.kernel.known import KnownState
from dex_flow.kernel.reader import StateReader, StoredRequest
from dex_flow.kernel.state import (
    FORMAT_VERSION,
    FlowHeader,
    OpenStep,
    StepBody,
    decode_header,
    encode_header,
    microseconds,
    timestamp,
)

__all__ = (
    "FORMAT_VERSION",
    "AttemptDiscardedError",
    "AttemptFailed",
    "AttemptStarted",
    "AttemptSucceeded",
    "AttemptsLost",
    "Changes",
    "ClaimReady",
    "ClaimedAttempt",
    "Command",
    "CommandResult",
    "DetachedView",
    "FireTimers",
    "FlowHeader",
    "HistoryRow",
    "InvokeRpc",
    "Kernel",
    "KnownState",
    "OpenStep",
    "SaveCheckpoint",
    "SkipTimer",
    "StartFlow",
    "StateReader",
    "StepBody",
    "StopFlow",
    "StoredRequest",
    "decode_header",
    "encode_header",
    "microseconds",
    "timestamp",
)
