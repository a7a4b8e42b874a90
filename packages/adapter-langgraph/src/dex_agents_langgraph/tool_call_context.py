"""What a tool may know about the durable call it runs in."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass, field

from dex_agents import DeferredToolExecution, ToolTaskStarted

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
        has_remote_tasks: Whether the session can follow remote work of the tool.
    """

    idempotency_key: str
    attempt: int
    session_id: str
    turn_id: str
    tool_call_id: str
    has_remote_tasks: bool = False
    _started: list[ToolTaskStarted] = field(default_factory=list, init=False, repr=False, compare=False)

    def start_task(self, task_id: str, *, poll_interval_seconds: float) -> str:
        """Hand remote work that the tool has started to the session, which polls it.

        What the tool returns then is not used: the model reads the result of the poll that finds the work done.

        Args:
            task_id: The remote system's own ID of the work.
            poll_interval_seconds: Time between polls.

        Returns:
            A text that the tool may return.

        Raises:
            RuntimeError: `remote_tasks` does not name the tool, or it has started a task.
        """
        if not self.has_remote_tasks:
            raise RuntimeError("remote_tasks does not name this tool, so nothing could follow its task")
        if self._started:
            raise RuntimeError("a call starts one task")
        self._started.append(ToolTaskStarted(task_id=task_id, poll_interval_seconds=poll_interval_seconds))
        return f"started {task_id}"

    @property
    def started_task(self) -> ToolTaskStarted | None:
        """The task that the tool has started."""
        return self._started[0] if self._started else None


_current: contextvars.ContextVar[SessionToolCall | None] = contextvars.ContextVar("dex_session_tool_call", default=None)


def current_session_tool_call() -> SessionToolCall | None:
    """The durable call that the tool runs in, in its thread or coroutine; None outside of a session."""
    return _current.get()


class entered_tool_call:
    """Makes a call the current one.

    Args:
        call: The call.
        has_remote_tasks: Whether the session can follow remote work of the tool.
    """

    def __init__(self, call: DeferredToolExecution, *, has_remote_tasks: bool) -> None:
        self._call = SessionToolCall(
            idempotency_key=call.idempotency_key,
            attempt=call.attempt,
            session_id=call.flow_id,
            turn_id=call.turn_id,
            tool_call_id=call.tool_call.tool_call_id,
            has_remote_tasks=has_remote_tasks,
        )

    def __enter__(self) -> SessionToolCall:
        self._token = _current.set(self._call)
        return self._call

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
