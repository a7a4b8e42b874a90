"""The names under which MCP tools are offered: what every model provider accepts, and the same on every worker."""

from __future__ import annotations

import hashlib
import re

__all__ = ["MAX_TOOL_NAME_LENGTH", "offered_tool_name"]

MAX_TOOL_NAME_LENGTH = 64

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8


def offered_tool_name(server_name: str, mcp_name: str) -> str:
    """`<server>__<tool>` with other characters than letters, digits, `_` and `-` replaced by `_`.

    A name of more than 64 characters is shortened and ends in a hash of the whole name.

    Args:
        server_name: Name of the configured server.
        mcp_name: The tool's name on the server.
    """
    name = _FORBIDDEN.sub("_", f"{server_name}__{mcp_name}")
    if len(name) <= MAX_TOOL_NAME_LENGTH:
        return name
    digest = hashlib.sha256(f"{server_name}\0{mcp_name}".encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{name[: MAX_TOOL_NAME_LENGTH - _HASH_LENGTH - 1]}_{digest}"
