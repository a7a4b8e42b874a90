"""Live events of one attempt: deltas are joined so that a fast model costs few writes, and order is kept."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from dex_agents.session.event_values import AgentEvent, encode_event_payload
from dex_agents.session.events import REASONING_DELTA, TEXT_DELTA
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_text
from dex_flow import Activity, Stream

__all__ = [
    "DELTA_INTERVAL_SECONDS",
    "MAX_EVENT_PAYLOAD_BYTES",
    "MAX_EVENT_TYPE_LENGTH",
    "RESERVED_EVENT_TYPES",
    "BufferedAgentEventWriter",
]

DELTA_INTERVAL_SECONDS = 0.05
MAX_EVENT_TYPE_LENGTH = 64
MAX_EVENT_PAYLOAD_BYTES = 64 * 1024

#: The wire contract's event types, those of capabilities that this release does not have included: an adapter that
#: used one would be taken for the session by clients of a later release.
RESERVED_EVENT_TYPES = frozenset(
    {
        "compaction_finished",
        "compaction_started",
        "interrupt_raised",
        "interrupt_resolved",
        "model_call_retrying",
        "plan_execution_started",
        "plan_updated",
        "reasoning_delta",
        "text_delta",
        "timer_started",
        "tool_call_deferred",
        "tool_call_finished",
        "tool_call_started",
        "tool_task_started",
        "turn_cancelled",
        "turn_completed",
        "turn_failed",
        "turn_limit_reached",
        "turn_started",
        "turn_steered",
        "usage_recorded",
    }
)

_EVENT_TYPE_PATTERN = re.compile(r"[a-z][a-z0-9_.-]*")


class BufferedAgentEventWriter:
    """An `AgentEventWriter` over an attempt's stream, usable from the event loop and from the runner's threads.

    A delta that comes after a pause is written at once. Those that follow are joined and written together, 20 times a
    second at most; pieces of another kind and other events keep their place between them. A character whose two
    surrogates come in two deltas is joined. Leaving the `with` block writes what is left; later writes are dropped.

    Args:
        activity: The attempt.
        stream: Where the events go.
        turn_id: The turn they belong to.
    """

    def __init__(self, activity: Activity, stream: Stream[AgentEvent], turn_id: str) -> None:
        self._activity = activity
        self._stream = stream
        self._turn_id = turn_id
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._pending: list[tuple[str, list[str]]] = []
        self._held_surrogates: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_delta_time = self._loop.time()
        self._is_closed = False

    def write_text_delta(self, text: str) -> None:
        """Append to the visible text.

        Raises:
            TypeError: `text` is not text.
        """
        self._write_delta(TEXT_DELTA, text)

    def write_reasoning_delta(self, text: str) -> None:
        """Append to the visible reasoning.

        Raises:
            TypeError: `text` is not text.
        """
        self._write_delta(REASONING_DELTA, text)

    def write_event(self, type: str, payload: Mapping[str, Any]) -> None:
        """Write an event of the adapter's own, after everything written so far.

        Args:
            type: Lower-case letters, digits and `_`, `.`, `-`, beginning with a letter; at most 64 characters, and
                not one of the session's own types.
            payload: A JSON object of at most 64 KiB as UTF-8.

        Raises:
            TypeError: `payload` is not a mapping with text keys, or holds something JSON cannot.
            ValueError: The type is not allowed, or the payload is too large.
        """
        _check_event_type(type)
        encoded = _encode_payload(type, payload)
        self._on_loop(self._emit_in_order, type, encoded)

    def close(self) -> None:
        """Write what is left and drop every later write."""
        if self._is_closed:
            return
        for kind in tuple(self._held_surrogates):
            self._append(kind, sanitize_text(self._held_surrogates.pop(kind)))
        self._flush()
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write_delta(self, kind: str, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a {kind} must be text, not {type(text).__name__}")
        self._on_loop(self._add_delta, kind, text)

    def _on_loop(self, function: Callable[[str, str], None], kind: str, text: str) -> None:
        if threading.get_ident() == self._loop_thread_id:
            function(kind, text)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, kind, text)

    def _add_delta(self, kind: str, text: str) -> None:
        if self._is_closed or not text:
            return
        text = self._held_surrogates.pop(kind, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._held_surrogates[kind] = text[-1]
            text = text[:-1]
        if not text:
            return
        self._append(kind, sanitize_text(text))
        if self._timer is not None:
            return
        now = self._loop.time()
        if now >= self._next_delta_time:
            self._flush()
        else:
            self._timer = self._loop.call_at(self._next_delta_time, self._flush)

    def _append(self, kind: str, text: str) -> None:
        if self._pending and self._pending[-1][0] == kind:
            self._pending[-1][1].append(text)
        else:
            self._pending.append((kind, [text]))

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self._next_delta_time = self._loop.time() + DELTA_INTERVAL_SECONDS
        for kind, pieces in pending:
            self._emit(kind, encode_event_payload({"text": "".join(pieces)}))

    def _emit_in_order(self, type: str, payload: str) -> None:
        if self._is_closed:
            return
        self._flush()
        self._emit(type, payload)

    def _emit(self, type: str, payload: str) -> None:
        event = AgentEvent(
            type=type,
            turn_id=self._turn_id,
            attempt=self._activity.attempt,
            step_execution_id=self._activity.step_execution_id,
            payload=payload,
            created_at=datetime.now(UTC),
        )
        self._activity.emit(self._stream, event)


def _check_event_type(type: str) -> None:
    if type in RESERVED_EVENT_TYPES:
        raise ValueError(f"the event type {type!r} is the session's own; use a name with your adapter's prefix")
    if len(type) > MAX_EVENT_TYPE_LENGTH or not _EVENT_TYPE_PATTERN.fullmatch(type):
        raise ValueError(
            f"the event type {type!r} must be 1 to {MAX_EVENT_TYPE_LENGTH} lower-case letters, digits, "
            "'_', '.' or '-', beginning with a letter"
        )


def _encode_payload(type: str, payload: Mapping[str, Any]) -> str:
    if not isinstance(payload, Mapping) or not all(isinstance(key, str) for key in payload):
        raise TypeError(f"the payload of event {type!r} must be a mapping with text keys, so that it is a JSON object")
    try:
        encoded = encode_event_payload(sanitize_json_value(dict(payload)))
    except (TypeError, msgspec.MsgspecError) as error:
        raise TypeError(f"the payload of event {type!r} cannot be written as JSON: {error}") from error
    size = len(encoded.encode())
    if size > MAX_EVENT_PAYLOAD_BYTES:
        raise ValueError(
            f"the payload of event {type!r} has {size} bytes; the limit is {MAX_EVENT_PAYLOAD_BYTES}. "
            "Store large data elsewhere and write a reference"
        )
    return encoded
