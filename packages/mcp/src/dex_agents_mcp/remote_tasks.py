"""Long-running work on a server: the tasks of 2026-07-28 and those of 2025-11-25, read and steered alike."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dex_agents import ToolExecutionError
from dex_agents_mcp.connection import Connection
from dex_agents_mcp.errors import McpServerResponseError, McpToolCallInterruptedError

__all__ = [
    "TERMINAL_STATUSES",
    "RemoteTask",
    "cancel_task",
    "created_task",
    "finished_task_result",
    "get_task",
    "next_poll_interval",
    "update_task",
]

TERMINAL_STATUSES = frozenset({"completed", "failed", "cancelled"})
DEFAULT_POLL_INTERVAL_SECONDS = 1.0
MAX_BACKED_OFF_INTERVAL_SECONDS = 60.0


class RemoteTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of a task.

    Attributes:
        task_id: The server's ID.
        status: `working`, `input_required`, `completed`, `failed`, `cancelled`, or something newer.
        status_message: The server's words.
        poll_interval: Seconds the server wants between polls.
        expires_at: When the server forgets it, as far as it says.
        input_requests: What it asks for, by key.
        result: The result of a completed task, where the server sends it along.
        error: The JSON-RPC error of a failed task, where the server sends it along.
    """

    task_id: str
    status: str = "working"
    status_message: str | None = None
    poll_interval: float | None = None
    expires_at: datetime | None = None
    input_requests: dict[str, Any] = {}
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


def created_task(result: Mapping[str, Any], *, is_modern: bool) -> RemoteTask | None:
    """The task that a server started instead of answering a call; None when it answered."""
    view = result if is_modern and result.get("resultType") == "task" else result.get("task")
    if is_modern and view is not result:
        return None
    return _read_task(view)


def _read_task(view: Any) -> RemoteTask | None:
    if not isinstance(view, Mapping) or not isinstance(view.get("taskId"), str) or not view["taskId"]:
        return None
    status, message = view.get("status"), view.get("statusMessage")
    requests = view.get("inputRequests")
    result, error = view.get("result"), view.get("error")
    return RemoteTask(
        task_id=view["taskId"],
        status=status if isinstance(status, str) else "working",
        status_message=message if isinstance(message, str) else None,
        poll_interval=_seconds(view.get("pollIntervalMs", view.get("pollInterval"))),
        expires_at=_expiry(view),
        input_requests=dict(requests) if isinstance(requests, Mapping) else {},
        result=dict(result) if isinstance(result, Mapping) else None,
        error=dict(error) if isinstance(error, Mapping) else None,
    )


def _seconds(milliseconds: Any) -> float | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or milliseconds <= 0:
        return None
    return float(milliseconds) / 1000


def _expiry(view: Mapping[str, Any]) -> datetime | None:
    ttl = _seconds(view.get("ttlMs", view.get("ttl")))
    created = view.get("createdAt")
    if ttl is None or not isinstance(created, str):
        return None
    try:
        timestamp = datetime.fromisoformat(created).astimezone(UTC).timestamp() + ttl
        return datetime.fromtimestamp(timestamp, UTC)
    except (ValueError, OverflowError, OSError):
        return None


async def get_task(connection: Connection, task_id: str, *, timeout: float) -> RemoteTask:
    """Ask how a task is.

    Raises:
        McpServerResponseError: The server does not know it.
        McpToolCallInterruptedError: It did not answer, or with something that is no task.
    """
    raw = await connection.request("tasks/get", {"taskId": task_id}, timeout=timeout)
    task = _read_task({"taskId": task_id, **raw} if "status" in raw else raw.get("task"))
    if task is None:
        raise McpToolCallInterruptedError(connection.server.name, "its answer to tasks/get cannot be read")
    return task


async def finished_task_result(connection: Connection, task: RemoteTask, *, timeout: float) -> dict[str, Any]:
    """The result of a task with a terminal status, as of a call.

    Raises:
        ToolExecutionError: The task failed or was cancelled.
        McpServerResponseError: The server no longer knows the task.
        McpToolCallInterruptedError: The server did not answer.
    """
    if task.status == "cancelled":
        raise ToolExecutionError(task.status_message or "the MCP server cancelled the task")
    if connection.is_modern:
        if task.status == "completed" and task.result is not None:
            return task.result
        words = (task.error or {}).get("message")
        raise ToolExecutionError(
            words if isinstance(words, str) and words else task.status_message or f"the task {task.status}"
        )
    try:
        return await connection.request("tasks/result", {"taskId": task.task_id}, timeout=timeout)
    except McpServerResponseError as error:
        if task.status == "failed":
            raise ToolExecutionError(str(error)) from error
        raise


async def update_task(
    connection: Connection, task_id: str, responses: Mapping[str, Mapping[str, Any]], *, timeout: float
) -> None:
    """Answer what a task asked for. Servers ignore keys that are answered already."""
    await connection.request("tasks/update", {"taskId": task_id, "inputResponses": dict(responses)}, timeout=timeout)


async def cancel_task(connection: Connection, task_id: str, *, timeout: float) -> None:
    """Ask the server to stop a task; an error it answers says that there is nothing to stop.

    Raises:
        McpToolCallInterruptedError: The server did not answer.
    """
    try:
        await connection.request("tasks/cancel", {"taskId": task_id}, timeout=timeout)
    except McpServerResponseError:
        return
    except McpToolCallInterruptedError as error:
        if error.response is None:
            raise


def next_poll_interval(task: RemoteTask, previous: float | None, now: datetime) -> float:
    """Seconds until the next poll: what the server wants, or longer the longer the task runs, up to a minute.

    It never grows beyond half of the time the server still keeps the task.

    Args:
        task: The task.
        previous: The latest interval in seconds; None before the first.
        now: The time, aware.
    """
    wanted = task.poll_interval or DEFAULT_POLL_INTERVAL_SECONDS
    backed_off = wanted if previous is None else min(2 * previous, MAX_BACKED_OFF_INTERVAL_SECONDS)
    interval = max(wanted, backed_off)
    if task.expires_at is None:
        return interval
    remaining = (task.expires_at - now).total_seconds()
    return max(wanted, min(interval, remaining / 2)) if remaining > 0 else wanted
