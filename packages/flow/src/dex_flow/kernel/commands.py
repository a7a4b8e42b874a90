"""Everything that can happen to a Flow execution, as values."""

from __future__ import annotations

from typing import Any

import msgspec

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


class StartFlow(msgspec.Struct, frozen=True):
    """Create the execution. `input` is the encoded start input."""

    input: bytes
    request_id: str | None = None


class InvokeRpc(msgspec.Struct, frozen=True):
    """Call a mutating RPC. `input` is encoded."""

    name: str
    input: bytes
    request_id: str | None = None


class ClaimReady(msgspec.Struct, frozen=True):
    """Claim what is ready, as far as the claiming worker's slots allow."""


class AttemptStarted(msgspec.Struct, frozen=True):
    """The durable marker of a single-attempt Step, before its `run` begins."""

    step_execution_id: int
    attempt: int


class AttemptSucceeded(msgspec.Struct, frozen=True):
    """`run` returned `outcome`, a value of the Step's outcome type."""

    step_execution_id: int
    attempt: int
    outcome: Any


class AttemptFailed(msgspec.Struct, frozen=True):
    """`run` raised, timed out or went silent."""

    step_execution_id: int
    attempt: int
    failure: AttemptFailure


class AttemptsLost(msgspec.Struct, frozen=True):
    """The worker that held every claimed and running attempt is gone."""

    message: str = "the worker process ended during the attempt"


class SaveCheckpoint(msgspec.Struct, frozen=True):
    """A heartbeat that carries text for the next attempt."""

    step_execution_id: int
    attempt: int
    text: str


class FireTimers(msgspec.Struct, frozen=True):
    """Due timers, backoffs and start timeouts; every command fires them, this one does nothing else."""


class SkipTimer(msgspec.Struct, frozen=True):
    """End one Step's timer wait or backoff now."""

    step_execution_id: int


class StopFlow(msgspec.Struct, frozen=True):
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
