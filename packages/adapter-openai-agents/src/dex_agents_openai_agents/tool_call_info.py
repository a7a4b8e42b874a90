"""What a tool may know about its call, wherever in the tool's code it asks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from dex_agents import AgentEventWriter, DeferredToolExecution

__all__ = ["CurrentToolCall", "current_tool_call", "running_tool_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentToolCall:
    """One attempt of one tool call.

    Attributes:
        idempotency_key: The same on every attempt of the call, different for every call of every session.
        attempt: From 1.
        flow_id: The session's ID.
        turn_id: The turn.
        tool_call_id: The session's ID of the call.
        deadline: When the attempt times out, aware UTC; None without a limit.
        events: Live events of the attempt; best effort, never waits.
    """

    idempotency_key: str
    attempt: int
    flow_id: str
    turn_id: str
    tool_call_id: str
    deadline: datetime | None
    events: AgentEventWriter


_current: ContextVar[CurrentToolCall] = ContextVar("dex_agents_openai_agents_current_tool_call")


def current_tool_call() -> CurrentToolCall:
    """The session's call that the calling code belongs to.

    It works in async tools, in sync tools (which the SDK runs in threads), in handoff callbacks, in MCP
    `tool_meta_resolver`s, and in the tools of an agent that is used as a tool. Those all see the call of the agent that
    was used as a tool, so they combine its key with their own `ToolContext.tool_call_id`.

    Raises:
        LookupError: No call of a session runs here, as in a plain `Runner.run`.
    """
    call = _current.get(None)
    if call is None:
        raise LookupError("current_tool_call() was called outside a tool call of a durable session")
    return call


@contextlib.contextmanager
def running_tool_call(call: DeferredToolExecution) -> Iterator[None]:
    """Make a call the current one of everything that runs inside the block."""
    token = _current.set(
        CurrentToolCall(
            idempotency_key=call.idempotency_key,
            attempt=call.attempt,
            flow_id=call.flow_id,
            turn_id=call.turn_id,
            tool_call_id=call.tool_call.tool_call_id,
            deadline=call.deadline,
            events=call.events,
        )
    )
    try:
        yield
    finally:
        _current.reset(token)
