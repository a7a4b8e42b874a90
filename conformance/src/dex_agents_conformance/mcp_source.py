"""The MCP servers of a script as a tool source; needs `dex-agents-mcp`, which nothing else of the suite does."""

from __future__ import annotations

from datetime import timedelta

from dex_agents_conformance.conversation_script import ConversationScript
from dex_agents_mcp import McpSourceOptions, McpStdioServer, McpToolSource

__all__ = ["make_mcp_tool_source"]

_PATIENT = timedelta(seconds=60)


def make_mcp_tool_source(script: ConversationScript) -> McpToolSource:
    """A source of the script's servers, which is patient with a busy machine."""
    servers = [McpStdioServer(name=s.name, command=s.command, args=s.args) for s in script.mcp_servers]
    options = McpSourceOptions(
        connection_timeout=_PATIENT,
        connection_backoff=timedelta(milliseconds=1),
        call_timeout=_PATIENT,
        listing_wait_timeout=_PATIENT,
    )
    return McpToolSource(servers, options=options)
