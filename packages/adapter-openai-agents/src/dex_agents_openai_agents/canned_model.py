"""The model of a step that runs one tool call: it asks for exactly that call, so that the SDK itself runs the tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.items import TResponseStreamEvent

__all__ = ["CannedModel"]


class CannedModel(Model):
    """Answers with one recorded call; asks no provider.

    Args:
        items: The call, as the model made it, behind what it belongs to.
    """

    def __init__(self, *items: Any) -> None:
        self._items = items

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """The recorded call."""
        return ModelResponse(output=list(self._items), usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Nothing streams a recorded call.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("a recorded tool call does not stream")
