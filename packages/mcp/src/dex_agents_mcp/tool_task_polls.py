"""Polls and stops the tasks that became tool tasks of the session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from dex_agents import (
    ToolExecutionError,
    ToolInputRequested,
    ToolTaskCancellation,
    ToolTaskPending,
    ToolTaskPoll,
    ToolTaskPollOutcome,
)
from dex_agents_mcp.call_attempt import write_task_status
from dex_agents_mcp.call_results import canonical_json, is_call_result, tool_execution_result
from dex_agents_mcp.connection import Connection
from dex_agents_mcp.errors import McpServerResponseError, McpTaskLostError, McpToolCallInterruptedError
from dex_agents_mcp.input_forms import InputForm, next_question, unanswerable_request_error, with_answer
from dex_agents_mcp.remote_tasks import (
    TERMINAL_STATUSES,
    RemoteTask,
    cancel_task,
    finished_task_result,
    get_task,
    next_poll_interval,
    update_task,
)
from dex_agents_mcp.server_client import McpServerClient
from dex_agents_mcp.source_options import McpSourceOptions
from dex_agents_mcp.tracing import remote_parent

__all__ = ["poll_task", "stop_task"]


class _TaskProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one poll leaves for the next.

    Attributes:
        status: The latest status.
        interval: The latest poll interval in seconds.
        delivered: Requests of the task that are answered and may still be shown, by key in canonical JSON.
        form: What is being asked.
    """

    status: str | None = None
    interval: float | None = None
    delivered: dict[str, str] = {}
    form: InputForm | None = None


async def poll_task(client: McpServerClient, poll: ToolTaskPoll, options: McpSourceOptions) -> ToolTaskPollOutcome:
    """Ask the server once how a task is, and hand over an answer that waits.

    Args:
        client: Talks to the task's server.
        poll: The poll.
        options: Time limits.

    Raises:
        ToolExecutionError: The task failed.
        McpTaskLostError: The server no longer knows the task.
        McpServerUnreachableError: There was no connection; another attempt follows.
        McpToolCallInterruptedError: The server did not answer; another attempt follows.
    """
    continuation = poll.tool_call.input_continuation
    progress = _TaskProgress() if continuation is None else msgspec.json.decode(continuation, type=_TaskProgress)
    if poll.pending_answer is not None and progress.form is not None:
        progress = replace(progress, form=with_answer(progress.form, poll.pending_answer))
        assert progress.form is not None
        if not progress.form.is_complete:
            return next_question(progress.form, _encode(progress))
    with remote_parent(poll.tool_call.trace_context):
        return await client.converse(lambda connection: _PollConversation(connection, poll, options).run(progress))


async def stop_task(client: McpServerClient, cancellation: ToolTaskCancellation, options: McpSourceOptions) -> None:
    """Ask the server to stop a task; whatever it answers, there is nothing more to do.

    Raises:
        McpServerUnreachableError: There was no connection.
        McpToolCallInterruptedError: The server did not answer.
    """
    task_id = cancellation.tool_call.task_id or ""
    timeout = options.request_timeout.total_seconds()
    await client.converse(lambda connection: cancel_task(connection, task_id, timeout=timeout))


def _encode(progress: _TaskProgress) -> str:
    return msgspec.json.encode(progress).decode()


class _PollConversation:
    """One poll over one connection."""

    def __init__(self, connection: Connection, poll: ToolTaskPoll, options: McpSourceOptions) -> None:
        self._connection = connection
        self._poll = poll
        self._options = options
        self._timeout = options.request_timeout.total_seconds()
        self._task_id = poll.tool_call.task_id or ""

    async def run(self, progress: _TaskProgress) -> ToolTaskPollOutcome:
        try:
            task = await get_task(self._connection, self._task_id, timeout=self._timeout)
            self._write_status(task, progress.status)
            if task.status in TERMINAL_STATUSES:
                return await self._finish(task)
            if progress.form is not None:
                progress = await self._deliver(task, progress.form, progress)
        except McpServerResponseError as error:
            raise McpTaskLostError(self._connection.server.name, str(error)) from error
        progress = _without_gone_requests(task, progress)
        if task.status == "input_required":
            undelivered = {
                key: request
                for key, request in task.input_requests.items()
                if progress.delivered.get(key) != canonical_json(request)
            }
            if undelivered or not self._connection.is_modern:
                return await self._ask(undelivered, progress)
        interval = next_poll_interval(task, progress.interval, datetime.now(UTC))
        if task.status == "input_required":
            interval = next_poll_interval(task, None, datetime.now(UTC))  # it goes on as soon as it read the answer
        pending = replace(progress, status=task.status, interval=interval)
        return ToolTaskPending(poll_interval_seconds=interval, continuation=_encode(pending))

    async def _finish(self, task: RemoteTask) -> ToolTaskPollOutcome:
        result = await finished_task_result(self._connection, task, timeout=self._timeout)
        if not is_call_result(result):
            raise McpToolCallInterruptedError(self._connection.server.name, "the result of its task cannot be read")
        return tool_execution_result(self._poll.tool_call.tool_name, result, self._options.max_output_characters)

    async def _deliver(self, task: RemoteTask, form: InputForm, progress: _TaskProgress) -> _TaskProgress:
        """Hand over what the task still asks in the same words; anything else is over, or new."""
        asked = {key: canonical_json(form.requests[key]) for key in form.responses}
        due = {
            key: response
            for key, response in form.responses.items()
            if key in task.input_requests and canonical_json(task.input_requests[key]) == asked[key]
        }
        if due:
            await update_task(self._connection, self._task_id, due, timeout=self._timeout)
        return replace(progress, form=None, delivered={**progress.delivered, **asked})

    async def _ask(self, requests: dict[str, Any], progress: _TaskProgress) -> ToolInputRequested:
        error = unanswerable_request_error(requests)
        if not requests:
            error = ToolExecutionError(
                "the MCP server asked for input that this agent session cannot provide yet (it wants it on a live "
                "connection)"
            )
        if error is not None:
            await cancel_task(self._connection, self._task_id, timeout=self._timeout)
            raise error
        form = InputForm(requests=requests)
        asking = replace(progress, status="input_required", form=form)
        return next_question(form, _encode(asking))

    def _write_status(self, task: RemoteTask, previous: str | None) -> None:
        if task.status == previous:
            return
        call = self._poll.tool_call
        write_task_status(
            self._poll.events,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            task_id=self._task_id,
            status=task.status,
            message=task.status_message,
        )


def _without_gone_requests(task: RemoteTask, progress: _TaskProgress) -> _TaskProgress:
    """A request that is no longer shown is over, so that a later one in the same words is a new one."""
    shown = {key: request for key, request in progress.delivered.items() if key in task.input_requests}
    return replace(progress, delivered=shown)
