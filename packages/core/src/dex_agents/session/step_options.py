"""Timeouts, attempts and failure routes of the session's ActivitySteps."""

from __future__ import annotations

from datetime import timedelta

from dex_flow import Retry, StepOptions

__all__ = ["repeatable_options", "single_attempt_options", "unfinished_turn_options"]

ATTEMPT_TIMEOUT = timedelta(minutes=15)
HEARTBEAT_TIMEOUT = timedelta(minutes=2)
RETRY_WINDOW = timedelta(minutes=30)
ATTEMPTS = 3
BACKOFF_CAP = timedelta(seconds=30)
UNFINISHED_TURN_TIMEOUT = timedelta(seconds=30)


def repeatable_options(failure_route: str, backoff: timedelta) -> StepOptions:
    """Of a model step, or of a tool call that may repeat."""
    return StepOptions(
        attempt_timeout=ATTEMPT_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry=Retry(attempts=ATTEMPTS, window=RETRY_WINDOW, backoff=backoff, backoff_cap=max(backoff, BACKOFF_CAP)),
        failure_route=failure_route,
    )


def single_attempt_options(failure_route: str) -> StepOptions:
    """Of a tool call that must not run twice."""
    return StepOptions(
        attempt_timeout=ATTEMPT_TIMEOUT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry=Retry(attempts=1),
        failure_route=failure_route,
    )


def unfinished_turn_options(failure_route: str) -> StepOptions:
    """Of building a failed turn's messages, which does no I/O; only a dying worker makes it fail."""
    return StepOptions(
        attempt_timeout=UNFINISHED_TURN_TIMEOUT, retry=Retry(attempts=ATTEMPTS), failure_route=failure_route
    )
