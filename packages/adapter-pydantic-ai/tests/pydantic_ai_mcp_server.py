"""An MCP server over standard input and output; a program. Each start adds a line to the file named first."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from mcp.types import ToolAnnotations

try:
    server_module: Any = importlib.import_module("mcp.server.mcpserver")
    server_type = server_module.MCPServer
except ImportError:  # releases of the SDK before 2.0
    server_module = importlib.import_module("mcp.server.fastmcp")
    server_type = server_module.FastMCP

server: Any = server_type("demo")


def _hints(**hints: bool) -> Any:
    return ToolAnnotations.model_validate(hints)


def find(text: str) -> str:
    """Finds."""
    return f"found {text}"


def put(text: str) -> str:
    """Writes."""
    return f"put {text}"


def send(text: str) -> str:
    """Writes what must not be written twice."""
    return f"sent {text}"


def guess(text: str) -> str:
    """Nobody says what it does."""
    return f"guessed {text}"


def fail(text: str) -> str:
    """Fails."""
    raise ValueError(f"cannot {text}")


server.tool(annotations=_hints(readOnlyHint=True))(find)
server.tool(annotations=_hints(idempotentHint=True))(put)
server.tool(annotations=_hints(destructiveHint=True))(send)
server.tool()(guess)
server.tool(annotations=_hints(readOnlyHint=True))(fail)


if __name__ == "__main__":
    with open(sys.argv[1], "a", encoding="utf-8") as starts:
        starts.write("started\n")
    server.run("stdio")
