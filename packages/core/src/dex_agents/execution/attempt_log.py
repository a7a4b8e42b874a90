"""Failed attempts in the log, so that operators see why without opening a session."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from dex_agents.execution.runner_calls import is_attempt_cancelled
from dex_agents.runner import ToolExecutionError
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
            logger.warning(
                "%s%s failed in session %r: %s, step execution %d, attempt %d",
                what,
                _named(tool_name),
                activity.flow_id,
                turn_id,
                activity.step_execution_id,
                activity.attempt,
                exc_info=True,
                extra=_fields(activity, turn_id, tool_name),
            )
        raise


def log_failure_for_model(error: ToolExecutionError, activity: Activity, turn_id: str, tool_name: str) -> None:
    """Note that a tool failed on purpose, with a text for the model; no attempt failed, so it is no warning."""
    logger.info(
        "tool call%s reported a failure to the model in session %r: %s, step execution %d, attempt %d",
        _named(tool_name),
        activity.flow_id,
        turn_id,
        activity.step_execution_id,
        activity.attempt,
        exc_info=error,
        extra=_fields(activity, turn_id, tool_name),
    )


def log_refused_result(what: str, error: str, activity: Activity, turn_id: str) -> None:
    """Log that the session cannot use what the runner returned, where that is an outcome and not an exception."""
    logger.warning(
        "%s returned what cannot be used in session %r: %s, step execution %d, attempt %d: %s",
        what,
        activity.flow_id,
        turn_id,
        activity.step_execution_id,
        activity.attempt,
        error,
        extra=_fields(activity, turn_id, None),
    )


def _named(tool_name: str | None) -> str:
    return "" if tool_name is None else f" {tool_name!r}"


def _fields(activity: Activity, turn_id: str, tool_name: str | None) -> dict[str, object]:
    return {
        "session_id": activity.flow_id,
        "turn_id": turn_id,
        "step_execution_id": activity.step_execution_id,
        "attempt": activity.attempt,
        "tool_name": tool_name,
    }
