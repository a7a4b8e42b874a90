"""Live events of a session."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

__all__ = ["AgentEvent", "decode_event_payload", "encode_event_payload"]


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One live event of the `AgentEvents` stream.

    Group live text by `(turn_id, step_execution_id, attempt)`: of one Step execution keep only the highest attempt.

    Attributes:
        type: The kind of event.
        turn_id: The turn it belongs to.
        attempt: The Step's attempt, 0 for an event of an RPC.
        step_execution_id: The Step execution, 0 for an event of an RPC.
        payload: A JSON object as JSON text; its fields depend on `type`.
        created_at: When it was written.
    """

    type: str
    turn_id: str
    attempt: int
    step_execution_id: int
    payload: str
    created_at: datetime


def encode_event_payload(payload: dict[str, Any]) -> str:
    """The JSON text of an event's payload."""
    return msgspec.json.encode(payload).decode()


def decode_event_payload(event: AgentEvent) -> dict[str, Any]:
    """The event's payload as a dict."""
    return msgspec.json.decode(event.payload, type=dict[str, Any])
