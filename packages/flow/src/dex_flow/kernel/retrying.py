"""When the next attempt of a Step begins, and whether it may."""

from __future__ import annotations

from datetime import timedelta

from dex_flow.kernel.state import OpenStep
from dex_flow.options import Retry

__all__ = ["backoff_after", "is_past_window"]

_MICROSECOND = timedelta(microseconds=1)


def backoff_after(retry: Retry, attempt: int) -> int:
    """Microseconds between the end of this attempt and the next one's start, as the rule says."""
    seconds = min(retry.backoff.total_seconds() * 2 ** min(attempt - 1, 30), retry.backoff_cap.total_seconds())
    return int(seconds * 1_000_000)


def is_past_window(retry: Retry, step: OpenStep, begins_at: int) -> bool:
    """Whether an attempt that begins then would begin too late."""
    return retry.window is not None and begins_at - step.first_started_at > retry.window / _MICROSECOND
