"""Errors of a model's provider in the session's terms: what another attempt can mend, and when to make it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dex_agents import TurnRefusedError

__all__ = ["as_session_error"]

# These may pass by themselves; any other 4xx says that the request itself is at fault.
_PASSING_STATUSES = frozenset({408, 409, 425, 429})


def as_session_error(error: Exception) -> Exception:
    """The error that the session should see in place of one that a model call raised.

    Providers' clients are told by what they have in common: a `status_code`, and a `response` with headers. An error
    that names a time to wait gets it as `retry_after_seconds`.
    """
    for cause in _causes(error):
        status = getattr(cause, "status_code", None)
        if not isinstance(status, int):
            continue
        if 400 <= status < 500 and status not in _PASSING_STATUSES:
            return TurnRefusedError(f"{type(cause).__name__}: {cause}")
        seconds = _retry_after(getattr(getattr(cause, "response", None), "headers", None))
        if seconds is not None:
            error.retry_after_seconds = seconds  # type: ignore[attr-defined]
        return error
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _retry_after(headers: Any) -> float | None:
    """The seconds the response names; a date is left to the session's own backoff, which needs no clock here."""
    if headers is None:
        return None
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * factor
        except ValueError:
            continue
        if seconds >= 0:
            return seconds
    return None
