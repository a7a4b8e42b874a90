"""How a Step is attempted: timeouts, retries and where a failed Step goes."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from dex_flow.errors import DefinitionError

__all__ = ["Retry", "StepOptions"]


def _check_duration(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, timedelta) or value < timedelta(0)):
        raise DefinitionError(f"{name} must be a timedelta that is not negative, or None, not {value!r}")


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
        if self.attempts is not None and (type(self.attempts) is not int or self.attempts < 1):
            raise DefinitionError(f"Retry.attempts must be a number of at least 1, not {self.attempts!r}")
        _check_duration("Retry.window", self.window)
        for name in ("backoff", "backoff_cap"):
            if not isinstance(getattr(self, name), timedelta):
                raise DefinitionError(f"Retry.{name} must be a timedelta, not {getattr(self, name)!r}")
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

    def __post_init__(self) -> None:
        for name in ("attempt_timeout", "heartbeat_timeout", "start_timeout"):
            _check_duration(f"StepOptions.{name}", getattr(self, name))
        if not isinstance(self.retry, Retry):
            raise DefinitionError(f"StepOptions.retry must be a Retry, not {self.retry!r}")
        if self.failure_route is not None and not isinstance(self.failure_route, str):
            raise DefinitionError(f"StepOptions.failure_route must be a Step type name, not {self.failure_route!r}")
