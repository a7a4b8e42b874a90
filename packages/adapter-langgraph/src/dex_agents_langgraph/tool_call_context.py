"""What a tool may know about the durable call it runs in."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass

from dex_agents import DeferredToolExecution

__all__ = ["IDEMPOTENCY_KEY", "SessionToolCall", "current_session_tool_call", "entered_tool_call"]

#: Where the key stands in `config["configurable"]` of a tool's call.
IDEMPOTENCY_KEY = "dex_idempotency_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionToolCall:
    """The durable call a tool runs in.

    Attributes:
        idempotency_key: The same on every attempt, different for every call. Hand it to what the tool writes to.
        attempt: From 1.
        session_id: The session.
        turn_id: The turn.
        tool_call_id: The session's own ID of the call.
    """

    idempotency_key: str
    attempt: int
    session_id: str
    turn_id: str
    tool_call_id: str


_current: contextvars.ContextVar[SessionToolCall | None] = contextvars.ContextVar("dex_session_tool_call", default=None)


def current_session_tool_call() -> SessionToolCall | None:
    """The durable call that the tool runs in, in its thread or coroutine; None outside of a session."""
    return _current.get()


class entered_tool_call:
    """Makes a call the current one."""

    def __init__(self, call: DeferredToolExecution) -> None:
        self._call = SessionToolCall(
            idempotency_key=call.idempotency_key,
            attempt=call.attempt,
            session_id=call.flow_id,
            turn_id=call.turn_id,
            tool_call_id=call.tool_call.tool_call_id,
        )

    def __enter__(self) -> None:
        self._token = _current.set(self._call)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
