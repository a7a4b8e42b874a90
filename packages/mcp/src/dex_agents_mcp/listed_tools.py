"""Tools as servers list them: each read on its own, so that a bad one never hides the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
from jsonschema.validators import Draft202012Validator, validator_for  # type: ignore[import-untyped]
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

from dex_agents import ToolEffect
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_text
from dex_agents_mcp.server_configs import McpServer, McpStdioServer
from dex_agents_mcp.tool_annotations import tool_effect_from_mcp_tool_annotations
from dex_agents_mcp.tool_names import offered_tool_name

__all__ = ["McpTool", "UnusableToolError", "read_tool"]


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """A tool that is offered to models.

    Attributes:
        name: What the model calls; key tool policies by it.
        description: What the model reads.
        input_schema: JSON Schema of the arguments object.
        effect: What the annotations or the server's configuration say; None leaves it to the session's default.
        server_name: The configured server; empty for the tools of the source itself.
        mcp_name: The tool's name on the server.
        requires_task: Whether the server runs it only as a task of 2025-11-25.
        parameter_headers: Arguments that a 2026-07-28 HTTP server wants as headers too, by path.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    effect: ToolEffect | None = None
    server_name: str = ""
    mcp_name: str = ""
    requires_task: bool = False
    parameter_headers: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def name_precedence(self) -> tuple[bool, str, str]:
        """The lowest of the tools that would be offered under one name gets it, in whatever order they are listed.

        A tool whose name needed no change comes first, so that it is never taken for another one.
        """
        return (self.name != f"{self.server_name}__{self.mcp_name}", self.server_name, self.mcp_name)


class UnusableToolError(ValueError):
    """A server listed something that cannot be offered; says what."""


def read_tool(server: McpServer, listed: Any) -> McpTool:
    """One entry of a server's listing.

    Args:
        server: The server.
        listed: The entry as the server sent it.

    Raises:
        UnusableToolError: It has no name, or its schema would make a provider refuse every tool.
    """
    if not isinstance(listed, Mapping):
        raise UnusableToolError(f"an entry of the listing is {type(listed).__name__}, not an object")
    name = listed.get("name")
    if not isinstance(name, str) or not name:
        raise UnusableToolError(f"a tool has the name {name!r}")
    schema = _input_schema(name, listed.get("inputSchema"))
    headers: Mapping[tuple[str, ...], str] = {}
    if not isinstance(server, McpStdioServer):
        if (problem := find_invalid_x_mcp_header(schema)) is not None:
            raise UnusableToolError(f"tool {name!r} has an invalid x-mcp-header: {problem}")
        headers = x_mcp_header_map(schema)
    annotations = listed.get("annotations")
    effect = tool_effect_from_mcp_tool_annotations(annotations) if server.trusts_tool_annotations else None
    execution = listed.get("execution")
    return McpTool(
        name=offered_tool_name(server.name, name),
        description=_description(listed, annotations),
        input_schema=schema,
        effect=effect or server.default_tool_effect,
        server_name=server.name,
        mcp_name=name,
        requires_task=isinstance(execution, Mapping) and execution.get("taskSupport") == "required",
        parameter_headers=headers,
    )


def _description(listed: Mapping[str, Any], annotations: Any) -> str:
    titles = annotations.get("title") if isinstance(annotations, Mapping) else None
    for text in (listed.get("description"), listed.get("title"), titles):
        if isinstance(text, str) and text.strip():
            return sanitize_text(text)
    return ""


def _input_schema(name: str, schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise UnusableToolError(f"tool {name!r} has no input schema")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(sanitize_json_value(dict(schema)), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnusableToolError(f"the input schema of tool {name!r} is no JSON: {error}") from error
    if copied.setdefault("type", "object") != "object":
        raise UnusableToolError(f"the input schema of tool {name!r} has the type {copied['type']!r}, not 'object'")
    # Written by servers that serialise absent lists as null; providers refuse the whole request for it.
    for keyword in ("required", "properties"):
        if copied.get(keyword, 0) is None:
            del copied[keyword]
    copied.setdefault("properties", {})
    try:
        validator_for(copied, default=Draft202012Validator).check_schema(copied)
    except SchemaError as error:
        raise UnusableToolError(f"the input schema of tool {name!r} is invalid: {error.message[:200]}") from error
    except RecursionError as error:
        raise UnusableToolError(f"the input schema of tool {name!r} is nested too deeply") from error
    return copied
