"""Everything that can happen to a Flow execution, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dex_flow.steps import AttemptFailure

__all__ = [
    "AttemptFailed",
    "AttemptStarted",
    "AttemptSucceeded",
    "AttemptsLost",
    "ClaimReady",
    "Command",
    "FireTimers",
    "InvokeRpc",
    "SaveCheckpoint",
    "SkipTimer",
    "StartFlow",
    "StopFlow",
]


@dataclass(frozen=True, slots=True)
class StartFlow:
    """Create the execution. `input` is the encoded start input."""

    input: bytes
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class InvokeRpc:
    """Call a mutating RPC. `input` is encoded."""

    name: str
    input: bytes
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimReady:
    """Claim what is ready, as far as the claiming worker's slots allow."""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The durable marker of a single-attempt Step, before its `run` begins."""

    step_execution_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class AttemptSucceeded:
    """`run` returned `outcome`, a value of the Step's outcome type."""

    step_execution_id: int
    attempt: int
    outcome: Any


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """`run` raised, timed out or went silent."""

    step_execution_id: int
    attempt: int
    failure: AttemptFailure


@dataclass(frozen=True, slots=True)
class AttemptsLost:
    """The worker that held every claimed and running attempt is gone."""

    message: str = "the worker process ended during the attempt"


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """A heartbeat that carries text for the next attempt."""

    step_execution_id: int
    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class FireTimers:
    """Due timers, backoffs and start timeouts; every command fires them, this one does nothing else."""


@dataclass(frozen=True, slots=True)
class SkipTimer:
    """End one Step's timer wait or backoff now."""

    step_execution_id: int


@dataclass(frozen=True, slots=True)
class StopFlow:
    """Cancel every Step and close the execution."""

    reason: str


Command = (
    StartFlow
    | InvokeRpc
    | ClaimReady
    | AttemptStarted
    | AttemptSucceeded
    | AttemptFailed
    | AttemptsLost
    | SaveCheckpoint
    | FireTimers
    | SkipTimer
    | StopFlow
)
