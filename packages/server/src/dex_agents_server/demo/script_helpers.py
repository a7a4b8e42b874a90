"""What the scenarios' scripts share: reading a model request and asking for tools."""

from __future__ import annotations

import json
import re
from typing import Any

from dex_agents_stepwise import (
    ModelRequest,
    ModelToolResult,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedToolCall,
)

__all__ = ["ask_tools", "latest_user_text", "order_number", "result_of"]


def latest_user_text(request: ModelRequest) -> str:
    """What the user said last."""
    return ScriptedModelClient.user_texts(request)[-1]


def order_number(text: str) -> int:
    """The first number in a text that has one."""
    found = re.search(r"\d+", text)
    if found is None:
        raise ValueError(f"the script expects an order number in {text!r}")
    return int(found.group())


def result_of(request: ModelRequest, tool_name: str) -> str | None:
    """The latest result of a tool in the whole conversation, as the model reads it; None when there is none."""
    outputs = [
        item.output for item in request.input_items if isinstance(item, ModelToolResult) and item.tool_name == tool_name
    ]
    return outputs[-1] if outputs else None


def ask_tools(text: str, *calls: tuple[str, dict[str, Any]]) -> ScriptedModelReply:
    """A reply that says `text` and asks for tools, each with its arguments."""
    return ScriptedModelReply(
        text=text,
        tool_calls=[ScriptedToolCall(tool_name=name, arguments=json.dumps(arguments)) for name, arguments in calls],
    )
