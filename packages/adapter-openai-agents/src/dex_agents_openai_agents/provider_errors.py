"""Errors of the model's provider in the session's terms: what another attempt can mend, and when to make it."""

from __future__ import annotations

from collections.abc import Iterator

import openai

from dex_agents import TurnRefusedError

__all__ = ["ProviderBusyError", "as_session_error"]

# The request itself is at fault: the same one would be refused again. 408, 409 and 429 may pass.
_REFUSING_STATUSES = frozenset({400, 401, 403, 404, 413, 415, 422})


class ProviderBusyError(Exception):
    """The provider asked to wait before the next request.

    Args:
        error: What its client raised.
        retry_after_seconds: How long.
    """

    def __init__(self, error: Exception, retry_after_seconds: float) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.retry_after_seconds = retry_after_seconds


def as_session_error(error: Exception) -> Exception:
    """The error that the session should see in place of one that a model call raised."""
    for cause in _chain(error):
        if not isinstance(cause, openai.APIStatusError):
            continue
        if cause.status_code in _REFUSING_STATUSES:
            return TurnRefusedError(f"the model's provider refused the request: {cause}")
        seconds = _retry_after(cause)
        if seconds is not None:
            return ProviderBusyError(cause, seconds)
    return error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _retry_after(error: openai.APIStatusError) -> float | None:
    """The seconds the response names; a date is left to the session's own backoff, which needs no clock here."""
    headers = error.response.headers
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * factor
        except ValueError:
            continue
        if seconds >= 0:
            return seconds
    return None
