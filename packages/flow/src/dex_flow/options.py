"""How a Step is attempted: timeouts, retries and where a failed Step goes."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from dex_flow.errors import DefinitionError

__all__ = ["Retry", "StepOptions"]


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often and how long a failing Step is tried again.

    Attributes:
        attempts: Most attempts, at least 1; None for no limit.
        window: From the first attempt's start; no attempt begins after it. None for no limit.
        backoff: The wait before the second attempt; doubled for each further one.
        backoff_cap: The longest wait between attempts.
    """

    attempts: int | None = None
    window: timedelta | None = None
    backoff: timedelta = timedelta(milliseconds=100)
    backoff_cap: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise DefinitionError(f"Retry.attempts must be at least 1, not {self.attempts}")
        if self.backoff < timedelta(0) or self.backoff_cap < self.backoff:
            raise DefinitionError("Retry.backoff must not be negative, and backoff_cap at least as long")


class StepOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attempt rules of one Step type, or of one execution when `go_to` passes them.

    Attributes:
        attempt_timeout: Longest run of one attempt; None for no limit.
        heartbeat_timeout: Longest silence of one attempt; None for no limit.
        start_timeout: Longest wait for a worker to take the Step; the only source of `NOT_STARTED`. None waits.
        retry: Attempts, total window and backoff. An ActivityStep with one attempt gets its own durable
            "started" marker before `run`, so that a crash never repeats it.
        failure_route: Step type name that receives the failed Step's input; without one the Flow fails.
    """

    attempt_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    start_timeout: timedelta | None = None
    retry: Retry = Retry()
    failure_route: str | None = None
