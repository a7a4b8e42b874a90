"""The session's RPCs: pure functions over its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dex_agents.session.changed_arguments import changed_arguments_problem, changed_arguments_text, is_change
from dex_agents.session.events import emit_interrupt_resolved
from dex_agents.session.message_store import load_messages, load_page
from dex_agents.session.persistence import (
    AGENT_PLAN,
    AGENT_STATE,
    AGENT_USAGE,
    CONTEXT_SUMMARY,
    INTERRUPT_RESOLUTIONS,
    PENDING_INTERRUPTS,
    PENDING_PLAN_EXECUTION,
    PLAN_EXECUTIONS,
    QUEUED_USER_MESSAGES,
    SESSION_SETTINGS,
    STEERED_USER_MESSAGES,
    TURN_CANCELLATION_REQUEST,
    TURN_CONTROL_REQUESTS,
)
from dex_agents.session.plan_values import PlanExecutionRequest
from dex_agents.session.plans import can_execute, plan_execution_key
from dex_agents.session.questions import is_acceptable_answer
from dex_agents.session.rpc_values import (
    AgentMessagePage,
    AgentSnapshot,
    AnswerQuestionInput,
    CancelTurnInput,
    DeleteQueuedMessageInput,
    ExecutePlanInput,
    ListAgentMessagesInput,
    ResolveInterruptInput,
    SendUserMessageInput,
    SteerUserMessageInput,
    UpdateSessionSettingsInput,
)
from dex_agents.session.sanitizer import check_text_size, sanitize_json_value, sanitize_text
from dex_agents.session.settings import settings_problem
from dex_agents.session.step_types import FINISH_TURN_CANCELLATION
from dex_agents.session.tool_calls import find_interrupt, get_record, take_interrupt, turn_records
from dex_agents.session.tool_values import AgentInterrupt, AgentInterruptResolution, TurnCancellationRequest
from dex_agents.session.transition_rules import CANCELLED_BY_TURN_CANCELLATION
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.turn_control import request_turn_control
from dex_agents.session.values import AgentStatus, AgentUsage, AgentUserMessage, QueuedUserMessage
from dex_flow import Channel, Rpc, StateView, Transaction

__all__ = [
    "ANSWER_QUESTION",
    "CANCEL_TURN",
    "DELETE_QUEUED_MESSAGE",
    "EXECUTE_PLAN",
    "GET_AGENT_SNAPSHOT",
    "LIST_AGENT_MESSAGES",
    "RESOLVE_INTERRUPT",
    "SEND_USER_MESSAGE",
    "SESSION_RPCS",
    "STEER_USER_MESSAGE",
    "UPDATE_SESSION_SETTINGS",
    "session_rpcs",
]


def _send_user_message(tx: Transaction, input: SendUserMessageInput, *, plan_mode_enabled: bool) -> bool:
    text = sanitize_text(input.text)
    if not text.strip() or (input.plan_mode and not plan_mode_enabled):
        return False
    check_text_size("the user message", text)
    tx.publish(QUEUED_USER_MESSAGES, AgentUserMessage(text=text, plan_mode=input.plan_mode, sent_at=tx.now))
    return True


def _send_user_message_without_plan_mode(tx: Transaction, input: SendUserMessageInput) -> bool:
    return _send_user_message(tx, input, plan_mode_enabled=False)


def _send_user_message_with_plan_mode(tx: Transaction, input: SendUserMessageInput) -> bool:
    return _send_user_message(tx, input, plan_mode_enabled=True)


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
        arguments_changed=resolution.arguments is not None,
    )


def _resolve_interrupt(tx: Transaction, input: ResolveInterruptInput) -> bool:
    interrupt = _open_interrupt(tx, input.interrupt_id)
    if interrupt is None or (interrupt.kind == "question" and input.approved):
        return False
    message = sanitize_text(input.rejection_message or "")
    check_text_size("the rejection message", message)
    rejection = message if message.strip() and not input.approved else None
    arguments = None
    if input.arguments is not None:
        record = get_record(tx, interrupt.tool_call_id)
        if not input.approved or changed_arguments_problem(input.arguments, record.arguments_schema) is not None:
            return False
        if is_change(input.arguments, record.arguments):
            arguments = changed_arguments_text(input.arguments)
    resolution = AgentInterruptResolution(
        approved=input.approved, rejection_message=rejection, arguments=arguments, resolved_at=tx.now
    )
    _publish_resolution(tx, interrupt, resolution)
    return True


def _execute_plan(tx: Transaction, input: ExecutePlanInput) -> bool:
    state = session_state(tx)
    if state.status is not AgentStatus.WAITING_FOR_USER_MESSAGE or not can_execute(tx, input.revision):
        return False
    waiting: tuple[Channel[Any], ...] = (TURN_CONTROL_REQUESTS, STEERED_USER_MESSAGES, QUEUED_USER_MESSAGES)
    if any(tx.count_messages(channel) for channel in waiting):
        return False
    request = PlanExecutionRequest(revision=input.revision)
    tx.set(PENDING_PLAN_EXECUTION, request)
    tx.publish_instance(PLAN_EXECUTIONS, plan_execution_key(input.revision), request)
    return True


def _update_session_settings(tx: Transaction, input: UpdateSessionSettingsInput) -> bool:
    settings = input.session_settings
    if settings is None or tx.get(AGENT_STATE) is None or settings_problem(settings) is not None:
        return False
    if settings:
        tx.set(SESSION_SETTINGS, sanitize_json_value(settings))
    elif tx.get(SESSION_SETTINGS) is not None:
        tx.delete(SESSION_SETTINGS)
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
        plan=view.get(AGENT_PLAN),
        context_summary=view.get(CONTEXT_SUMMARY),
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
    "send_user_message", _send_user_message_without_plan_mode, SendUserMessageInput, bool
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
#: Carry out the plan's revision; False unless the session is idle and this revision waits for it.
EXECUTE_PLAN: Rpc[ExecutePlanInput, bool] = Rpc("execute_plan", _execute_plan, ExecutePlanInput, bool)
#: Replace the settings from the next turn on; False for null, and for settings that cannot be stored.
UPDATE_SESSION_SETTINGS: Rpc[UpdateSessionSettingsInput, bool] = Rpc(
    "update_session_settings", _update_session_settings, UpdateSessionSettingsInput, bool
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
    EXECUTE_PLAN,
    UPDATE_SESSION_SETTINGS,
    GET_AGENT_SNAPSHOT,
    LIST_AGENT_MESSAGES,
)


def session_rpcs(*, plan_mode_enabled: bool) -> tuple[Rpc[Any, Any], ...]:
    """The RPCs of a Flow type, whose `send_user_message` follows its plan mode."""
    if not plan_mode_enabled:
        return SESSION_RPCS
    planning = replace(SEND_USER_MESSAGE, handler=_send_user_message_with_plan_mode)
    return tuple(planning if rpc is SEND_USER_MESSAGE else rpc for rpc in SESSION_RPCS)
