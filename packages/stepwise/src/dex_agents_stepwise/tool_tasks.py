"""Remote work that a function tool starts and the session polls: what polling and cancelling functions receive."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from dex_agents import (
    AgentEventWriter,
    AgentToolCall,
    QuestionAnswer,
    ToolEffect,
    ToolExecutionError,
    ToolTaskCancellation,
    ToolTaskPoll,
)
from dex_agents.session.texts import MISSING_TOOL_TASK_POLLER
from dex_agents_stepwise.application_function import ApplicationFunction
from dex_agents_stepwise.tool_call_context import DroppedEvents, no_heartbeat

__all__ = [
    "MissingToolTaskPollerError",
    "ToolTaskContext",
    "ToolTaskFunction",
    "context_of_cancellation",
    "context_of_poll",
    "missing_task_poller",
    "task_function",
]


class MissingToolTaskPollerError(Exception):
    """A write tool started remote work and has no `poll_task`; trying again could start it twice."""

    is_retryable = False

    def __init__(self) -> None:
        super().__init__(MISSING_TOOL_TASK_POLLER)


def missing_task_poller(call: AgentToolCall) -> Exception:
    """What to raise for a call whose remote work nobody can follow, so that its effect decides what is recorded."""
    return (
        ToolExecutionError(MISSING_TOOL_TASK_POLLER) if call.effect is ToolEffect.READ else MissingToolTaskPollerError()
    )


@dataclass(frozen=True, kw_only=True)
class ToolTaskContext:
    """One poll of a tool's remote task, or the request to stop it.

    Only the task ID is required, so that a unit test can call the functions with a context of its own.

    Attributes:
        task_id: What the tool returned in `ToolTaskStarted`.
        continuation: The text of the question that was just answered, else of the latest `ToolTaskPending`.
        pending_answer: How the task's latest question ended, on the poll right after it: `answered`, `declined` or
            `deadline_passed`. A retried attempt of that poll gets it again.
        input_answers: How all of the call's questions ended, oldest first.
        arguments: The arguments object the tool ran with, as JSON values.
        idempotency_key: The call's key.
        attempt: The attempt of this poll or cancellation, from 1.
        flow_id: The session's ID.
        turn_id: The turn.
        tool_call_id: The session's ID of the call.
        events: Live events; best effort, never waits. Those of a cancellation are dropped.
        heartbeat: Says that the attempt lives. The session does so every 20 seconds by itself.
        deadline: When the attempt times out, aware UTC; None without a limit.
    """

    task_id: str
    continuation: str | None = None
    pending_answer: QuestionAnswer | None = None
    input_answers: tuple[QuestionAnswer, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str = ""
    attempt: int = 1
    flow_id: str = ""
    turn_id: str = ""
    tool_call_id: str = ""
    events: AgentEventWriter = field(default_factory=DroppedEvents)
    heartbeat: Callable[[], None] = no_heartbeat
    deadline: datetime | None = None


ToolTaskFunction: TypeAlias = Callable[[ToolTaskContext], object]
"""A function of the context, sync or async."""


def task_function(tool_name: str, argument: str, function: object) -> ApplicationFunction | None:
    """How to call a tool's `poll_task` or `cancel_task`.

    Raises:
        TypeError: It cannot be called with a `ToolTaskContext`; names the tool and the argument.
    """
    if function is None:
        return None
    if not callable(function):
        raise TypeError(f"tool {tool_name!r}: {argument} must be a function, not {function!r}")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TypeError(
            f"tool {tool_name!r}: {argument} is called with one argument, the ToolTaskContext: {error}"
        ) from error
    return ApplicationFunction.of(function, tool_name)


def context_of_poll(poll: ToolTaskPoll) -> ToolTaskContext:
    """The context of a poll."""
    return ToolTaskContext(
        task_id=poll.tool_call.task_id or "",
        continuation=poll.tool_call.input_continuation,
        pending_answer=poll.pending_answer,
        input_answers=poll.input_answers,
        arguments=json.loads(poll.tool_call.arguments_to_run),
        idempotency_key=poll.idempotency_key,
        attempt=poll.attempt,
        flow_id=poll.flow_id,
        turn_id=poll.turn_id,
        tool_call_id=poll.tool_call.tool_call_id,
        events=poll.events,
        heartbeat=poll.heartbeat,
        deadline=poll.deadline,
    )


def context_of_cancellation(cancellation: ToolTaskCancellation) -> ToolTaskContext:
    """The context of a cancellation."""
    return ToolTaskContext(
        task_id=cancellation.tool_call.task_id or "",
        continuation=cancellation.tool_call.input_continuation,
        arguments=json.loads(cancellation.tool_call.arguments_to_run),
        idempotency_key=cancellation.idempotency_key,
        attempt=cancellation.attempt,
        flow_id=cancellation.flow_id,
        turn_id=cancellation.turn_id,
        tool_call_id=cancellation.tool_call.tool_call_id,
        deadline=cancellation.deadline,
    )
