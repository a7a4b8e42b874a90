"""Timeouts, attempts and failure routes of the session's ActivitySteps."""

from __future__ import annotations

from datetime import timedelta

from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.step_types import RECORD_TOOL_FAILURE, RECORD_TOOL_OUTCOME_UNKNOWN
from dex_agents.session.tool_values import ToolEffect
from dex_flow import Retry, StepOptions

__all__ = [
    "cancel_task_options",
    "poll_options",
    "repeatable_options",
    "single_attempt_options",
    "unfinished_turn_options",
]

ATTEMPT_TIMEOUT = timedelta(minutes=15)
HEARTBEAT_TIMEOUT = timedelta(minutes=2)
RETRY_WINDOW = timedelta(minutes=30)
ATTEMPTS = 3
BACKOFF_CAP = timedelta(seconds=30)
CANCEL_TASK_TIMEOUT = timedelta(seconds=30)
CANCEL_TASK_WINDOW = timedelta(minutes=2)
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


def poll_options(effect: ToolEffect, backoff: timedelta) -> StepOptions:
    """Of a poll of a task, which may repeat whatever the tool's effect is; a task that is lost follows the effect."""
    route = RECORD_TOOL_FAILURE if EFFECT_RULES[effect].may_repeat else RECORD_TOOL_OUTCOME_UNKNOWN
    return repeatable_options(route, backoff)


def cancel_task_options() -> StepOptions:
    """Of asking for an abandoned task to be stopped: soon, or not at all."""
    return StepOptions(
        attempt_timeout=CANCEL_TASK_TIMEOUT,
        retry=Retry(attempts=ATTEMPTS, window=CANCEL_TASK_WINDOW),
        failure_route=RECORD_TOOL_OUTCOME_UNKNOWN,
    )


def unfinished_turn_options(failure_route: str) -> StepOptions:
    """Of building an unfinished turn's messages, which does no I/O; only a dying worker makes it fail."""
    return StepOptions(
        attempt_timeout=UNFINISHED_TURN_TIMEOUT, retry=Retry(attempts=ATTEMPTS), failure_route=failure_route
    )
