"""One connection to one server, opened and closed in one task, for one conversation."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.client import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from dex_agents_mcp.errors import McpServerResponseError, McpToolCallInterruptedError
from dex_agents_mcp.http_watch import HttpWatch
from dex_agents_mcp.negotiation import negotiate
from dex_agents_mcp.raw_dispatcher import RawDispatcher
from dex_agents_mcp.secret_redaction import SecretRedactor
from dex_agents_mcp.server_configs import McpProtocol, McpServer, McpStdioServer
from dex_agents_mcp.transports import StderrTail, open_streams

__all__ = ["CALL_TOOL", "TASKS_EXTENSION", "Connection", "open_connection"]

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
CALL_TOOL = "tools/call"

#: Seconds for the end of a connection whose answer is there: a DELETE that hangs must not hold it.
CLOSE_TIMEOUT = 5.0

# Codes the SDK makes up when it got no answer, and the server's own internal error, which a gateway may send after the
# server ran the call.
_INTERRUPTED_CODES = frozenset(
    {types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT, types.PARSE_ERROR, types.INTERNAL_ERROR}
)
_LOCAL_CODES = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
_CLIENT = types.Implementation(name="dex-agents", version=version("dex-agents-mcp"))


class _Request(types.Request[dict[str, Any], str]):
    """A request of any method."""


class _TaskRequest(types.Request[dict[str, Any], str]):
    """A request about a task, which names it in a header."""

    name_param = "taskId"


class Connection:
    """A negotiated connection.

    Attributes:
        server: The server.
        has_sent_request: Whether a request of the conversation may have reached the server.
    """

    def __init__(
        self,
        server: McpServer,
        session: ClientSession,
        dispatcher: RawDispatcher,
        watch: HttpWatch,
        redactor: SecretRedactor,
    ) -> None:
        self.server = server
        self.has_sent_request = False
        self._session = session
        self._dispatcher = dispatcher
        self._watch = watch
        self._redactor = redactor

    @property
    def is_modern(self) -> bool:
        """Whether the server speaks 2026-07-28 here."""
        return self._session.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def is_session_bound(self) -> bool:
        """Whether the server forgets the tasks it started here when the connection ends."""
        if isinstance(self.server, McpStdioServer):
            return True
        return not self.is_modern and self._watch.session_id is not None

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the server says it can do, as JSON."""
        capabilities = self._session.server_capabilities
        if capabilities is None:
            return {}
        return capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)

    def use_parameter_headers(self, headers: Mapping[tuple[str, ...], str]) -> None:
        """Send these arguments of the tool that is called as headers too, where the protocol wants it."""
        is_http = not isinstance(self.server, McpStdioServer)
        self._dispatcher.parameter_headers = headers if is_http and self.is_modern else None

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout: float,
        on_progress: ProgressFnT | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the server's result as it is.

        Args:
            method: The JSON-RPC method.
            params: Its parameters.
            timeout: Seconds until the server is told that nobody waits any more.
            on_progress: Is told of the server's progress.

        Raises:
            McpServerResponseError: The server refused the request before it ran anything.
            McpToolCallInterruptedError: Nobody knows what came of it.
        """
        self._watch.forget(method)
        self.has_sent_request = True
        request_type = _TaskRequest if method.startswith("tasks/") else _Request
        try:
            await self._session.send_request(
                request_type(method=method, params=dict(params)),
                types.EmptyResult,  # the session's copy, which nobody reads
                request_read_timeout_seconds=timeout,
                progress_callback=on_progress,
            )
        except MCPError as error:
            if error.code == types.REQUEST_TIMEOUT:
                await self._watch.wait_until_cancelled()
            raise self._classified(error, method) from error
        except asyncio.CancelledError:
            await self._watch.wait_until_cancelled()
            raise
        result = self._dispatcher.raw_result
        assert result is not None
        return result

    def _classified(self, error: MCPError, method: str) -> McpServerResponseError | McpToolCallInterruptedError:
        message = self._redactor.redact(error.message)
        has_error_body = self._watch.has_error_body(method)
        response = McpServerResponseError(error.code, message, error.data)
        is_refusal = error.code not in _INTERRUPTED_CODES and has_error_body is not False
        # The codes that the SDK makes up are a server's own where the body shows it.
        if is_refusal or (error.code != types.INTERNAL_ERROR and has_error_body is True):
            return response
        status = self._watch.status_of(method)
        reason = message if status is None or status < 300 else f"{message} (HTTP status {status})"
        is_servers_own = has_error_body is not False and error.code not in _LOCAL_CODES
        return McpToolCallInterruptedError(self.server.name, reason, response=response if is_servers_own else None)


@contextlib.asynccontextmanager
async def open_connection(
    server: McpServer,
    *,
    protocol: McpProtocol,
    connection_timeout: float,
    watch: HttpWatch,
    stderr: StderrTail,
    redactor: SecretRedactor,
) -> AsyncIterator[Connection]:
    """Connect and negotiate; enter and leave it in the same task.

    Args:
        server: The server.
        protocol: What is known of its protocol.
        connection_timeout: Seconds until the connection stands, process start and negotiation included.
        watch: Is told of every HTTP answer.
        stderr: Receives what a server process complains about.
        redactor: Keeps secrets out of errors.

    Raises:
        TimeoutError: It does not stand in time.
        Exception: Whatever the SDK raises, possibly in groups.
    """
    # One scope around all of it, whose deadline is lifted once connected: a scope around the entering alone would be
    # left open across the yield, break anyio's nesting, and fire later.
    with anyio.CancelScope(deadline=anyio.current_time() + connection_timeout) as guard:
        async with open_streams(
            server, connection_timeout=connection_timeout, watch=watch, stderr=stderr, redactor=redactor
        ) as (read, write):
            dispatcher = RawDispatcher(read, write)
            async with ClientSession(
                dispatcher=dispatcher,
                elicitation_callback=_refuse_elicitation,
                extensions={TASKS_EXTENSION: {}},
                client_info=_CLIENT,
            ) as session:
                await negotiate(session, protocol, watch)
                guard.deadline = math.inf
                try:
                    yield Connection(server, session, dispatcher, watch, redactor)
                finally:
                    guard.deadline = anyio.current_time() + CLOSE_TIMEOUT
    if guard.cancelled_caught:
        raise TimeoutError(f"no connection within {connection_timeout:g} seconds")


async def _refuse_elicitation(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ErrorData:
    """Its presence declares the capability; answers go with the repeated request, never over a held connection."""
    return types.ErrorData(
        code=types.INVALID_REQUEST, message="this client answers input requests in a new request only"
    )
