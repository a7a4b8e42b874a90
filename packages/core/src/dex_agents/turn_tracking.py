"""Following one user message: from the queue to the turn that takes it, and to how that turn ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dex_agents.client_results import SentMessage, TurnStatus
from dex_agents.message_receipts import text_digest
from dex_agents.session.event_values import AgentEvent, decode_event_payload
from dex_agents.session.message_store import load_page
from dex_agents.session.persistence import (
    AGENT_STATE,
    PENDING_INTERRUPTS,
    QUEUED_USER_MESSAGES,
    STEERED_USER_MESSAGES,
)
from dex_agents.session.tool_values import AgentInterrupt
from dex_agents.session.values import AgentMessage, AgentState, TurnError
from dex_flow import StateView, StreamEvent

__all__ = ["TurnObservation", "TurnTracker", "find_turn_ending", "status_of_ending"]

_PAGE_SIZE = 200
_ENDING_SEARCH_WINDOW = 64

_STATUS_BY_ENDING = {
    "turn_completed": TurnStatus.COMPLETED,
    "turn_failed": TurnStatus.FAILED,
    "turn_steered": TurnStatus.STEERED,
    "turn_cancelled": TurnStatus.CANCELLED,
}

ReadEvents = Callable[[int, int], Awaitable[Sequence[StreamEvent]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnObservation:
    """What one committed state says about the message.

    Attributes:
        is_waiting: Whether a person must act before the message's turn can go on or begin.
        turn_id: The turn that took the message; None while it waits, and when it was withdrawn.
        messages: The turn's messages behind it.
        pending_interrupts: What waits for a person.
        last_turn_error: Why the session's latest failed turn failed.
    """

    is_waiting: bool
    turn_id: str | None = None
    messages: tuple[AgentMessage, ...] = ()
    pending_interrupts: tuple[AgentInterrupt, ...] = ()
    last_turn_error: TurnError | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the message waited in one state."""

    turn_count: int
    last_sequence: int
    turns_ahead: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """The turn that took the message, and the message's sequence in it."""

    turn_id: str
    sequence: int


class TurnTracker:
    """A wait condition: None while the message's turn runs or is to come, and what there is to report then.

    The queue says by ID whether the message still waits. Once it does not, its turn is looked for among those that
    started since it was last seen waiting: the one expected from its place in the queue if that turn begins with its
    text, else the nearest one that does. No turn from before the message was accepted is ever looked at.

    Args:
        sent: The message.
    """

    def __init__(self, sent: SentMessage) -> None:
        receipt = sent.receipt
        self._sent = sent
        self._place = _Place(receipt.turn_count, receipt.last_message_sequence, receipt.turns_ahead)
        self._taken: _Taken | None = None

    def __call__(self, view: StateView) -> TurnObservation | None:
        """Look at one committed state.

        An engine may look at two states at once, on two threads, and at an older one last; each call therefore decides
        by its own state, and what it remembers is one value, never replaced by an older one.
        """
        state = view.get(AGENT_STATE)
        if state is None:
            return None
        pending = view.get(PENDING_INTERRUPTS) or ()
        taken = self._taken
        if taken is None:
            turns_ahead = self._turns_before_message(view)
            if turns_ahead is not None:
                self._remember(_Place(state.turn_count, state.last_message_sequence, turns_ahead))
                return TurnObservation(is_waiting=True, pending_interrupts=pending) if pending else None
            taken = self._taken = self._find_turn(view, self._place)
            if taken is None:
                return TurnObservation(is_waiting=False)
        if state.turn_count < _turn_number(taken.turn_id):
            return None
        is_active = state.active_turn_id == taken.turn_id
        if is_active and not pending:
            return None
        return self._observe(view, state, taken, pending if is_active else ())

    def _remember(self, place: _Place) -> None:
        known = self._place
        if (place.turn_count, place.last_sequence) >= (known.turn_count, known.last_sequence):
            self._place = place

    def _turns_before_message(self, view: StateView) -> int | None:
        """How many turns start before the message's, None when it waits no more."""
        receipt = self._sent.receipt
        steered = view.list_messages(STEERED_USER_MESSAGES)
        for place, (queued_id, _) in enumerate(view.list_messages(QUEUED_USER_MESSAGES)):
            if queued_id == receipt.message_id:
                return place + bool(steered)
        # Steering gives a message a new ID; what it keeps is its text and time.
        if any((message.text, message.sent_at) == (self._sent.text, receipt.sent_at) for _, message in steered):
            return 0
        return None

    def _find_turn(self, view: StateView, place: _Place) -> _Taken | None:
        expected = place.turn_count + place.turns_ahead + 1
        found: dict[int, _Taken] = {}
        turn_id, is_opening = "", True
        for message in _messages_after(view, place.last_sequence):
            if message.turn_id != turn_id:
                turn_id, is_opening = message.turn_id, _turn_number(message.turn_id) > place.turn_count
            is_opening = is_opening and message.role == "user"
            if is_opening and text_digest(message.text) == self._sent.receipt.text_digest:
                found.setdefault(_turn_number(turn_id), _Taken(turn_id, message.sequence))
        nearest = min(found, key=lambda number: (abs(number - expected), number), default=None)
        return None if nearest is None else found[nearest]

    def _observe(
        self, view: StateView, state: AgentState, taken: _Taken, pending: tuple[AgentInterrupt, ...]
    ) -> TurnObservation:
        return TurnObservation(
            is_waiting=bool(pending),
            turn_id=taken.turn_id,
            messages=tuple(
                message for message in _messages_after(view, taken.sequence) if message.turn_id == taken.turn_id
            ),
            pending_interrupts=pending,
            last_turn_error=state.last_turn_error,
        )


def _messages_after(view: StateView, sequence: int) -> list[AgentMessage]:
    pages: list[tuple[AgentMessage, ...]] = []
    before: int | None = None
    while True:
        page = load_page(view, before, _PAGE_SIZE)
        pages.append(page.messages)
        before = page.next_before_sequence
        if before is None or before <= sequence:
            return [message for messages in reversed(pages) for message in messages if message.sequence > sequence]


def _turn_number(turn_id: str) -> int:
    return int(turn_id.rpartition("-")[2])


async def find_turn_ending(read: ReadEvents, turn_id: str) -> AgentEvent | None:
    """The live event that says how a turn ended, or None when it is no longer kept.

    Events stand in the order of their turns, so a binary search finds the turn's last one with a few small reads.

    Args:
        read: Reads at most so many (second argument) events above a position (first argument).
        turn_id: A turn that is over.
    """
    number = _turn_number(turn_id)

    async def is_behind(position: int) -> bool:
        events = await read(position, 1)
        return not events or _turn_number(events[0].value.turn_id) > number

    if await is_behind(0):
        return None
    low, step = 0, 1
    while not await is_behind(low + step):
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if await is_behind(middle):
            high = middle
        else:
            low = middle
    for event in reversed(await read(max(0, high - _ENDING_SEARCH_WINDOW), _ENDING_SEARCH_WINDOW)):
        ending: AgentEvent = event.value
        if ending.turn_id == turn_id and ending.type in _STATUS_BY_ENDING:
            return ending
    return None


def status_of_ending(
    ending: AgentEvent | None, turn_id: str, last_turn_error: TurnError | None
) -> tuple[TurnStatus, TurnError | None]:
    """How a turn ended, and why when it failed.

    Args:
        ending: The event that says so; None when it is no longer kept.
        turn_id: The turn.
        last_turn_error: The session's latest error.
    """
    error = last_turn_error if last_turn_error is not None and last_turn_error.turn_id == turn_id else None
    if ending is None:
        return (TurnStatus.ENDED, None) if error is None else (TurnStatus.FAILED, error)
    status = _STATUS_BY_ENDING[ending.type]
    if status is not TurnStatus.FAILED:
        return status, None
    if error is None:
        error_type, _, message = str(decode_event_payload(ending)["error"]).partition(": ")
        error = TurnError(turn_id=turn_id, type=error_type, message=message)
    return status, error
