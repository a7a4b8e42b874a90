"""Opens the streams to a server: a process of its own, or an HTTP client of its own."""

from __future__ import annotations

import contextlib
import inspect
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from dex_agents_mcp.http_watch import HttpWatch
from dex_agents_mcp.secret_redaction import SecretRedactor
from dex_agents_mcp.server_configs import McpHttpServer, McpServer, McpStdioServer

__all__ = ["HeaderFunctionError", "StderrTail", "open_streams"]

MAX_SSE_EVENT_BYTES = 64 * 1024 * 1024
STDERR_TAIL_BYTES = 2_000

_LAUNCHER = Path(__file__).with_name("stdio_launcher.py")
# The SDK before 2.3 has no such parameter, and no way past its limit of 1 MiB.
_HAS_EVENT_LIMIT = "max_sse_event_size" in inspect.signature(streamable_http_client).parameters


class HeaderFunctionError(Exception):
    """The function of a server's headers raised; its text, which may quote a secret, is in the cause alone."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"its function of headers {problem}")


class StderrTail:
    """What a server process writes to its standard error; a file, because a pipe nobody reads would block it."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def open(self) -> TextIO:
        """Where a new process writes."""
        self.close()
        # Only this process and its children ever see it.
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        return self._file

    def read(self) -> str:
        """The end of what was written, without blank lines at the ends."""
        if self._file is None:
            return ""
        size = os.fstat(self._file.fileno()).st_size
        tail = os.pread(self._file.fileno(), STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES))
        return tail.decode(errors="replace").strip()

    def close(self) -> None:
        """Drop it."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextlib.asynccontextmanager
async def open_streams(
    server: McpServer,
    *,
    connection_timeout: float,
    watch: HttpWatch,
    stderr: StderrTail,
    redactor: SecretRedactor,
) -> AsyncIterator[tuple[Any, Any]]:
    """The two message streams of one connection.

    Args:
        server: The server.
        connection_timeout: Seconds for one TCP connection.
        watch: Is told of every HTTP answer.
        stderr: Receives what a server process complains about.
        redactor: Learns the headers of this connection.
    """
    if isinstance(server, McpStdioServer):
        async with stdio_client(_process_parameters(server), errlog=stderr.open()) as streams:
            yield streams
        return
    headers = await _headers(server)
    redactor.add(headers.values())
    async with (
        httpx2.AsyncClient(
            headers=headers,
            auth=server.auth,
            verify=_shared_ssl_context(),
            timeout=httpx2.Timeout(connection_timeout, read=None),
            event_hooks={"request": [watch.on_request], "response": [watch.on_response]},
        ) as client,
        streamable_http_client(server.url, http_client=client, **_event_limit()) as streams,
    ):
        yield streams


def _event_limit() -> dict[str, Any]:
    return {"max_sse_event_size": MAX_SSE_EVENT_BYTES} if _HAS_EVENT_LIMIT else {}


def _process_parameters(server: McpStdioServer) -> StdioServerParameters:
    command, args = server.command, list(server.args)
    if server.dies_with_worker:
        command, args = sys.executable, ["-I", "-S", os.fspath(_LAUNCHER), str(os.getpid()), command, *args]
    cwd = None if server.cwd is None else os.fspath(server.cwd)
    return StdioServerParameters(command=command, args=args, env=dict(server.env), cwd=cwd)


async def _headers(server: McpHttpServer) -> dict[str, str]:
    headers: Any = server.headers
    if isinstance(headers, Mapping):
        return dict(headers)
    try:
        headers = headers()
        if inspect.isawaitable(headers):
            headers = await headers
    except Exception as error:
        raise HeaderFunctionError(f"raised {type(error).__name__}") from error
    if not isinstance(headers, Mapping):
        raise HeaderFunctionError(f"returned {type(headers).__name__}, not a mapping")
    return dict(headers)


_ssl_context: ssl.SSLContext | None = None


def _shared_ssl_context() -> ssl.SSLContext:
    """One for the process: building one blocks the event loop for about 40 ms."""
    global _ssl_context
    if _ssl_context is None:
        _ssl_context = ssl.create_default_context()
    return _ssl_context
