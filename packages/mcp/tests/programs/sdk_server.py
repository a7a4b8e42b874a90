"""A server made with the official SDK, over stdio or Streamable HTTP; it records what it ran in a file.

python sdk_server.py <file> stdio|http
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)

KEY = "io.superdurable.dex/idempotencyKey"


def build(log: Path) -> MCPServer:
    server = MCPServer("notes", log_level="ERROR")

    def record(tool: str, context: Context) -> None:
        meta = dict(context.request_context.meta or {})
        with log.open("a") as file:
            file.write(json.dumps({"tool": tool, "key": meta.get(KEY), "trace": meta.get("traceparent")}) + "\n")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def read_note(title: str, context: Context) -> str:
        """Read a note."""
        record("read_note", context)
        return f"the note {title}"

    @server.tool(annotations=ToolAnnotations(destructive_hint=True), structured_output=False)
    def delete_note(title: str, context: Context) -> str:
        """Delete a note."""
        record("delete_note", context)
        return f"deleted {title}"

    @server.tool(structured_output=False)
    async def copy_note(title: str, context: Context) -> CallToolResult | InputRequiredResult:
        """Copy a note to a region."""
        answer = (context.input_responses or {}).get("region")
        if not isinstance(answer, ElicitResult):
            schema = {"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]}
            request = ElicitRequest(params=ElicitRequestFormParams(message="Which region?", requested_schema=schema))
            return InputRequiredResult(input_requests={"region": request}, request_state="copy")
        record("copy_note", context)
        where = (answer.content or {}).get("region")
        return CallToolResult(content=[TextContent(type="text", text=f"copied {title} to {where}")])

    @server.resource("note://first", name="first", description="A note", mime_type="text/plain")
    def first() -> str:
        return "the first note"

    @server.prompt(description="Greets somebody")
    def greet(who: str) -> str:
        return f"Say hello to {who}"

    return server


def main() -> None:
    server = build(Path(sys.argv[1]))
    if sys.argv[2] == "stdio":
        server.run("stdio")
        return
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    app = server.streamable_http_app()
    http = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    print(f"port {listener.getsockname()[1]}", flush=True)
    http.run(sockets=[listener])
    os._exit(0)


if __name__ == "__main__":
    main()
