"""The session's RPCs: pure functions over its state."""

from __future__ import annotations

from typing import Any

from dex_agents.session.events import emit_interrupt_resolved
from dex_agents.session.messages import load_messages, load_page
from dex_agents.session.persistence import (
    AGENT_STATE,
    AGENT_USAGE,
    INTERRUPT_RESOLUTIONS,
    PENDING_INTERRUPTS,
    QUEUED_USER_MESSAGES,
    SESSION_SETTINGS,
    STEERED_USER_MESSAGES,
    TURN_CANCELLATION_REQUEST,
)
from dex_agents.session.questions import is_acceptable_answer
from dex_agents.session.rpc_values import (
    AgentMessagePage,
    AgentSnapshot,
    AnswerQuestionInput,
    CancelTurnInput,
    DeleteQueuedMessageInput,
    ListAgentMessagesInput,
    ResolveInterruptInput,
    SendUserMessageInput,
    SteerUserMessageInput,
)
from dex_agents.session.sanitizer import check_text_size, sanitize_text
from dex_agents.session.step_types import FINISH_TURN_CANCELLATION
from dex_agents.session.tool_calls import find_interrupt, take_interrupt, turn_records
from dex_agents.session.tool_values import AgentInterrupt, AgentInterruptResolution, TurnCancellationRequest
from dex_agents.session.transition_rules import CANCELLED_BY_TURN_CANCELLATION
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.turn_control import request_turn_control
from dex_agents.session.values import AgentUsage, AgentUserMessage, QueuedUserMessage
from dex_flow import Channel, Rpc, StateView, Transaction

__all__ = [
    "ANSWER_QUESTION",
    "CANCEL_TURN",
    "DELETE_QUEUED_MESSAGE",
    "GET_AGENT_SNAPSHOT",
    "LIST_AGENT_MESSAGES",
    "RESOLVE_INTERRUPT",
    "SEND_USER_MESSAGE",
    "SESSION_RPCS",
    "STEER_USER_MESSAGE",
]


def _send_user_message(tx: Transaction, input: SendUserMessageInput) -> bool:
    text = sanitize_text(input.text)
    if not text.strip() or input.plan_mode:
        return False
    check_text_size("the user message", text)
    tx.publish(QUEUED_USER_MESSAGES, AgentUserMessage(text=text, sent_at=tx.now))
    return True


def _delete_queued_message(tx: Transaction, input: DeleteQueuedMessageInput) -> bool:
    return tx.delete_message(QUEUED_USER_MESSAGES, input.message_id)


def _steer_user_message(tx: Transaction, input: SteerUserMessageInput) -> bool:
    if (input.message_id is None) == (input.text is None):
        return False
    is_active = session_state(tx).active_turn_id is not None
    if input.text is not None:
        text = sanitize_text(input.text)
        if not text.strip():
            return False
        check_text_size("the user message", text)
        message = AgentUserMessage(text=text, sent_at=tx.now)
        if not is_active:
            tx.publish(QUEUED_USER_MESSAGES, message)
            return True
    else:
        assert input.message_id is not None
        queued = dict(tx.list_messages(QUEUED_USER_MESSAGES)).get(input.message_id)
        if queued is None or not is_active:
            return False
        tx.delete_message(QUEUED_USER_MESSAGES, input.message_id)
        message = queued
    tx.publish(STEERED_USER_MESSAGES, message)
    request_turn_control(tx, "steered")
    return True


def _cancel_turn(tx: Transaction, input: CancelTurnInput) -> bool:
    turn = session_state(tx).active_turn_id
    if turn is None or input.turn_id not in (None, turn):
        return False
    requested = tx.get(TURN_CANCELLATION_REQUEST)
    if requested is None or requested.turn_id != turn:
        tx.set(TURN_CANCELLATION_REQUEST, TurnCancellationRequest(turn_id=turn, requested_at=tx.now))
        tx.cancel_steps(*CANCELLED_BY_TURN_CANCELLATION)
        tx.start_step(FINISH_TURN_CANCELLATION, turn)
    return True


def _answer_question(tx: Transaction, input: AnswerQuestionInput) -> bool:
    interrupt = _open_interrupt(tx, input.interrupt_id)
    answer = sanitize_text(input.answer)
    if interrupt is None or not is_acceptable_answer(interrupt, answer):
        return False
    check_text_size("the answer", answer)
    resolution = AgentInterruptResolution(approved=True, answer=answer, resolved_at=tx.now)
    _publish_resolution(tx, interrupt, resolution)
    return True


def _open_interrupt(tx: Transaction, interrupt_id: str) -> AgentInterrupt | None:
    interrupt = find_interrupt(tx, sanitize_text(interrupt_id))
    if interrupt is None or (interrupt.deadline is not None and interrupt.deadline <= tx.now):
        return None
    return interrupt


def _publish_resolution(tx: Transaction, interrupt: AgentInterrupt, resolution: AgentInterruptResolution) -> None:
    take_interrupt(tx, interrupt.interrupt_id)
    tx.publish_instance(INTERRUPT_RESOLUTIONS, interrupt.interrupt_id, resolution)
    emit_interrupt_resolved(
        tx,
        active_turn(session_state(tx)),
        interrupt,
        approved=resolution.approved,
        answered=resolution.answer is not None,
        rejection_message=resolution.rejection_message,
    )


def _resolve_interrupt(tx: Transaction, input: ResolveInterruptInput) -> bool:
    interrupt = _open_interrupt(tx, input.interrupt_id)
    if interrupt is None or (interrupt.kind == "question" and input.approved):
        return False
    message = sanitize_text(input.rejection_message or "")
    check_text_size("the rejection message", message)
    rejection = message if message.strip() and not input.approved else None
    resolution = AgentInterruptResolution(approved=input.approved, rejection_message=rejection, resolved_at=tx.now)
    _publish_resolution(tx, interrupt, resolution)
    return True


def _get_agent_snapshot(view: StateView, input: None) -> AgentSnapshot:
    state = view.get(AGENT_STATE)
    queued = _waiting_messages(view, QUEUED_USER_MESSAGES)
    return AgentSnapshot(
        state=state,
        messages=load_messages(view),
        pending_interrupts=view.get(PENDING_INTERRUPTS) or (),
        tool_calls=turn_records(view),
        usage=view.get(AGENT_USAGE) or AgentUsage(),
        queued_message_count=len(queued),
        queued_messages=queued,
        steered_messages=_waiting_messages(view, STEERED_USER_MESSAGES),
        session_settings=view.get(SESSION_SETTINGS) or {},
    )


def _waiting_messages(view: StateView, channel: Channel[AgentUserMessage]) -> tuple[QueuedUserMessage, ...]:
    return tuple(
        QueuedUserMessage(
            message_id=message_id, text=message.text, plan_mode=message.plan_mode, sent_at=message.sent_at
        )
        for message_id, message in view.list_messages(channel)
    )


def _list_agent_messages(view: StateView, input: ListAgentMessagesInput) -> AgentMessagePage:
    return load_page(view, input.before_sequence, input.limit)


#: Queue a message; False for a blank text, and for `plan_mode` where plan mode is off.
SEND_USER_MESSAGE: Rpc[SendUserMessageInput, bool] = Rpc(
    "send_user_message", _send_user_message, SendUserMessageInput, bool
)
#: Delete a queued message; False when it is no longer queued.
DELETE_QUEUED_MESSAGE: Rpc[DeleteQueuedMessageInput, bool] = Rpc(
    "delete_queued_message", _delete_queued_message, DeleteQueuedMessageInput, bool
)
#: Steer the running turn with new text, or with a queued message; text is queued while no turn is active.
STEER_USER_MESSAGE: Rpc[SteerUserMessageInput, bool] = Rpc(
    "steer_user_message", _steer_user_message, SteerUserMessageInput, bool
)
#: Stop a turn; False when no turn is active or another one is.
CANCEL_TURN: Rpc[CancelTurnInput, bool] = Rpc("cancel_turn", _cancel_turn, CancelTurnInput, bool)
#: Answer a question; False when it is not pending, past its deadline, no question, or the answer is not acceptable.
ANSWER_QUESTION: Rpc[AnswerQuestionInput, bool] = Rpc("answer_question", _answer_question, AnswerQuestionInput, bool)
#: Decide about an interrupt; False when it is not pending, past its deadline, or a question with `approved`.
RESOLVE_INTERRUPT: Rpc[ResolveInterruptInput, bool] = Rpc(
    "resolve_interrupt", _resolve_interrupt, ResolveInterruptInput, bool
)
#: Everything a client needs to show the session.
GET_AGENT_SNAPSHOT: Rpc[None, AgentSnapshot] = Rpc(
    "get_agent_snapshot", _get_agent_snapshot, type(None), AgentSnapshot, read_only=True
)
#: A page of stored messages.
LIST_AGENT_MESSAGES: Rpc[ListAgentMessagesInput, AgentMessagePage] = Rpc(
    "list_agent_messages", _list_agent_messages, ListAgentMessagesInput, AgentMessagePage, read_only=True
)

SESSION_RPCS: tuple[Rpc[Any, Any], ...] = (
    SEND_USER_MESSAGE,
    STEER_USER_MESSAGE,
    DELETE_QUEUED_MESSAGE,
    CANCEL_TURN,
    RESOLVE_INTERRUPT,
    ANSWER_QUESTION,
    GET_AGENT_SNAPSHOT,
    LIST_AGENT_MESSAGES,
)
