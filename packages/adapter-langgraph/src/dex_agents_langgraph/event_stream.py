"""The live events of a model step, out of LangGraph's message stream."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk

from dex_agents import AgentEventWriter

__all__ = ["ModelEventStream"]

_HIDDEN_TAG = "nostream"


class ModelEventStream:
    """Writes what the models say as text and reasoning deltas.

    Args:
        events: Where they go.
    """

    def __init__(self, events: AgentEventWriter) -> None:
        self._events = events
        self._seen: set[str] = set()

    def write(self, message: Any, metadata: dict[str, Any]) -> None:
        """Write one event of the stream; what middleware says to itself, such as a summary, is not for people."""
        if not isinstance(message, AIMessage) or metadata.get("lc_source"):
            return
        if _HIDDEN_TAG in (metadata.get("tags") or ()):
            return
        identifier = message.id or ""
        if isinstance(message, AIMessageChunk):
            self._seen.add(identifier)
        elif identifier in self._seen:
            return  # the whole message behind its own chunks, or an old one that a node returned
        blocks: list[Any] = list(message.content_blocks)
        for block in blocks:
            if block.get("type") == "text" and block.get("text"):
                self._events.write_text_delta(block["text"])
            elif block.get("type") == "reasoning" and block.get("reasoning"):
                self._events.write_reasoning_delta(block["reasoning"])
        self._seen.add(identifier)
