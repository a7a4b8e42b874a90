"""Failed attempts in the log, so that operators see why without opening a session."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator

from dex_agents.execution.runner_calls import is_attempt_cancelled
from dex_agents.runner import ToolExecutionError
from dex_agents.session.sanitizer import sanitize_text
from dex_flow import Activity

__all__ = ["log_failed_attempt", "log_failure_for_model", "log_refused_result"]

logger = logging.getLogger("dex_agents.execution")


@contextlib.contextmanager
def log_failed_attempt(
    what: str,
    activity: Activity,
    turn_id: str,
    tool_name: str | None = None,
    *,
    passed_on: type[Exception] | None = None,
) -> Iterator[None]:
    """Log what the block raises once, with its traceback, and let it pass.

    Nothing but names goes into the line: neither arguments nor results, which may hold secrets; what the exception's
    own text says stays in its traceback. A cancelled attempt did not fail, whatever its cancellation made of it.

    Args:
        what: What was attempted, such as `tool call`.
        activity: The attempt.
        turn_id: The turn it belongs to.
        tool_name: The tool, when there is one.
        passed_on: An exception that is no failure of the attempt.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        is_passed_on = passed_on is not None and isinstance(error, passed_on)
        if not is_passed_on and not is_attempt_cancelled():
            _log(logging.WARNING, f"{what}{_named(tool_name)} failed", error, activity, turn_id, tool_name)
        raise


def log_failure_for_model(error: ToolExecutionError, activity: Activity, turn_id: str, tool_name: str) -> None:
    """Note that a tool failed on purpose, with a text for the model; no attempt failed, so it is no warning."""
    what = f"tool call{_named(tool_name)} reported a failure to the model"
    _log(logging.INFO, what, error, activity, turn_id, tool_name)


def log_refused_result(what: str, problem: str, activity: Activity, turn_id: str) -> None:
    """Log that the session cannot use what the runner returned, where that is an outcome and not an exception."""
    _log(logging.WARNING, f"{what} returned what cannot be used ({problem})", None, activity, turn_id, None)


def _named(tool_name: str | None) -> str:
    return "" if tool_name is None else f" {tool_name!r}"


def _log(
    level: int, what: str, error: BaseException | None, activity: Activity, turn_id: str, tool_name: str | None
) -> None:
    if not logger.isEnabledFor(level):
        return
    is_storable = error is None or _is_storable(error)
    logger.log(
        level,
        "%s in session %r: %s, step execution %d, attempt %d%s",
        what,
        activity.flow_id,
        turn_id,
        activity.step_execution_id,
        activity.attempt,
        "" if is_storable or error is None else f"\n{sanitize_text(_traceback(error))}",
        exc_info=error if is_storable else None,
        extra={
            "session_id": activity.flow_id,
            "turn_id": turn_id,
            "step_execution_id": activity.step_execution_id,
            "attempt": activity.attempt,
            "tool_name": tool_name,
        },
    )


def _is_storable(error: BaseException) -> bool:
    """Whether a handler that writes UTF-8 can write the traceback; with a lone surrogate it would lose the record."""
    text = _traceback(error)
    return sanitize_text(text) == text


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
