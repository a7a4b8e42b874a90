"""Runs a call on its server: sent once, asked about when the server needs the user, followed when it is a task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import mcp_types as types
import msgspec

from dex_agents import DeferredToolOutcome, ToolExecutionError, ToolTaskStarted
from dex_agents_mcp.call_attempt import CallAttempt, ProgressEvents, write_task_status
from dex_agents_mcp.call_results import canonical_json, is_call_result, tool_execution_result
from dex_agents_mcp.connection import CALL_TOOL, Connection
from dex_agents_mcp.errors import McpServerResponseError, McpServerUnreachableError, McpToolCallInterruptedError
from dex_agents_mcp.input_forms import InputForm, next_question, unanswerable_request_error, with_answer
from dex_agents_mcp.listed_tools import UnusableToolError, read_tool
from dex_agents_mcp.remote_tasks import (
    DEFAULT_POLL_INTERVAL_SECONDS,
    TERMINAL_STATUSES,
    RemoteTask,
    cancel_task,
    created_task,
    finished_task_result,
    get_task,
    next_poll_interval,
)
from dex_agents_mcp.server_client import McpServerClient
from dex_agents_mcp.server_configs import McpStdioServer
from dex_agents_mcp.server_listing import list_tools_of_server
from dex_agents_mcp.source_options import McpSourceOptions
from dex_agents_mcp.tracing import remote_parent

__all__ = ["run_call"]

MAX_INPUT_ROUNDS = 10


class _AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of the server, in canonical JSON, and the answer it got."""

    key: str
    request: str
    response: dict[str, Any]


class _CallInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored with a question of a call.

    Attributes:
        form: What the server asks for now.
        request_state: What it wants back with the answers.
        answered: What it asked for in earlier rounds.
    """

    form: InputForm
    request_state: str | None = None
    answered: tuple[_AnsweredRequest, ...] = ()

    def all_answered(self) -> tuple[_AnsweredRequest, ...]:
        """The earlier rounds, and what the form has so far."""
        current = [
            _AnsweredRequest(key=key, request=canonical_json(self.form.requests[key]), response=response)
            for key, response in self.form.responses.items()
        ]
        return (*self.answered, *current)


async def run_call(client: McpServerClient, call: CallAttempt, options: McpSourceOptions) -> DeferredToolOutcome:
    """Run one attempt of a call.

    Args:
        client: Talks to the call's server.
        call: The call.
        options: Time limits.

    Raises:
        ToolExecutionError: The server refused the call, the tool failed, or the call was never sent.
        McpToolCallInterruptedError: It was sent, and nobody knows what came of it.
    """
    if call.checkpoint is not None and call.save_checkpoint is not None:
        return ToolTaskStarted(task_id=call.checkpoint, poll_interval_seconds=DEFAULT_POLL_INTERVAL_SECONDS)
    stored: _CallInput | None = None
    if call.continuation is not None and call.answers:
        stored = msgspec.json.decode(call.continuation, type=_CallInput)
        stored = msgspec.structs.replace(stored, form=with_answer(stored.form, call.answers[-1]))
        if not stored.form.is_complete:
            return next_question(stored.form, _encode(stored))
    try:
        with remote_parent(call.trace_context):
            return await client.converse(lambda connection: _CallConversation(connection, call, options).run(stored))
    except McpServerUnreachableError as error:
        raise ToolExecutionError(f"The tool {call.tool_name} was not run: {error}") from error
    except McpServerResponseError as error:
        raise ToolExecutionError(str(error)) from error


def _encode(stored: _CallInput) -> str:
    return msgspec.json.encode(stored).decode()


class _CallConversation:
    """One call over one connection."""

    def __init__(self, connection: Connection, call: CallAttempt, options: McpSourceOptions) -> None:
        self._connection = connection
        self._call = call
        self._options = options
        self._progress = ProgressEvents(call)
        self._timeout = options.call_timeout.total_seconds()

    async def run(self, stored: _CallInput | None) -> DeferredToolOutcome:
        self._connection.use_parameter_headers(self._call.reference.parameter_headers)
        try:
            result = await self._call_with_answers(stored)
        finally:
            self._progress.write_latest()
        if isinstance(result, _CallInput):
            if not self._call.can_ask:
                raise ToolExecutionError(
                    "the MCP server asked for input that this agent session cannot provide yet (elicitation/create)"
                )
            return next_question(result.form, _encode(result))
        task = created_task(result, is_modern=self._connection.is_modern)
        if task is not None:
            return await self._follow(task)
        self._check_readable(result)
        return tool_execution_result(self._call.tool_name, result, self._options.max_output_characters)

    async def _call_with_answers(self, stored: _CallInput | None) -> dict[str, Any] | _CallInput:
        """The server's answer once it asks for nothing that is not answered, else what it asks for.

        A request state is a secret of the server, which expires, and which another process of a stdio server does not
        know: then the call starts over, and gets the same answers to the same questions.
        """
        base = self._parameters()
        answered = () if stored is None else stored.all_answered()
        responses = {(item.key, item.request): item.response for item in answered}
        params = base
        if stored is not None and not isinstance(self._connection.server, McpStdioServer):
            params = _with_input(base, stored.form.responses, stored.request_state)
        has_listed = False
        for _ in range(MAX_INPUT_ROUNDS + len(answered)):
            try:
                result = await self._send(params)
            except McpServerResponseError as error:
                # Refused before the tool ran, so that another request cannot repeat anything.
                if error.code == types.INVALID_PARAMS and params is not base:
                    params = base
                    continue
                if error.code == types.HEADER_MISMATCH and not has_listed:
                    has_listed = True
                    await self._learn_parameter_headers()
                    continue
                raise
            if not self._connection.is_modern or result.get("resultType") != "input_required":
                return result
            requests, state = self._input_requests(result)
            known = {
                key: response
                for key, request in requests.items()
                if (response := responses.get((key, canonical_json(request)))) is not None
            }
            if len(known) < len(requests):
                if len(answered) >= MAX_INPUT_ROUNDS:
                    break
                return _CallInput(
                    form=InputForm(requests=requests, responses=known), request_state=state, answered=answered
                )
            params = _with_input(base, known, state)
        raise ToolExecutionError(f"the MCP server asked for input more than {MAX_INPUT_ROUNDS} times")

    def _parameters(self) -> dict[str, Any]:
        params = self._call.parameters()
        if self._connection.is_modern or not self._call.reference.requires_task or not self._supports_task_calls():
            return params
        ttl = self._options.task_ttl if self._can_be_polled_elsewhere() else 4 * self._options.task_wait_timeout
        return {**params, "task": {"ttl": int(ttl.total_seconds() * 1000)}}

    def _supports_task_calls(self) -> bool:
        capability: Any = self._connection.capabilities
        for name in ("tasks", "requests", "tools", "call"):
            capability = capability.get(name) if isinstance(capability, Mapping) else None
        return capability is not None

    def _can_be_polled_elsewhere(self) -> bool:
        return self._call.save_checkpoint is not None and not self._connection.is_session_bound

    async def _send(self, params: Mapping[str, Any]) -> dict[str, Any]:
        on_progress = None if self._call.events is None else self._progress.on_progress
        return await self._connection.request(CALL_TOOL, params, timeout=self._timeout, on_progress=on_progress)

    async def _learn_parameter_headers(self) -> None:
        entries, _ = await list_tools_of_server(self._connection, self._timeout)
        for entry in entries:
            if isinstance(entry, Mapping) and entry.get("name") == self._call.reference.tool:
                try:
                    tool = read_tool(self._connection.server, entry)
                except UnusableToolError as error:
                    raise ToolExecutionError(str(error)) from error
                self._connection.use_parameter_headers(tool.parameter_headers)

    def _input_requests(self, result: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        requests, state = result.get("inputRequests"), result.get("requestState")
        if not isinstance(requests, Mapping):
            requests = {}
        if not requests and not isinstance(state, str):
            raise McpToolCallInterruptedError(self._connection.server.name, "it asks for input, but not for what")
        if (error := unanswerable_request_error(requests)) is not None:
            raise error
        return dict(requests), state if isinstance(state, str) else None

    def _check_readable(self, result: Mapping[str, Any]) -> None:
        kind = result.get("resultType", "complete")
        if (kind == "complete" or not self._connection.is_modern) and is_call_result(result):
            return
        raise McpToolCallInterruptedError(self._connection.server.name, "its answer to tools/call cannot be read")

    async def _follow(self, task: RemoteTask) -> DeferredToolOutcome:
        if self._can_be_polled_elsewhere():
            assert self._call.save_checkpoint is not None
            await self._call.save_checkpoint(task.task_id)
            interval = next_poll_interval(task, None, datetime.now(UTC))
            return ToolTaskStarted(task_id=task.task_id, poll_interval_seconds=interval)
        try:
            return await self._wait_for(task)
        except McpServerResponseError as error:
            raise McpToolCallInterruptedError(
                self._connection.server.name, f"it no longer knows the task it started: {error}"
            ) from error

    async def _wait_for(self, task: RemoteTask) -> DeferredToolOutcome:
        """Poll on this connection, which the task may not outlive."""
        timeout = self._options.request_timeout.total_seconds()
        wait = self._options.task_wait_timeout.total_seconds()
        ends_at = time.monotonic() + wait
        interval: float | None = None
        status = ""
        while task.status not in TERMINAL_STATUSES:
            if task.status != status:
                status = task.status
                self._write_status(task)
            if task.status == "input_required":
                await cancel_task(self._connection, task.task_id, timeout=timeout)
                raise ToolExecutionError(
                    "the MCP server asked for input that this agent session cannot provide yet "
                    "(a task that ends with its connection)"
                )
            interval = next_poll_interval(task, interval, datetime.now(UTC))
            remaining = ends_at - time.monotonic()
            if remaining <= 0:
                raise McpToolCallInterruptedError(
                    self._connection.server.name, f"its task still runs after {wait:g} seconds"
                )
            await asyncio.sleep(min(interval, remaining))
            if self._call.heartbeat is not None:
                self._call.heartbeat()
            task = await get_task(self._connection, task.task_id, timeout=timeout)
        self._write_status(task)
        result = await finished_task_result(self._connection, task, timeout=timeout)
        if not is_call_result(result):
            raise McpToolCallInterruptedError(self._connection.server.name, "the result of its task cannot be read")
        return tool_execution_result(self._call.tool_name, result, self._options.max_output_characters)

    def _write_status(self, task: RemoteTask) -> None:
        write_task_status(
            self._call.events,
            tool_call_id=self._call.tool_call_id,
            tool_name=self._call.tool_name,
            task_id=task.task_id,
            status=task.status,
            message=task.status_message,
        )


def _with_input(
    base: Mapping[str, Any], responses: Mapping[str, Mapping[str, Any]], state: str | None
) -> dict[str, Any]:
    params = {**base, "inputResponses": dict(responses)}
    return params if state is None else {**params, "requestState": state}
