"""What a request to an MCP server can end in besides an answer: never sent, refused by the server, or interrupted."""

from __future__ import annotations

from typing import Any

__all__ = [
    "McpError",
    "McpServerResponseError",
    "McpServerUnreachableError",
    "McpTaskLostError",
    "McpToolCallInterruptedError",
    "McpToolSourceReferenceError",
]


class McpError(Exception):
    """Something between the agent and an MCP server went wrong."""


class McpServerUnreachableError(McpError):
    """No connection came about, so the request was certainly never sent.

    Args:
        server_name: The configured server.
        reason: What happened; holds no secrets of the configuration.
        is_permanent: Whether another attempt with the same credentials cannot help.
    """

    def __init__(self, server_name: str, reason: str, *, is_permanent: bool = False) -> None:
        super().__init__(f"the MCP server {server_name!r} could not be reached: {reason}")
        self.server_name = server_name
        self.reason = reason
        self.is_permanent = is_permanent


class McpServerResponseError(McpError):
    """The server answered a request with a JSON-RPC error.

    Args:
        code: The error's code.
        message: The server's words.
        data: What the server sent with it.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message or f"JSON-RPC error {code}")
        self.code = code
        self.data = data


class McpToolCallInterruptedError(McpError):
    """A request was sent, and nobody knows what came of it: the attempt failed, and the tool's effect decides.

    The connection broke, the server exited, the time was over, the server or something before it answered with an
    internal error or an HTTP error, or the answer cannot be read.

    Args:
        server_name: The configured server.
        reason: What happened; holds no secrets of the configuration.
        response: The server's internal error, when it was one.
    """

    def __init__(self, server_name: str, reason: str, *, response: McpServerResponseError | None = None) -> None:
        super().__init__(f"the request to the MCP server {server_name!r} was interrupted: {reason}")
        self.server_name = server_name
        self.reason = reason
        self.response = response


class McpTaskLostError(McpError):
    """The server no longer knows a task it started; the tool's effect decides what is recorded."""

    is_retryable = False

    def __init__(self, server_name: str, reason: str) -> None:
        super().__init__(f"the MCP server {server_name!r} no longer knows the task: {reason}")


class McpToolSourceReferenceError(McpError):
    """A stored reference of a call cannot be read; the call was not sent, and its effect decides."""

    def __init__(self, reference: str) -> None:
        super().__init__(f"the tool source reference {reference[:200]!r} was not written by this version of the source")
