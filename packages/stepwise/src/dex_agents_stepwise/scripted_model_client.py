"""A model client that answers from a script: for demos, tutorials and tests without a model key."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dex_agents import AgentUsage
from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS
from dex_agents_stepwise.model_client import (
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelToolCall,
    ModelToolResult,
    ModelUserText,
)

__all__ = ["ScriptedModelClient", "ScriptedModelReply", "ScriptedReplyHold", "ScriptedToolCall"]

_NEW_ID = re.compile(r"call_([0-9]{1,9})_[0-9]+")


@dataclass(frozen=True, kw_only=True)
class ScriptedToolCall:
    """A tool call of a scripted reply.

    Attributes:
        tool_name: The tool.
        arguments: The arguments; text is sent as it is, so that a script can send broken JSON.
        tool_call_id: The ID the "provider" gives it; None makes one that is new in the conversation.
    """

    tool_name: str
    arguments: Mapping[str, Any] | str = ""
    tool_call_id: str | None = None


class ScriptedReplyHold:
    """Stops scripted replies in the middle of their stream, until they are released or cancelled.

    It lets a test act at a known point of a model call without any clock. Use it on one event loop.

    Args:
        after_deltas: How many pieces of reasoning and text are sent first. A shorter reply stops at its end.

    Raises:
        ValueError: `after_deltas` is negative.
    """

    def __init__(self, *, after_deltas: int = 0) -> None:
        if after_deltas < 0:
            raise ValueError(f"after_deltas must not be negative, not {after_deltas}")
        self.after_deltas = after_deltas
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def wait_until_reached(self) -> None:
        """Return as soon as a reply has stopped here."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the replies that stopped here go on, and later ones pass."""
        self._released.set()

    async def stop_reply(self) -> None:
        """Wait for the release; called by the client."""
        self._reached.set()
        await self._released.wait()


@dataclass(frozen=True, kw_only=True)
class ScriptedModelReply:
    """What the scripted model says.

    Attributes:
        text: The text.
        reasoning: The reasoning text, streamed before the text.
        tool_calls: The tool calls.
        usage: The usage, if the script knows it.
        hold: Where the reply stops until it is released or cancelled.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: Sequence[ScriptedToolCall | ModelToolCall] = ()
    usage: AgentUsage | None = None
    hold: ScriptedReplyHold | None = None


class ScriptedModelClient:
    """Answers each call from a function of the request.

    Keep the function deterministic: a model call that a crash interrupted is made again. A cancelled call stops where
    it is: in the function, at a hold, or between two pieces of the stream.

    Args:
        reply: Maps a request to a reply, or to an awaitable of one.
        provider: Provider name stored with the replies; items of another name are replayed as text and calls only.
        api: API name stored with the replies.
        delta_characters: Text and reasoning stream in pieces of this many characters; None sends each in one piece.
        delta_interval_seconds: Seconds between two pieces, for a demo that streams visibly.
        max_recorded_requests: How many of the latest requests `requests` and `cancelled_requests` keep.

    Raises:
        TypeError: `reply` is not callable.
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        reply: Callable[[ModelRequest], ScriptedModelReply | Awaitable[ScriptedModelReply]],
        *,
        provider: str = "scripted",
        api: str = "scripted",
        delta_characters: int | None = None,
        delta_interval_seconds: float = 0.0,
        max_recorded_requests: int = 100,
    ) -> None:
        if not callable(reply):
            raise TypeError(f"reply must be a function of the request, not {reply!r}")
        if delta_characters is not None and delta_characters < 1:
            raise ValueError(f"delta_characters must be at least 1 or None, not {delta_characters}")
        if not 0 <= delta_interval_seconds < math.inf:
            raise ValueError(f"delta_interval_seconds must not be negative, not {delta_interval_seconds}")
        if max_recorded_requests < 0:
            raise ValueError(f"max_recorded_requests must not be negative, not {max_recorded_requests}")
        self.provider = provider
        self.api = api
        self._reply = reply
        self._delta_characters = delta_characters
        self._delta_interval_seconds = delta_interval_seconds
        self._requests: deque[ModelRequest] = deque(maxlen=max_recorded_requests)
        self._cancelled_requests: deque[ModelRequest] = deque(maxlen=max_recorded_requests)

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The latest requests, oldest first."""
        return tuple(self._requests)

    @property
    def cancelled_requests(self) -> tuple[ModelRequest, ...]:
        """The latest requests whose call was cancelled before it returned, in the order of their cancellation."""
        return tuple(self._cancelled_requests)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer from the script."""
        self._requests.append(request)
        try:
            return await self._answer(request)
        except asyncio.CancelledError:
            self._cancelled_requests.append(request)
            raise

    async def _answer(self, request: ModelRequest) -> ModelResponse:
        answer = self._reply(request)
        reply = await answer if inspect.isawaitable(answer) else answer
        if not isinstance(reply, ScriptedModelReply):
            raise TypeError(f"the script must return a ScriptedModelReply, not {reply!r}")
        await self._stream(request, reply)
        calls = _model_tool_calls(request, reply.tool_calls)
        return ModelResponse(
            text=reply.text,
            reasoning_text=reply.reasoning,
            tool_calls=calls,
            item=_item(reply, calls),
            usage=reply.usage,
        )

    async def _stream(self, request: ModelRequest, reply: ScriptedModelReply) -> None:
        deltas = [(request.on_reasoning_delta, piece) for piece in self._pieces(reply.reasoning)]
        deltas += [(request.on_text_delta, piece) for piece in self._pieces(reply.text)]
        stop = None if reply.hold is None else min(reply.hold.after_deltas, len(deltas))
        for number, (send, piece) in enumerate(deltas):
            if number:
                # Even without an interval: nothing else gives a cancellation the chance to arrive mid-way.
                await asyncio.sleep(self._delta_interval_seconds)
            if reply.hold is not None and number == stop:
                await reply.hold.stop_reply()
            send(piece)
        if reply.hold is not None and stop == len(deltas):
            await reply.hold.stop_reply()

    @staticmethod
    def is_summary_request(request: ModelRequest) -> bool:
        """Whether the session wants earlier messages summarised; the reply's text becomes the summary."""
        return request.instructions == CONTEXT_SUMMARY_INSTRUCTIONS

    @staticmethod
    def user_texts(request: ModelRequest) -> list[str]:
        """Every user text of the conversation, oldest first; notes of the session, such as its plan, are among them."""
        return [item.text for item in request.input_items if isinstance(item, ModelUserText)]

    @staticmethod
    def tool_results(request: ModelRequest) -> list[ModelToolResult]:
        """The tool results since the last user text, oldest first: none at the beginning of a turn."""
        results: list[ModelToolResult] = []
        for item in request.input_items:
            if isinstance(item, ModelUserText):
                results.clear()
            elif isinstance(item, ModelToolResult):
                results.append(item)
        return results

    def _pieces(self, text: str) -> list[str]:
        size = self._delta_characters or len(text) or 1
        return [text[start : start + size] for start in range(0, len(text), size)]


def _model_tool_calls(
    request: ModelRequest, calls: Sequence[ScriptedToolCall | ModelToolCall]
) -> tuple[ModelToolCall, ...]:
    outputs = [item for item in request.input_items if isinstance(item, ModelOutput)]
    # After earlier responses were summarised, their number alone would give IDs of those that are left again.
    used = (_NEW_ID.fullmatch(call.tool_call_id) for output in outputs for call in output.tool_calls)
    response = 1 + max([len(outputs), *(int(match[1]) for match in used if match is not None)])
    return tuple(_model_tool_call(call, f"call_{response}_{number}") for number, call in enumerate(calls, start=1))


def _model_tool_call(call: ScriptedToolCall | ModelToolCall, new_id: str) -> ModelToolCall:
    return ModelToolCall(
        tool_call_id=new_id if call.tool_call_id is None else call.tool_call_id,
        tool_name=call.tool_name,
        arguments=call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments)),
    )


def _item(reply: ScriptedModelReply, calls: tuple[ModelToolCall, ...]) -> str | None:
    if not reply.text.strip() and not calls:
        return None
    content: dict[str, Any] = {"text": reply.text, "reasoning": reply.reasoning}
    content["tool_calls"] = [
        {"id": call.tool_call_id, "name": call.tool_name, "arguments": call.arguments} for call in calls
    ]
    return json.dumps(content, ensure_ascii=False)
