"""What a case's script may depend on, and how another process finds it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dex_agents_conformance.scripted_mcp_server import ScriptedMcpServer, ScriptedMcpTool
from dex_agents_conformance.scripted_tools import ScriptedTool

__all__ = ["CaseSetup"]


@dataclass(frozen=True, kw_only=True)
class CaseSetup:
    """Where a case runs.

    Attributes:
        directory: Its directory, for the database, gates and logs.
        parameter: Which of the case's parameters; blank when it has none.
        build: Which build of the agent, for cases that deploy another one: `current`, `newer` or `older`.
    """

    directory: Path
    parameter: str = ""
    build: str = "current"

    def tool(self, name: str, **options: Any) -> ScriptedTool:
        """A tool of the case; options are the fields of `ScriptedTool`."""
        return ScriptedTool(name=name, directory=self.directory, **options)

    def mcp_server(self, *tools: ScriptedMcpTool, name: str = "s") -> ScriptedMcpServer:
        """An MCP server with these tools, unless the case has given it others."""
        server = ScriptedMcpServer(name=name, directory=self.directory)
        if not server.has_tools:
            server.set_tools(tools)
        return server
