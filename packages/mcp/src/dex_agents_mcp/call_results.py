"""The text a model reads of a tool's result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dex_agents import ToolExecutionError, ToolExecutionResult
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_text

__all__ = ["canonical_json", "is_call_result", "limited_text", "tool_execution_result"]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, Python's separators, and whole numbers written as such."""
    return json.dumps(_plain(sanitize_json_value(value)), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def limited_text(text: str, limit: int) -> str:
    """The text, cut with a notice when it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[Dex] The result was cut here: it has {len(text)} characters and the limit is {limit}."


def is_call_result(result: Mapping[str, Any]) -> bool:
    """Whether it says what the tool returned; a server may send both forms, or either."""
    return isinstance(result.get("content"), list) or "structuredContent" in result


def tool_execution_result(tool_name: str, result: Mapping[str, Any], limit: int) -> ToolExecutionResult:
    """The result of a call: text blocks joined by newlines, any other content as JSON.

    Args:
        tool_name: The tool, for a failure without words.
        result: What the server returned; `is_call_result` holds.
        limit: Most characters.

    Raises:
        ToolExecutionError: The server says that the tool failed.
    """
    content = result.get("content")
    blocks = [_block_text(block) for block in content] if isinstance(content, list) else []
    if not blocks and "structuredContent" in result:
        blocks = [canonical_json(result["structuredContent"])]
    text = limited_text("\n".join(blocks), limit)
    if result.get("isError") is True:
        raise ToolExecutionError(text if text.strip() else f"the tool {tool_name} failed without a message")
    return ToolExecutionResult(output=text)


def _block_text(block: Any) -> str:
    if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return sanitize_text(block["text"])
    return canonical_json(block)
