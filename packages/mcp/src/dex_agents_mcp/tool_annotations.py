"""What an MCP tool's hints say about its effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dex_agents import ToolEffect

__all__ = ["tool_effect_from_mcp_tool_annotations"]


def tool_effect_from_mcp_tool_annotations(annotations: Mapping[str, Any] | None) -> ToolEffect | None:
    """The effect that a tool's annotations declare; None when they declare none.

    A hint counts only when it is the JSON value `true`: what a server means by `1` or `"yes"` is a guess, and a wrong
    guess would repeat a write.

    Args:
        annotations: The tool's `annotations` as the server sent them.
    """
    if not isinstance(annotations, Mapping):
        return None
    if annotations.get("readOnlyHint") is True:
        return ToolEffect.READ
    if annotations.get("idempotentHint") is True:
        return ToolEffect.IDEMPOTENT_WRITE
    return None
