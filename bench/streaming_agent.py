"""The agent of the cancel benchmark: its model streams until it is cancelled, and tells when that reaches it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from dex_agents import AgentSessionFlow
from dex_agents_stepwise import (
    AgentDefinition,
    InstructionContext,
    ModelRequest,
    ModelResponse,
    create_stepwise_agent_session_flow,
)

__all__ = ["ModelMoment", "MomentKind", "create_streaming_flow"]

MomentKind = Literal["streams", "cancelled", "cleaned_up"]

SECONDS_BETWEEN_DELTAS = 0.01


class ModelMoment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in the coroutine of a model call.

    Attributes:
        turn: The session and the turn.
        kind: It `streams`, its `finally` began (`cancelled`), or ended (`cleaned_up`).
        at: Seconds of `time.monotonic`, the same clock in every process of a machine.
    """

    turn: str
    kind: MomentKind
    at: float


class _StreamingModel:
    provider = "streaming"
    api = "streaming"

    def __init__(self, tell: Callable[[ModelMoment], None], cleanup_seconds: float) -> None:
        self._tell = tell
        self._cleanup_seconds = cleanup_seconds

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Stream for ever."""
        turn = request.instructions
        try:
            request.on_text_delta("One ")
            self._tell_now(turn, "streams")
            while True:
                await asyncio.sleep(SECONDS_BETWEEN_DELTAS)
                request.on_text_delta("more ")
        finally:
            self._tell_now(turn, "cancelled")
            if self._cleanup_seconds:
                await asyncio.sleep(self._cleanup_seconds)
            self._tell_now(turn, "cleaned_up")

    def _tell_now(self, turn: str, kind: MomentKind) -> None:
        self._tell(ModelMoment(turn=turn, kind=kind, at=time.monotonic()))


def _turn_of_call(context: InstructionContext) -> str:
    return f"{context.flow_id}/{context.turn_id}"


def create_streaming_flow(tell: Callable[[ModelMoment], None], cleanup_seconds: float = 0.0) -> AgentSessionFlow:
    """The session Flow of the agent.

    Args:
        tell: Told every moment, on the event loop of the model call.
        cleanup_seconds: How long the model's `finally` takes, as closing a slow connection would.
    """
    model = _StreamingModel(tell, cleanup_seconds)
    agent = AgentDefinition(name="streaming", instructions=_turn_of_call, model=model)
    return create_stepwise_agent_session_flow(agent, "StreamingSession")
