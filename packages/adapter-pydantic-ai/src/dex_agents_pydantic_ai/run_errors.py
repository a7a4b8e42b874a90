"""Which errors of the framework end a turn at once, and how long the next attempt must wait after the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelHTTPError,
    ModelRetry,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from dex_agents import TurnRefusedError

__all__ = ["AgentRunRefusedError", "error_text", "refusing_hopeless_errors", "response_refusals"]

# Requests that are wrong in themselves; the same request would be refused again.
_HOPELESS_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422})


class AgentRunRefusedError(TurnRefusedError):
    """The framework ended its run, and would do so again.

    Args:
        error: What it raised, or the text of that.
    """

    def __init__(self, error: BaseException | str) -> None:
        super().__init__(error if isinstance(error, str) else error_text(error))


def error_text(error: BaseException) -> str:
    """The name and the text of an error."""
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def refusing_hopeless_errors() -> Iterator[None]:
    """Turn errors that another attempt cannot cure into refusals; others say when to try again.

    Raises:
        AgentRunRefusedError: The agent or its limits are wrong, or the provider refuses the request for good.
    """
    try:
        yield
    except Exception as error:
        if _is_hopeless(error):
            raise AgentRunRefusedError(error) from error
        seconds = _retry_after_seconds(error)
        if seconds is not None:
            error.retry_after_seconds = seconds  # type: ignore[attr-defined]
        raise


@contextlib.contextmanager
def response_refusals() -> Iterator[None]:
    """Turn what the framework raises about a finished response into a refusal: its own limits of retries are used up.

    Raises:
        AgentRunRefusedError: The response cannot be used.
    """
    try:
        yield
    except UnexpectedModelBehavior as error:
        raise AgentRunRefusedError(error) from error


def _is_hopeless(error: BaseException) -> bool:
    if isinstance(error, FallbackExceptionGroup):
        return all(_is_hopeless(one) for one in error.exceptions)
    if isinstance(error, ModelHTTPError):
        return error.status_code in _HOPELESS_STATUSES
    if isinstance(error, UnexpectedModelBehavior):
        # A model hook used up the retries of the output.
        return isinstance(error.__cause__, ModelRetry)
    return isinstance(error, UserError | UsageLimitExceeded)


def _retry_after_seconds(error: BaseException) -> float | None:
    """The provider's `Retry-After` header in seconds."""
    if isinstance(error, FallbackExceptionGroup):
        waits = [_retry_after_seconds(one) for one in error.exceptions]
        return min((wait for wait in waits if wait is not None), default=None)
    response: Any = getattr(error.__cause__, "response", None)
    value = getattr(response, "headers", {}).get("retry-after")
    try:
        return None if value is None else max(0.0, float(value))
    except ValueError:  # a date; the session's own backoff is enough then
        return None
