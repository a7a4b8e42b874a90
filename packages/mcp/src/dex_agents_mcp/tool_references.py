"""What is stored with a call so that any worker can run it without a listing."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dex_agents_mcp.errors import McpToolSourceReferenceError
from dex_agents_mcp.listed_tools import McpTool

__all__ = ["ToolReference", "decode_reference", "encode_reference", "reference_of"]


class ToolReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a call goes.

    Attributes:
        server: Name of the configured server.
        tool: The tool's name there.
        requires_task: Whether a 2025-11-25 server runs it only as a task.
        headers: Paths of arguments that are sent as headers too, with the headers' names.
    """

    server: str
    tool: str
    requires_task: bool = False
    headers: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def parameter_headers(self) -> Mapping[tuple[str, ...], str]:
        """The headers by path."""
        return dict(self.headers)


def encode_reference(tool: McpTool) -> str:
    """The stored text of a tool's reference."""
    reference = reference_of(tool)
    return msgspec.json.encode(reference).decode()


def reference_of(tool: McpTool) -> ToolReference:
    """The reference of a listed tool."""
    return ToolReference(
        server=tool.server_name,
        tool=tool.mcp_name,
        requires_task=tool.requires_task,
        headers=tuple(sorted(tool.parameter_headers.items())),
    )


def decode_reference(text: str) -> ToolReference:
    """The reference in a stored text.

    Raises:
        McpToolSourceReferenceError: The text is none.
    """
    try:
        return msgspec.json.decode(text, type=ToolReference)
    except msgspec.DecodeError as error:
        raise McpToolSourceReferenceError(text) from error
