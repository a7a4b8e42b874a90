"""Turns as a client sees them: steered, stopped, and waited for."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents.client_connection import SessionConnection
from dex_agents.client_results import (
    CancelResult,
    MessageRefusedError,
    SendResult,
    SentMessage,
    SteerResult,
    TurnResult,
    TurnStatus,
)
from dex_agents.message_receipts import SEND_USER_MESSAGE_WITH_RECEIPT, ReceiptRpc
from dex_agents.session.persistence import AGENT_STATE, QUEUED_USER_MESSAGES
from dex_agents.session.rpc_values import CancelTurnInput, SendUserMessageInput, SteerUserMessageInput
from dex_agents.session.rpcs import CANCEL_TURN, STEER_USER_MESSAGE
from dex_agents.session.sanitizer import sanitize_text
from dex_agents.session.values import AgentMessage, AgentState
from dex_agents.session_activity import is_idle
from dex_agents.turn_tracking import TurnTracker, find_turn_ending, status_of_ending
from dex_flow import StateView

__all__ = ["SessionTurns", "refusal_reason"]


class SessionTurns(SessionConnection):
    """The part of the session client that steers, stops and waits for turns."""

    async def steer_user_message(
        self,
        session_id: str,
        text: str | None = None,
        *,
        message_id: int | None = None,
        request_id: str | None = None,
    ) -> bool:
        """End the running turn at its next safe boundary and start one with this message; False when it is refused.

        While no turn runs, a text is queued and so starts a turn at once. `steer_user_message_with_reason` says why a
        message was refused.

        Args:
            session_id: The session.
            text: A new message.
            message_id: Instead, a queued message, from a snapshot's `queued_messages`.
            request_id: Makes the call repeatable.

        Raises:
            ValueError: Not exactly one of `text` and `message_id` is given.
        """
        if (text is None) == (message_id is None):
            raise ValueError("steer_user_message takes either a text or a message_id")
        steer_input = SteerUserMessageInput(message_id=message_id, text=None if text is None else sanitize_text(text))
        return await self._call(session_id, STEER_USER_MESSAGE, steer_input, request_id)

    async def steer_user_message_with_reason(
        self,
        session_id: str,
        text: str | None = None,
        *,
        message_id: int | None = None,
        request_id: str | None = None,
    ) -> SteerResult:
        """`steer_user_message` with the reason of a refusal, read right after it: advice for a person."""
        if await self.steer_user_message(session_id, text, message_id=message_id, request_id=request_id):
            return SteerResult.ACCEPTED
        if text is not None:
            return SteerResult.REFUSED if sanitize_text(text).strip() else SteerResult.BLANK_TEXT
        queued = await self._read(
            session_id, lambda view: {queued_id for queued_id, _ in view.list_messages(QUEUED_USER_MESSAGES)}
        )
        return SteerResult.NO_ACTIVE_TURN if message_id in queued else SteerResult.NOT_QUEUED

    async def cancel_turn(self, session_id: str, turn_id: str | None = None, *, request_id: str | None = None) -> bool:
        """Stop a turn now; True once that is recorded, False when the turn is not active.

        A running model call is cancelled and its answer dropped, and so is every wait. A tool that has started runs to
        its end, and the turn ends after it. An answer that was stored first still completes the turn. Stopping a turn
        twice is True and changes nothing. `cancel_turn_with_reason` says why it was refused.

        Args:
            session_id: The session.
            turn_id: Only this turn; None for the active one.
            request_id: Makes the call repeatable.
        """
        cancel_input = CancelTurnInput(turn_id=None if turn_id is None else sanitize_text(turn_id))
        return await self._call(session_id, CANCEL_TURN, cancel_input, request_id)

    async def cancel_turn_with_reason(
        self, session_id: str, turn_id: str | None = None, *, request_id: str | None = None
    ) -> CancelResult:
        """`cancel_turn` with the reason of a refusal, read right after it: advice for a person."""
        if await self.cancel_turn(session_id, turn_id, request_id=request_id):
            return CancelResult.ACCEPTED
        if turn_id is None:
            return CancelResult.NO_ACTIVE_TURN
        state = await self._engine.get_attribute(session_id, AGENT_STATE)
        is_active = state is not None and state.active_turn_id is not None
        return CancelResult.ANOTHER_TURN if is_active else CancelResult.NO_ACTIVE_TURN

    async def wait_until_idle(self, session_id: str, *, timeout: float | None = None) -> AgentState:
        """Wait until no turn is active and no message waits for one, and return that state.

        A turn that waits for a decision is active. `last_turn_error` says whether the latest turn failed.

        Raises:
            TimeoutError: The session is still busy after `timeout` seconds; says with what.
        """

        def idle(view: StateView) -> AgentState | None:
            state = view.get(AGENT_STATE)
            return state if state is not None and is_idle(view, state) else None

        return await self._wait_until(session_id, idle, timeout, "being idle")

    async def send_and_wait(
        self,
        session_id: str,
        text: str,
        *,
        plan_mode: bool = False,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> TurnResult:
        """Send a user message and wait until the turn that takes it is over or needs a person.

        The message may queue behind other turns; their answers are never taken for its own. When the turn, or the one
        the message waits behind, needs a decision or an answer, this returns with `waiting_for_person`: decide, then
        go on with `wait_for_turn(result.sent_message)`.

        Args:
            session_id: The session.
            text: The message.
            plan_mode: Whether its turn only plans.
            timeout: Seconds to wait; None waits for ever. The message stays sent: repeat the call with the same
                `request_id` to go on waiting, or use `send_with_receipt` and `wait_for_turn`.
            request_id: Makes the call repeatable: repeated, it sends nothing and waits for the same turn. The ID is
                this call's own; `send_user_message` with it is another request.

        Raises:
            MessageRefusedError: The session did not take the message; carries the reason.
            TimeoutError: The turn is not over after `timeout` seconds; says what the session is doing.
            FlowClosedError: The session was stopped.
        """
        return await self.wait_for_turn(
            await self.send_with_receipt(session_id, text, plan_mode=plan_mode, request_id=request_id), timeout=timeout
        )

    async def send_with_receipt(
        self, session_id: str, text: str, *, plan_mode: bool = False, request_id: str | None = None
    ) -> SentMessage:
        """Send a user message and return at once with what `wait_for_turn` needs.

        Raises:
            MessageRefusedError: The session did not take the message; carries the reason.
        """
        repaired = sanitize_text(text)
        rpc: ReceiptRpc = self._flow.rpc(SEND_USER_MESSAGE_WITH_RECEIPT)
        receipt = await self._call(
            session_id, rpc, SendUserMessageInput(text=repaired, plan_mode=plan_mode), request_id
        )
        if receipt is None:
            raise MessageRefusedError(refusal_reason(repaired, plan_mode))
        return SentMessage(session_id, repaired, receipt)

    async def wait_for_turn(self, sent_message: SentMessage, *, timeout: float | None = None) -> TurnResult:
        """Wait until the turn that takes a sent message is over or needs a person.

        Args:
            sent_message: From `send_with_receipt` or from an earlier result.
            timeout: Seconds to wait; None waits for ever.

        Raises:
            TimeoutError: The turn is not over after `timeout` seconds; says what the session is doing.
            FlowClosedError: The session was stopped.
        """
        session_id = sent_message.session_id
        awaited = f"the end of the turn that takes message {sent_message.receipt.message_id}"
        seen = await self._wait_until(session_id, TurnTracker(sent_message), timeout, awaited)
        if seen.is_waiting:
            await self._check_open(session_id)
            status, error = TurnStatus.WAITING_FOR_PERSON, None
        elif seen.turn_id is None:
            status, error = TurnStatus.WITHDRAWN, None
        else:
            ending = await find_turn_ending(
                lambda after, limit: self._engine.read_stream(session_id, self._events, after=after, limit=limit),
                seen.turn_id,
            )
            status, error = status_of_ending(ending, seen.turn_id, seen.last_turn_error)
        return TurnResult(
            status=status,
            sent_message=sent_message,
            turn_id=seen.turn_id,
            text=_answer(seen.messages) if status in (TurnStatus.COMPLETED, TurnStatus.ENDED) else "",
            messages=seen.messages,
            pending_interrupts=seen.pending_interrupts,
            error=error,
        )


def refusal_reason(text: str, plan_mode: bool) -> SendResult:
    """Why a repaired message was not taken."""
    if not text.strip():
        return SendResult.BLANK_TEXT
    return SendResult.PLAN_MODE_UNAVAILABLE if plan_mode else SendResult.REFUSED


def _answer(messages: Sequence[AgentMessage]) -> str:
    return next((message.text for message in reversed(messages) if message.role == "assistant"), "")
