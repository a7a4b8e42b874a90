"""Three tools of the source itself, with which a model finds and reads the resources and prompts of its servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types

from dex_agents import ToolEffect, ToolExecutionError, ToolExecutionResult
from dex_agents_mcp.call_results import canonical_json, limited_text
from dex_agents_mcp.connection import Connection
from dex_agents_mcp.errors import McpServerResponseError, McpServerUnreachableError, McpToolCallInterruptedError
from dex_agents_mcp.listed_tools import McpTool
from dex_agents_mcp.server_client import McpServerClient
from dex_agents_mcp.source_options import McpSourceOptions

__all__ = [
    "GET_PROMPT_TOOL_NAME",
    "LIST_RESOURCES_AND_PROMPTS_TOOL_NAME",
    "READ_RESOURCE_TOOL_NAME",
    "RESOURCE_AND_PROMPT_TOOL_NAMES",
    "resource_and_prompt_tools",
    "run_resource_or_prompt_tool",
]

LIST_RESOURCES_AND_PROMPTS_TOOL_NAME = "mcp_list_resources_and_prompts"
READ_RESOURCE_TOOL_NAME = "mcp_read_resource"
GET_PROMPT_TOOL_NAME = "mcp_get_prompt"
RESOURCE_AND_PROMPT_TOOL_NAMES = (
    LIST_RESOURCES_AND_PROMPTS_TOOL_NAME,
    READ_RESOURCE_TOOL_NAME,
    GET_PROMPT_TOOL_NAME,
)

MAX_PAGES = 100


def resource_and_prompt_tools(server_names: Sequence[str]) -> tuple[McpTool, ...]:
    """The three tools for these servers; none when there are no servers."""
    if not server_names:
        return ()
    server = {"type": "string", "enum": list(server_names), "description": "The MCP server."}
    return (
        _tool(
            LIST_RESOURCES_AND_PROMPTS_TOOL_NAME,
            "List the resources, resource templates and prompts of an MCP server.",
            {"server": server},
            ["server"],
        ),
        _tool(
            READ_RESOURCE_TOOL_NAME,
            "Read a resource of an MCP server.",
            {"server": server, "uri": {"type": "string", "description": "The URI of the resource."}},
            ["server", "uri"],
        ),
        _tool(
            GET_PROMPT_TOOL_NAME,
            "Get a prompt of an MCP server with its arguments filled in.",
            {
                "server": server,
                "name": {"type": "string", "description": "The name of the prompt."},
                "arguments": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "description": "The arguments of the prompt by name.",
                },
            },
            ["server", "name"],
        ),
    )


def _tool(name: str, description: str, properties: Mapping[str, Any], required: list[str]) -> McpTool:
    schema = {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}
    return McpTool(name=name, description=description, input_schema=schema, effect=ToolEffect.READ, mcp_name=name)


async def run_resource_or_prompt_tool(
    clients: Mapping[str, McpServerClient], tool_name: str, arguments: Mapping[str, Any], options: McpSourceOptions
) -> ToolExecutionResult:
    """Run one of the three tools.

    Args:
        clients: The servers by name.
        tool_name: One of `RESOURCE_AND_PROMPT_TOOL_NAMES`.
        arguments: The arguments as the model sent them.
        options: Limits.

    Raises:
        ToolExecutionError: The arguments do not fit, the server refused, or it could not be reached.
        McpToolCallInterruptedError: The server did not answer; the call reads, so another attempt follows.
    """
    client = clients.get(_text(arguments, "server"))
    if client is None:
        raise ToolExecutionError(f"the MCP server {arguments.get('server')!r} is not configured")
    timeout = options.request_timeout.total_seconds()

    async def talk(connection: Connection) -> dict[str, Any]:
        if tool_name == LIST_RESOURCES_AND_PROMPTS_TOOL_NAME:
            return await _list_everything(connection, timeout)
        if tool_name == READ_RESOURCE_TOOL_NAME:
            result = await connection.request("resources/read", {"uri": _text(arguments, "uri")}, timeout=timeout)
            return {"contents": _items(_answered(result), "contents")}
        params = {"name": _text(arguments, "name"), "arguments": _prompt_arguments(arguments)}
        result = _answered(await connection.request("prompts/get", params, timeout=timeout))
        return {"description": result.get("description"), "messages": _items(result, "messages")}

    try:
        output = await client.converse(talk)
    except McpServerUnreachableError as error:
        raise ToolExecutionError(str(error)) from error
    except McpServerResponseError as error:
        raise ToolExecutionError(str(error)) from error
    except McpToolCallInterruptedError as error:
        if error.response is None:
            raise
        raise ToolExecutionError(str(error.response)) from error
    return ToolExecutionResult(output=limited_text(canonical_json(output), options.max_output_characters))


async def _list_everything(connection: Connection, timeout: float) -> dict[str, Any]:
    return {
        "prompts": await _list(connection, "prompts/list", "prompts", "prompts", timeout),
        "resource_templates": await _list(
            connection, "resources/templates/list", "resourceTemplates", "resources", timeout
        ),
        "resources": await _list(connection, "resources/list", "resources", "resources", timeout),
    }


async def _list(connection: Connection, method: str, field: str, capability: str, timeout: float) -> list[Any]:
    """Every page; nothing where the server does not offer such things."""
    if connection.capabilities.get(capability) is None:
        return []
    items: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        try:
            page = await connection.request(method, {} if cursor is None else {"cursor": cursor}, timeout=timeout)
        except McpServerResponseError as error:
            if error.code == types.METHOD_NOT_FOUND:
                return items
            raise
        items += _items(page, field)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            break
        seen.add(cursor)
    return items


def _answered(result: dict[str, Any]) -> dict[str, Any]:
    if result.get("resultType", "complete") != "complete":
        raise ToolExecutionError("the MCP server asked for input that this agent session cannot provide yet")
    return result


def _items(result: Mapping[str, Any], field: str) -> list[Any]:
    items = result.get(field)
    return items if isinstance(items, list) else []


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ToolExecutionError(f"the argument {name!r} must be text")
    return value


def _prompt_arguments(arguments: Mapping[str, Any]) -> dict[str, str]:
    given = arguments.get("arguments")
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        raise ToolExecutionError("the argument 'arguments' must be an object of texts")
    return dict(given)
