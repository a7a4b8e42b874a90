"""The tools of one server as a worker knows them: listed once, refreshed in the background, and never in the way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from dex_agents_mcp.connection import Connection
from dex_agents_mcp.errors import McpError, McpToolCallInterruptedError
from dex_agents_mcp.listed_tools import McpTool, UnusableToolError, read_tool
from dex_agents_mcp.server_client import McpServerClient

__all__ = ["ServerListing", "list_tools_of_server"]

logger = logging.getLogger("dex_agents_mcp")

MAX_PAGES = 100
MIN_TTL_SECONDS = 5.0
MAX_TTL_SECONDS = 24 * 3600.0


async def list_tools_of_server(connection: Connection, timeout: float) -> tuple[list[Any], float | None]:
    """Every entry of a server's listing as sent, and how many seconds the server says it holds.

    Raises:
        McpServerResponseError: The server refused.
        McpToolCallInterruptedError: It did not answer, or with something that is no listing.
    """
    entries: list[Any] = []
    ttl: float | None = None
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        page = await connection.request("tools/list", {} if cursor is None else {"cursor": cursor}, timeout=timeout)
        tools = page.get("tools")
        if not isinstance(tools, list):
            raise McpToolCallInterruptedError(connection.server.name, "its listing has no list of tools")
        entries += tools
        ttl_ms = page.get("ttlMs")
        if isinstance(ttl_ms, int | float) and not isinstance(ttl_ms, bool) and ttl_ms > 0:
            ttl = min(max(ttl_ms / 1000, MIN_TTL_SECONDS), MAX_TTL_SECONDS)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            break
        seen.add(cursor)
    return entries, ttl


class ServerListing:
    """What one server offers; shared by all sessions of a worker.

    Args:
        client: Talks to the server.
        ttl: How long a listing holds, unless the server says.
        failure_backoff: How long a server that could not be listed is left alone.
        request_timeout: How long one page may take.
    """

    def __init__(
        self, client: McpServerClient, *, ttl: timedelta, failure_backoff: timedelta, request_timeout: timedelta
    ) -> None:
        self._client = client
        self._ttl = ttl.total_seconds()
        self._failure_backoff = failure_backoff.total_seconds()
        self._request_timeout = request_timeout.total_seconds()
        self._tools: tuple[McpTool, ...] = ()
        self._due_at = 0.0
        self._was_awaited = False
        self._is_failing = False
        self._task: asyncio.Task[None] | None = None
        self._dropped: set[str] = set()

    @property
    def tools(self) -> tuple[McpTool, ...]:
        """The latest listing; empty before the first."""
        return self._tools

    def start_when_due(self, *, is_forced: bool = False) -> asyncio.Task[None] | None:
        """List the server when it is time, and say what to wait for: the first listing, or a forced one.

        Nothing waits twice for a first listing that takes long; it goes on in the background.
        """
        if not self._is_running():
            if not is_forced and time.monotonic() < self._due_at:
                return None
            self._task = asyncio.get_running_loop().create_task(self._list())
        if is_forced:
            return self._task
        is_first = not self._was_awaited
        self._was_awaited = True
        return self._task if is_first else None

    async def stop(self) -> None:
        """Cancel a listing that runs."""
        if self._is_running():
            assert self._task is not None
            self._task.cancel()
            await asyncio.wait([self._task])

    def _is_running(self) -> bool:
        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    async def _list(self) -> None:
        self._due_at = time.monotonic() + self._failure_backoff
        try:
            entries, ttl = await self._client.converse(
                lambda connection: list_tools_of_server(connection, self._request_timeout),
                attempts=1,
                asks_protocol=True,
            )
        except McpError as error:
            self._due_at = time.monotonic() + self._failure_backoff
            if not self._is_failing:
                logger.warning(
                    "the tools of the MCP server %r %s: %s",
                    self._client.server.name,
                    "are those of an earlier listing" if self._tools else "are not offered",
                    error,
                )
            self._is_failing = True
            return
        if self._is_failing:
            logger.info("the MCP server %r can be listed again", self._client.server.name)
        self._is_failing = False
        self._tools = self._read(entries)
        self._due_at = time.monotonic() + (self._ttl if ttl is None else ttl)

    def _read(self, entries: list[Any]) -> tuple[McpTool, ...]:
        server = self._client.server
        tools: dict[str, McpTool] = {}
        for entry in entries:
            name = entry.get("name") if isinstance(entry, Mapping) else None
            if server.allowed_tools is not None and name not in server.allowed_tools:
                continue
            try:
                tool = read_tool(server, entry)
            except UnusableToolError as error:
                self._warn_once(str(error))
                continue
            other = tools.get(tool.name)
            if other is None:
                tools[tool.name] = tool
                continue
            taken_by, left_out = sorted((other, tool), key=lambda found: found.name_precedence)
            tools[tool.name] = taken_by
            self._warn_once(f"tool {left_out.mcp_name!r} would be offered as {tool.name} like {taken_by.mcp_name!r}")
        return tuple(tools.values())

    def _warn_once(self, problem: str) -> None:
        if problem not in self._dropped:
            self._dropped.add(problem)
            logger.warning("a tool of the MCP server %r is left out: %s", self._client.server.name, problem)
