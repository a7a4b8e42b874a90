"""What the session client returns beside the session's own values: events with positions, and reasons of refusals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dex_agents.session.event_values import AgentEvent, decode_event_payload

__all__ = ["ResolveResult", "SendResult", "StreamedAgentEvent"]


class SendResult(StrEnum):
    """What became of a user message."""

    ACCEPTED = "accepted"  #: queued, or the start of a turn
    BLANK_TEXT = "blank_text"  #: nothing but whitespace; send some text
    PLAN_MODE_UNAVAILABLE = "plan_mode_unavailable"  #: the session has no plan mode; send without it
    REFUSED = "refused"  #: for a reason this release does not know, from a session of a newer one


class ResolveResult(StrEnum):
    """What became of a decision on an interrupt."""

    ACCEPTED = "accepted"  #: the decision counts
    NOT_PENDING = "not_pending"  #: nothing waits under this ID: decided already, expired, cancelled or never raised
    DEADLINE_PASSED = "deadline_passed"  #: it came too late
    NOT_AN_APPROVAL = "not_an_approval"  #: a question; answer or decline it


@dataclass(frozen=True, slots=True)
class StreamedAgentEvent:
    """One live event and where it stands in the session's stream.

    Attributes:
        position: From 1, increasing; pass it as `after` to go on behind this event.
        event: The event as stored.
    """

    position: int
    event: AgentEvent

    @property
    def type(self) -> str:
        """The kind of event."""
        return self.event.type

    @property
    def turn_id(self) -> str:
        """The turn it belongs to."""
        return self.event.turn_id

    @property
    def payload(self) -> dict[str, Any]:
        """The event's data, decoded; its fields depend on `type`."""
        return decode_event_payload(self.event)
