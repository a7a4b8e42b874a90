"""An MCP server over standard input and output; a program."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("demo")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find(text: str) -> str:
    """Finds."""
    return f"found {text}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def put(text: str, context: Context) -> str:
    """Writes; says which metadata came with the call."""
    meta = context.request_context.meta
    return f"put {text} {dict(meta) if meta else {}}"


@server.tool()
def send(text: str) -> str:
    """Nobody says what it does."""
    return f"sent {text}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def fail(text: str) -> str:
    """Fails."""
    raise ValueError(f"cannot {text}")


if __name__ == "__main__":
    server.run("stdio")
