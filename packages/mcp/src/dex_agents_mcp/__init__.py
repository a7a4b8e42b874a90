"""The tools of MCP servers as durable tools of an agent session.

Every MCP tool call runs in a tool Step of its own, with an effect class from the tool's annotations, so that a crash
never repeats a write silently.
"""

from dex_agents_mcp.call_attempt import IDEMPOTENCY_KEY_META_KEY
from dex_agents_mcp.errors import (
    McpError,
    McpServerResponseError,
    McpServerUnreachableError,
    McpTaskLostError,
    McpToolCallInterruptedError,
    McpToolSourceReferenceError,
)
from dex_agents_mcp.listed_tools import McpTool
from dex_agents_mcp.resource_prompt_tools import (
    GET_PROMPT_TOOL_NAME,
    LIST_RESOURCES_AND_PROMPTS_TOOL_NAME,
    READ_RESOURCE_TOOL_NAME,
)
from dex_agents_mcp.server_configs import McpHttpServer, McpProtocol, McpServer, McpStdioServer, RequestHeaders
from dex_agents_mcp.source_options import McpSourceOptions
from dex_agents_mcp.tool_annotations import tool_effect_from_mcp_tool_annotations
from dex_agents_mcp.tool_source import AskUser, McpToolHandler, McpToolSource

__all__ = (
    "GET_PROMPT_TOOL_NAME",
    "IDEMPOTENCY_KEY_META_KEY",
    "LIST_RESOURCES_AND_PROMPTS_TOOL_NAME",
    "READ_RESOURCE_TOOL_NAME",
    "AskUser",
    "McpError",
    "McpHttpServer",
    "McpProtocol",
    "McpServer",
    "McpServerResponseError",
    "McpServerUnreachableError",
    "McpSourceOptions",
    "McpStdioServer",
    "McpTaskLostError",
    "McpTool",
    "McpToolCallInterruptedError",
    "McpToolHandler",
    "McpToolSource",
    "McpToolSourceReferenceError",
    "RequestHeaders",
    "tool_effect_from_mcp_tool_annotations",
)
