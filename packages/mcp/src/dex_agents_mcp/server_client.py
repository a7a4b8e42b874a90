"""Conversations with one configured server: connected as often as needed, and every end told apart."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx2
from mcp import MCPError

from dex_agents import ToolExecutionError
from dex_agents_mcp.connection import Connection, open_connection
from dex_agents_mcp.errors import McpError, McpServerUnreachableError, McpToolCallInterruptedError
from dex_agents_mcp.http_watch import HttpWatch
from dex_agents_mcp.negotiation import REFUSED_CREDENTIALS
from dex_agents_mcp.secret_redaction import SecretRedactor
from dex_agents_mcp.server_configs import McpProtocol, McpServer, McpStdioServer
from dex_agents_mcp.source_options import McpSourceOptions
from dex_agents_mcp.transports import StderrTail

__all__ = ["McpServerClient", "ProcessStarts"]

logger = logging.getLogger("dex_agents_mcp")

Result = TypeVar("Result")

_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class ProcessStarts:
    """Lets only so many server processes start at a time; a start may cost a second of CPU.

    Args:
        limit: How many.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._semaphores: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    def semaphore(self) -> asyncio.Semaphore:
        """The one of the running event loop."""
        loop = asyncio.get_running_loop()
        return self._semaphores.setdefault(loop, asyncio.Semaphore(self._limit))


class _Conversation:
    """What one attempt knows of itself, whatever it ends in."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.watch = HttpWatch()
        self.stderr = StderrTail()

    @property
    def has_sent_request(self) -> bool:
        return self.connection is not None and self.connection.has_sent_request


class McpServerClient:
    """Talks to one server; shared by all sessions of a worker.

    Args:
        server: The server.
        options: Limits of connections.
        process_starts: Bounds the process starts of all servers together.
    """

    def __init__(self, server: McpServer, options: McpSourceOptions, process_starts: ProcessStarts) -> None:
        self.server = server
        self.options = options
        self._process_starts = process_starts
        self._redactor = SecretRedactor(server)
        self._known_protocol: McpProtocol | None = None

    def forget_protocol(self) -> None:
        """Ask the server again what it speaks, as it may have been replaced."""
        self._known_protocol = None

    async def converse(
        self,
        talk: Callable[[Connection], Awaitable[Result]],
        *,
        attempts: int | None = None,
        asks_protocol: bool = False,
    ) -> Result:
        """Connect, talk, and close.

        Only what was certainly never sent is tried again, on a new connection, and not when the server refused the
        credentials.

        Args:
            talk: Sends its requests over the connection.
            attempts: Connection attempts, in place of the configured ones.
            asks_protocol: Ask the server what it speaks, whatever it spoke last.

        Raises:
            McpServerUnreachableError: Nothing of the conversation was sent.
            McpServerResponseError: The server refused a request.
            McpToolCallInterruptedError: A request was sent and not answered.
            McpError: Another one that `talk` raised, as a `ToolExecutionError`.
        """
        remaining = attempts or self.options.connection_attempts
        backoff = self.options.connection_backoff.total_seconds()
        while True:
            try:
                return await self._converse_once(talk, self._protocol(asks_protocol))
            except McpServerUnreachableError as error:
                self.forget_protocol()
                remaining -= 1
                if error.is_permanent or remaining == 0:
                    raise
            await asyncio.sleep(backoff)
            backoff *= 2

    async def _converse_once(self, talk: Callable[[Connection], Awaitable[Result]], protocol: McpProtocol) -> Result:
        task = asyncio.current_task()
        assert task is not None
        cancellations = task.cancelling()
        conversation = _Conversation()
        results: list[Result] = []
        own_error: McpError | ToolExecutionError | None = None
        is_process = isinstance(self.server, McpStdioServer)
        starting = self._process_starts.semaphore() if is_process else None
        if starting is not None:
            await starting.acquire()
        try:
            async with open_connection(
                self.server,
                protocol=protocol,
                connection_timeout=self.options.connection_timeout.total_seconds(),
                watch=conversation.watch,
                stderr=conversation.stderr,
                redactor=self._redactor,
            ) as connection:
                conversation.connection = connection
                if starting is not None:
                    starting.release()
                    starting = None
                self._known_protocol = "auto" if connection.is_modern else "legacy"
                try:
                    results.append(await talk(connection))
                except (McpError, ToolExecutionError) as error:
                    own_error = error  # raised below, outside of the task groups that would wrap it
        except BaseException as error:
            if task.cancelling() > cancellations:
                raise asyncio.CancelledError() from error
            if not isinstance(error, (Exception, BaseExceptionGroup, asyncio.CancelledError)):
                raise
            if not results and own_error is None:
                raise self._classified(error, conversation) from error
            logger.warning("closing the connection to the MCP server %r failed: %r", self.server.name, error)
        finally:
            if starting is not None:
                starting.release()
            conversation.stderr.close()
        if own_error is not None:
            raise own_error
        return results[0]

    def _protocol(self, asks_protocol: bool) -> McpProtocol:
        if self.server.protocol != "auto" or asks_protocol:
            return self.server.protocol
        return self._known_protocol or "auto"

    def _classified(self, error: BaseException, conversation: _Conversation) -> McpError:
        leaves = _leaves(error)
        first = next((leaf for leaf in leaves if not isinstance(leaf, asyncio.CancelledError)), leaves[0])
        reason = self._redactor.redact(_describe(first))
        if conversation.has_sent_request and not isinstance(first, _NEVER_SENT):
            return McpToolCallInterruptedError(self.server.name, reason)
        status = conversation.watch.status
        if status is not None and status >= 300:
            reason = f"{reason} (HTTP status {status})"
        complaint = self._redactor.redact(conversation.stderr.read())
        if complaint:
            reason = f"{reason}; it wrote: {complaint}"
        return McpServerUnreachableError(self.server.name, reason, is_permanent=status in REFUSED_CREDENTIALS)


def _describe(error: BaseException) -> str:
    if isinstance(error, MCPError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
