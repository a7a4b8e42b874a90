"""Where MCP servers are and how far they are trusted. Configured on the worker, never from what a user sends."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import httpx2

from dex_agents import ToolEffect

__all__ = ["McpHttpServer", "McpProtocol", "McpServer", "McpStdioServer", "RequestHeaders", "check_servers"]

McpProtocol: TypeAlias = Literal["auto", "2026-07-28", "legacy"]
RequestHeaders: TypeAlias = (
    Mapping[str, str] | Callable[[], Mapping[str, str]] | Callable[[], Awaitable[Mapping[str, str]]]
)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True, kw_only=True)
class _ServerOptions:
    name: str
    trusts_tool_annotations: bool = True
    default_tool_effect: ToolEffect | None = None
    allowed_tools: Sequence[str] | None = None
    protocol: McpProtocol = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(
                f"an MCP server's name must be 1 to 32 letters, digits, '_' or '-', not {self.name!r}; "
                "its tools are offered under it"
            )
        if not isinstance(self.trusts_tool_annotations, bool):
            raise TypeError(f"server {self.name!r}: trusts_tool_annotations must be a bool")
        if self.protocol not in get_args(McpProtocol):
            raise ValueError(f"server {self.name!r}: protocol must be one of {get_args(McpProtocol)}")
        if self.default_tool_effect is not None:
            object.__setattr__(self, "default_tool_effect", ToolEffect(self.default_tool_effect))
        if self.allowed_tools is not None:
            if isinstance(self.allowed_tools, str):
                raise TypeError(f"server {self.name!r}: allowed_tools must be a sequence of names, not a text")
            object.__setattr__(self, "allowed_tools", tuple(self.allowed_tools))


@dataclass(frozen=True, kw_only=True)
class McpStdioServer(_ServerOptions):
    """A server that is started as a process for every request, with this process's privileges.

    Attributes:
        name: Its tools are offered as `<name>__<tool>`; 1 to 32 letters, digits, `_` or `-`.
        command: The program.
        args: Its arguments.
        env: Environment variables besides `HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER`, which it inherits.
        cwd: Its working directory; None for this process's own.
        dies_with_worker: Start it through a small launcher that kills it, and whatever it started, when this process
            dies without closing it.
        trusts_tool_annotations: Whether `readOnlyHint` and `idempotentHint` of its tools count.
        default_tool_effect: Effect of its tools without such a hint; None for the source's default.
        allowed_tools: Only these of its tools are offered, by their MCP names; None for all.
        protocol: `auto` asks the server, `legacy` is 2025-11-25 and older.

    Raises:
        TypeError: A field has the wrong type; names it.
        ValueError: A field has a value it cannot have; names it.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | os.PathLike[str] | None = None
    dies_with_worker: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.command, str) or not self.command.strip():
            raise ValueError(f"server {self.name!r}: command must be the name or path of a program")
        if isinstance(self.args, str) or not all(isinstance(argument, str) for argument in self.args):
            raise TypeError(f"server {self.name!r}: args must be a sequence of texts")
        if not all(isinstance(text, str) for pair in self.env.items() for text in pair):
            raise TypeError(f"server {self.name!r}: env must map texts to texts")
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "env", dict(self.env))


@dataclass(frozen=True, kw_only=True)
class McpHttpServer(_ServerOptions):
    """A server behind a Streamable HTTP endpoint; every request opens a connection of its own.

    Attributes:
        name: Its tools are offered as `<name>__<tool>`; 1 to 32 letters, digits, `_` or `-`.
        url: The endpoint, `http` or `https`.
        headers: Headers of every request, or a function, sync or async, that returns them for each connection, such as
            a fresh token.
        auth: An `httpx2.Auth`, such as the SDK's `OAuthClientProvider`.
        trusts_tool_annotations: Whether `readOnlyHint` and `idempotentHint` of its tools count.
        default_tool_effect: Effect of its tools without such a hint; None for the source's default.
        allowed_tools: Only these of its tools are offered, by their MCP names; None for all.
        protocol: `auto` asks the server, `legacy` is 2025-11-25 and older.

    Raises:
        TypeError: A field has the wrong type; names it.
        ValueError: A field has a value it cannot have; names it.
    """

    url: str = field(repr=False)
    headers: RequestHeaders = field(default_factory=dict, repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            url = httpx2.URL(self.url)
        except (httpx2.InvalidURL, TypeError) as error:
            raise ValueError(f"server {self.name!r}: url is not a URL") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(f"server {self.name!r}: url must begin with http:// or https:// and name a host")
        if not callable(self.headers) and not isinstance(self.headers, Mapping):
            raise TypeError(f"server {self.name!r}: headers must be a mapping or a function that returns one")


McpServer: TypeAlias = McpStdioServer | McpHttpServer


def check_servers(servers: Sequence[McpServer]) -> dict[str, McpServer]:
    """The servers by name, in their order.

    Raises:
        TypeError: One is no server.
        ValueError: Two have the same name.
    """
    by_name: dict[str, McpServer] = {}
    for server in servers:
        if not isinstance(server, (McpStdioServer, McpHttpServer)):
            raise TypeError(f"servers must hold McpStdioServer and McpHttpServer values, not {type(server).__name__}")
        if server.name in by_name:
            raise ValueError(f"two MCP servers are named {server.name!r}")
        by_name[server.name] = server
    return by_name
