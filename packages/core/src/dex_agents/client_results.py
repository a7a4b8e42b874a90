"""What the session client returns beside the session's own values: events with positions, and reasons of refusals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dex_agents.message_receipts import UserMessageReceipt
from dex_agents.session.event_values import AgentEvent, decode_event_payload
from dex_agents.session.tool_values import AgentInterrupt
from dex_agents.session.values import AgentMessage, TurnError

__all__ = [
    "AnswerResult",
    "CancelResult",
    "ExecutePlanResult",
    "MessageRefusedError",
    "ResolveResult",
    "SendResult",
    "SentMessage",
    "SteerResult",
    "StreamedAgentEvent",
    "TurnResult",
    "TurnStatus",
]


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
    INVALID_ARGUMENTS = "invalid_arguments"  #: the changed arguments do not fit the tool; `invalid_arguments_reason`


class ExecutePlanResult(StrEnum):
    """What became of approving a plan."""

    ACCEPTED = "accepted"  #: a turn carries it out
    ANOTHER_REVISION = "another_revision"  #: the plan was replaced; look at the newest one and approve that
    NOTHING_TO_EXECUTE = "nothing_to_execute"  #: there is no plan, or it is completed or cleared
    BUSY = "busy"  #: a turn runs, or a message waits for one; approve again when the session is idle


class AnswerResult(StrEnum):
    """What became of an answer to a question."""

    ACCEPTED = "accepted"  #: the answer counts
    BLANK_ANSWER = "blank_answer"  #: nothing but whitespace; write something, or decline with `resolve_interrupt`
    NOT_PENDING = "not_pending"  #: nothing waits under this ID: answered already, expired, cancelled or never asked
    NOT_A_QUESTION = "not_a_question"  #: an approval; decide with `resolve_interrupt`
    NOT_A_CHOICE = "not_a_choice"  #: the question takes one of its choices only
    DEADLINE_PASSED = "deadline_passed"  #: it came too late


class SteerResult(StrEnum):
    """What became of a message that was to steer the running turn."""

    ACCEPTED = "accepted"  #: the turn ends at its next safe boundary, or the message starts a turn at once
    BLANK_TEXT = "blank_text"  #: nothing but whitespace; send some text
    NOT_QUEUED = "not_queued"  #: the message no longer waits: its turn has begun, it steers already, or it was deleted
    NO_ACTIVE_TURN = "no_active_turn"  #: no turn runs, so the queued message starts one by itself
    REFUSED = "refused"  #: for a reason this release does not know, from a session of a newer one


class CancelResult(StrEnum):
    """What became of stopping a turn."""

    ACCEPTED = "accepted"  #: the turn ends without an answer
    NO_ACTIVE_TURN = "no_active_turn"  #: nothing runs, so there is nothing to stop
    ANOTHER_TURN = "another_turn"  #: the turn has ended or has not begun; another one, or none, is active


class TurnStatus(StrEnum):
    """Where the turn of a sent message is."""

    COMPLETED = "completed"  #: ended with an answer
    FAILED = "failed"  #: ended with an error
    STEERED = "steered"  #: ended without an answer, because a new message of the user came first
    CANCELLED = "cancelled"  #: ended without an answer, because the user stopped it
    WAITING_FOR_PERSON = "waiting_for_person"  #: it, or the turn it waits behind, needs a decision or an answer
    WITHDRAWN = "withdrawn"  #: the message was deleted before its turn began
    ENDED = "ended"  #: over, but how is not known any more, because its live events were trimmed


class MessageRefusedError(ValueError):
    """The session did not take a message.

    Args:
        reason: Why.
    """

    def __init__(self, reason: SendResult) -> None:
        super().__init__(f"the session refused the message: {reason.value}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A user message the session accepted; wait for its turn with `AgentSessionClient.wait_for_turn`.

    Attributes:
        session_id: The session.
        text: The message, repaired.
        receipt: What tells its turn from other turns.
    """

    session_id: str
    text: str
    receipt: UserMessageReceipt


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What came of a sent message.

    Attributes:
        status: Where its turn is.
        sent_message: The message; pass it to `wait_for_turn` to go on waiting.
        turn_id: The turn that took it; None while it waits behind another turn, and when it was withdrawn.
        text: The answer of a turn that completed (or ended, how is not known): the text of its last assistant message.
        messages: The turn's stored messages behind it, oldest first.
        pending_interrupts: What waits for a person, oldest first.
        error: Why the turn failed.
    """

    status: TurnStatus
    sent_message: SentMessage
    turn_id: str | None = None
    text: str = ""
    messages: tuple[AgentMessage, ...] = ()
    pending_interrupts: tuple[AgentInterrupt, ...] = ()
    error: TurnError | None = None


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
