"""Remote work that a tool starts and the session polls, so that nothing waits in between."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dex_agents import (
    ToolExecutionError,
    ToolExecutionResult,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    run_sync_call,
)
from dex_agents.session.texts import unknown_tool_text

__all__ = ["RemoteTask", "RemoteTasks"]

PollAnswer: TypeAlias = ToolTaskPollOutcome | str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTask:
    """How the remote work of one tool is followed; the functions are async, or sync and run in a thread.

    Attributes:
        poll: Asks once how the work is: the result's text, a `ToolTaskPending`, or a `ToolInputRequested`. It raises
            `ToolExecutionError` when the work failed; any other exception repeats the poll.
        cancel: Stops the work, best effort and idempotent by its ID; None where nothing can stop it.
    """

    poll: Callable[[ToolTaskPoll], PollAnswer | Awaitable[PollAnswer]]
    cancel: Callable[[ToolTaskCancellation], Awaitable[None] | None] | None = None


class RemoteTasks:
    """The remote tasks of a graph's tools.

    Args:
        tasks: By name of the tool that starts them.

    Raises:
        TypeError: One is no `RemoteTask`; names its tool.
    """

    def __init__(self, tasks: Mapping[str, RemoteTask]) -> None:
        for name, task in tasks.items():
            if not isinstance(task, RemoteTask):
                raise TypeError(f"remote_tasks[{name!r}] must be a RemoteTask, not {type(task).__name__}")
        self._tasks = dict(tasks)

    def __contains__(self, tool_name: object) -> bool:
        return tool_name in self._tasks

    async def poll(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask once how a task is.

        Raises:
            ToolExecutionError: The work failed, or this release does not know the tool's tasks.
            Exception: The poll failed.
        """
        name = poll.tool_call.tool_name
        if name not in self._tasks:
            raise ToolExecutionError(unknown_tool_text(name))
        answer: PollAnswer = await _call(self._tasks[name].poll, poll)
        return ToolExecutionResult(output=answer) if isinstance(answer, str) else answer

    async def cancel(self, cancellation: ToolTaskCancellation) -> None:
        """Stop a task, where something can stop it."""
        task = self._tasks.get(cancellation.tool_call.tool_name)
        if task is not None and task.cancel is not None:
            await _call(task.cancel, cancellation)


async def _call(function: Callable[[Any], Any], argument: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(argument)
    answer = await run_sync_call(function, argument)
    return await answer if inspect.isawaitable(answer) else answer
