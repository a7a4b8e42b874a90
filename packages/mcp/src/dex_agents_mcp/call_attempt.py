"""One attempt of one call as the parts of the source see it, whoever asked for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from dex_agents import AgentEventWriter, QuestionAnswer
from dex_agents_mcp.tool_references import ToolReference

__all__ = ["IDEMPOTENCY_KEY_META_KEY", "CallAttempt", "ProgressEvents", "write_task_status"]

#: Where in a request's `_meta` a server finds the key that is the same on every attempt of one call.
IDEMPOTENCY_KEY_META_KEY = "io.superdurable.dex/idempotencyKey"

TOOL_PROGRESS = "mcp.tool_progress"
TASK_STATUS = "mcp.task_status"

PROGRESS_INTERVAL_SECONDS = 0.25
MAX_EVENT_TEXT_CHARACTERS = 2_000


@dataclass(frozen=True, kw_only=True)
class CallAttempt:
    """What a call is and what its attempt may do.

    Attributes:
        reference: Where it goes.
        tool_name: The name the model used.
        arguments: The arguments.
        idempotency_key: The same on every attempt.
        tool_call_id: The session's ID of the call; empty outside of a session.
        events: Live events; None outside of a session.
        heartbeat: Says that the attempt lives; None outside of a session.
        save_checkpoint: Stores a task's ID for the next attempt; None when no other attempt can go on with it.
        checkpoint: What an earlier attempt stored.
        can_ask: Whether the user can be asked.
        continuation: What was stored with the latest question.
        answers: How the call's questions ended, oldest first.
        trace_context: The W3C `traceparent` of the call.
    """

    reference: ToolReference
    tool_name: str
    arguments: Mapping[str, Any]
    idempotency_key: str
    tool_call_id: str = ""
    events: AgentEventWriter | None = None
    heartbeat: Callable[[], None] | None = None
    save_checkpoint: Callable[[str], Coroutine[Any, Any, None]] | None = None
    checkpoint: str | None = None
    can_ask: bool = False
    continuation: str | None = None
    answers: tuple[QuestionAnswer, ...] = ()
    trace_context: str | None = None

    def parameters(self) -> dict[str, Any]:
        """The parameters of `tools/call`."""
        meta = {IDEMPOTENCY_KEY_META_KEY: self.idempotency_key}
        if self.trace_context is not None:
            meta["traceparent"] = self.trace_context
        return {"name": self.reference.tool, "arguments": dict(self.arguments), "_meta": meta}


class ProgressEvents:
    """Writes a server's progress as events, four times a second at most; what came last is always written.

    Args:
        call: The call that makes progress.
    """

    def __init__(self, call: CallAttempt) -> None:
        self._call = call
        self._latest: dict[str, Any] | None = None
        self._next_write = 0.0

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Take one notification."""
        self._latest = {
            "tool_call_id": self._call.tool_call_id,
            "tool_name": self._call.tool_name,
            "progress": progress,
            "total": total,
            "message": None if message is None else message[:MAX_EVENT_TEXT_CHARACTERS],
        }
        if time.monotonic() >= self._next_write:
            self.write_latest()

    def write_latest(self) -> None:
        """Write what has not been written yet."""
        if self._latest is None or self._call.events is None:
            return
        self._call.events.write_event(TOOL_PROGRESS, self._latest)
        self._latest = None
        self._next_write = time.monotonic() + PROGRESS_INTERVAL_SECONDS


def write_task_status(
    events: AgentEventWriter | None,
    *,
    tool_call_id: str,
    tool_name: str,
    task_id: str,
    status: str,
    message: str | None,
) -> None:
    """Write that the status of a remote task changed."""
    if events is None:
        return
    payload = {
        "tool_call_id": tool_call_id,
        "tool_name": tool_name,
        "task_id": task_id,
        "status": status,
        "status_message": None if message is None else message[:MAX_EVENT_TEXT_CHARACTERS],
    }
    events.write_event(TASK_STATUS, payload)
