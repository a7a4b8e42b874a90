"""About how many tokens messages and tools have, from their length alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool

from dex_agents import AgentMessage, AgentTurnContext, estimate_text_tokens, tool_result_text
from dex_agents_langgraph.tool_schema import tool_schema_text

__all__ = ["message_tokens", "pending_result_tokens", "text_tokens", "tool_tokens"]

#: What a provider adds around each message and each tool.
_TOKENS_PER_ITEM = 4
#: A picture or file is not read as the base64 text that carries it.
_TOKENS_PER_ATTACHMENT = 1_000
_ATTACHMENT = re.compile(r'(?:data:[\w.+/-]+;base64,|"base64":\s*"|"data":\s*")[A-Za-z0-9+/=_-]{256,}')


def text_tokens(text: str | None) -> int:
    """Tokens of a text that is a message or a tool of its own; none without it."""
    return estimate_text_tokens(text) + _TOKENS_PER_ITEM if text else 0


def message_tokens(message: AgentMessage) -> int:
    """Tokens of one stored message: of its content and calls, and not of the graph's state that travels with it."""
    if message.role == "user":
        return text_tokens(message.text)
    stored = json.loads(message.framework_item).get("message")
    if stored is None:
        return 0
    data = stored["data"]
    content, calls = data.get("content"), data.get("tool_calls")
    tokens = text_tokens(content if isinstance(content, str) else None)
    if not isinstance(content, str):
        without, attachments = _ATTACHMENT.subn("", _json(content))
        tokens = text_tokens(without) + attachments * _TOKENS_PER_ATTACHMENT
    return tokens + (text_tokens(_json([(call["name"], call["args"]) for call in calls])) if calls else 0)


def pending_result_tokens(turn: AgentTurnContext) -> int:
    """Tokens of the results that the next model call reads and that are not stored yet."""
    stored = {(message.turn_id, message.tool_call_id) for message in turn.messages if message.role == "tool"}
    return sum(
        text_tokens(tool_result_text(call))
        for call in turn.previous_step_tool_calls
        if (turn.turn_id, call.tool_call_id) not in stored
    )


def tool_tokens(tools: Iterable[BaseTool]) -> int:
    """Tokens of the tools that a model is offered."""
    return sum(text_tokens(f"{tool.name}\n{tool.description}\n{tool_schema_text(tool)}") for tool in tools)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
