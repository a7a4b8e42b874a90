"""About how many tokens messages and agents have, from their length alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from agents import Agent, FunctionTool

from dex_agents import BUILT_IN_TOOL_DEFINITIONS, AgentMessage, FrameworkMessage, estimate_text_tokens

__all__ = ["agent_tokens", "message_tokens", "messages_tokens", "text_tokens"]

#: What a provider adds around each message and each tool.
_TOKENS_PER_ITEM = 4
#: A picture or file is not read as the base64 text that carries it.
_TOKENS_PER_ATTACHMENT = 1_000
_ATTACHMENT = re.compile(r"data:[\w.+/-]+;base64,[A-Za-z0-9+/=_-]*")


def text_tokens(text: str | None) -> int:
    """Tokens of a text that is a message or a tool of its own; none without it."""
    return estimate_text_tokens(text) + _TOKENS_PER_ITEM if text else 0


def messages_tokens(messages: Iterable[AgentMessage | FrameworkMessage]) -> int:
    """Tokens of messages together."""
    return sum(map(message_tokens, messages))


def message_tokens(message: AgentMessage | FrameworkMessage) -> int:
    """Tokens of one message: of a user's its text, of every other the items that are sent back."""
    if message.role == "user":
        return text_tokens(message.text)
    item = message.framework_item
    if ";base64," not in item:
        return text_tokens(item)
    without, attachments = _ATTACHMENT.subn("", item)
    return text_tokens(without) + attachments * _TOKENS_PER_ATTACHMENT


def agent_tokens(agent: Agent[Any], built_in_tools: Iterable[str]) -> int:
    """Tokens of an agent besides the conversation: its instructions and tools, as far as they are constant."""
    tokens = text_tokens(agent.instructions) if isinstance(agent.instructions, str) else 0
    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            tokens += text_tokens(_tool_text(tool.name, tool.description, tool.params_json_schema))
    for name in built_in_tools:
        definition = BUILT_IN_TOOL_DEFINITIONS[name]
        tokens += text_tokens(_tool_text(name, definition.description, dict(definition.parameters)))
    return tokens


def _tool_text(name: str, description: str, schema: Any) -> str:
    return f"{name}\n{description}\n{json.dumps(schema, ensure_ascii=False)}"
