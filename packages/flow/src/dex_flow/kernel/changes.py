"""What one command changed, for an engine to store in one commit."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from dex_flow.kernel.known import KnownState
from dex_flow.kernel.reader import StoredRequest
from dex_flow.options import StepOptions

__all__ = ["Changes", "ClaimedAttempt", "CommandResult", "HistoryRow"]


class HistoryRow(NamedTuple):
    """One finished Step method; times are microseconds since the epoch."""

    number: int
    step_execution_id: int
    step_type: str
    method: str
    attempt: int
    outcome: str
    started_at: int
    finished_at: int
    detail: str | None


class ClaimedAttempt(NamedTuple):
    """An attempt this command gave to the claiming worker.

    `is_started` is False for a single-attempt Step, which still needs its `AttemptStarted` command.
    """

    step_execution_id: int
    step_type: str
    attempt: int
    is_started: bool
    input: bytes
    checkpoint: str | None
    options: StepOptions
    started_at: int


class Changes(msgspec.Struct):
    """Rows to write, and what the engine must do after the commit.

    Attributes:
        header: The new header row.
        status: The execution's status after the command.
        next_due: When `FireTimers` is due next, microseconds since the epoch.
        has_ready: Whether a Step waits for a worker.
        active_steps: How many Steps a worker has claimed or runs.
        attributes: Values by (name, key); None deletes.
        published: (channel, key, message ID, value) of new messages.
        consumed: (channel, key, message ID) of stored messages that are gone.
        step_bodies: Body rows by Step execution ID; None deletes.
        events: Encoded events by stream name, in order.
        history: Finished Step methods.
        forgotten_history: Numbers of stored history rows to drop.
        requests: Requests to remember.
        forgotten_requests: IDs of remembered requests to drop.
        cancelled: (Step execution ID, attempt) of claimed or running attempts that no longer count.
        claimed: Attempts for the claiming worker to run.
        known: What is known of the state after the command; see `Kernel.apply`.
    """

    header: bytes = b""
    status: str = "open"
    next_due: int | None = None
    has_ready: bool = False
    active_steps: int = 0
    attributes: dict[tuple[str, str], bytes | None] = {}
    published: list[tuple[str, str, int, bytes]] = []
    consumed: list[tuple[str, str, int]] = []
    step_bodies: dict[int, bytes | None] = {}
    events: dict[str, list[bytes]] = {}
    history: list[HistoryRow] = []
    forgotten_history: list[int] = []
    requests: list[StoredRequest] = []
    forgotten_requests: list[str] = []
    cancelled: list[tuple[int, int]] = []
    claimed: list[ClaimedAttempt] = []
    known: KnownState = msgspec.field(default_factory=KnownState)


class CommandResult(NamedTuple):
    """`changes` is None when the command changed nothing and needs no commit."""

    changes: Changes | None
    output: Any
