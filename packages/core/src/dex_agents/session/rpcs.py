"""The session's RPCs: pure functions over its state."""

from __future__ import annotations

from dex_agents.session.events import emit_interrupt_resolved
from dex_agents.session.messages import load_messages, load_page
from dex_agents.session.persistence import (
    AGENT_STATE,
    AGENT_USAGE,
    INTERRUPT_RESOLUTIONS,
    PENDING_INTERRUPTS,
    QUEUED_USER_MESSAGES,
    SESSION_SETTINGS,
)
from dex_agents.session.rpc_values import (
    AgentMessagePage,
    AgentSnapshot,
    DeleteQueuedMessageInput,
    ListAgentMessagesInput,
    ResolveInterruptInput,
    SendUserMessageInput,
)
from dex_agents.session.sanitizer import check_text_size, sanitize_text
from dex_agents.session.tool_calls import find_interrupt, take_interrupt, turn_records
from dex_agents.session.tool_values import AgentInterruptResolution
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.values import AgentUsage, AgentUserMessage, QueuedUserMessage
from dex_flow import Rpc, StateView, Transaction

__all__ = [
    "DELETE_QUEUED_MESSAGE",
    "GET_AGENT_SNAPSHOT",
    "LIST_AGENT_MESSAGES",
    "RESOLVE_INTERRUPT",
    "SEND_USER_MESSAGE",
    "SESSION_RPCS",
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


def _resolve_interrupt(tx: Transaction, input: ResolveInterruptInput) -> bool:
    interrupt = find_interrupt(tx, sanitize_text(input.interrupt_id))
    if interrupt is None or (interrupt.deadline is not None and interrupt.deadline <= tx.now):
        return False
    if interrupt.kind == "question" and input.approved:
        return False
    message = sanitize_text(input.rejection_message or "")
    check_text_size("the rejection message", message)
    rejection = message if message.strip() and not input.approved else None
    take_interrupt(tx, interrupt.interrupt_id)
    tx.publish_instance(
        INTERRUPT_RESOLUTIONS,
        interrupt.interrupt_id,
        AgentInterruptResolution(approved=input.approved, rejection_message=rejection, resolved_at=tx.now),
    )
    turn = active_turn(session_state(tx))
    emit_interrupt_resolved(tx, turn, interrupt, approved=input.approved, rejection_message=rejection)
    return True


def _get_agent_snapshot(view: StateView, input: None) -> AgentSnapshot:
    state = view.get(AGENT_STATE)
    queued = tuple(
        QueuedUserMessage(
            message_id=message_id, text=message.text, plan_mode=message.plan_mode, sent_at=message.sent_at
        )
        for message_id, message in view.list_messages(QUEUED_USER_MESSAGES)
    )
    return AgentSnapshot(
        state=state,
        messages=load_messages(view),
        pending_interrupts=view.get(PENDING_INTERRUPTS) or (),
        tool_calls=turn_records(view),
        usage=view.get(AGENT_USAGE) or AgentUsage(),
        queued_message_count=len(queued),
        queued_messages=queued,
        session_settings=view.get(SESSION_SETTINGS) or {},
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

SESSION_RPCS = (SEND_USER_MESSAGE, DELETE_QUEUED_MESSAGE, RESOLVE_INTERRUPT, GET_AGENT_SNAPSHOT, LIST_AGENT_MESSAGES)
