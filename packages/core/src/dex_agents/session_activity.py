"""What a session is doing, in words for the person who waits for it."""

from __future__ import annotations

from dex_agents.session.persistence import (
    AGENT_STATE,
    PENDING_INTERRUPTS,
    QUEUED_USER_MESSAGES,
    STEERED_USER_MESSAGES,
    TURN_CANCELLATION_REQUEST,
)
from dex_agents.session.tool_calls import turn_records
from dex_agents.session.tool_values import AgentToolCallRecord
from dex_agents.session.transition_rules import FINAL_STATUSES
from dex_agents.session.values import AgentState, AgentStatus
from dex_flow import StateView

__all__ = ["describe_activity", "is_idle"]

_MAX_NAMED = 5


def is_idle(view: StateView, state: AgentState) -> bool:
    """Whether no turn is active and none is about to start."""
    return state.status is AgentStatus.WAITING_FOR_USER_MESSAGE and not (
        view.count_messages(QUEUED_USER_MESSAGES) or view.count_messages(STEERED_USER_MESSAGES)
    )


def describe_activity(view: StateView) -> str:
    """One line: the turn and what it does, who is waited for, and what waits behind it."""
    state = view.get(AGENT_STATE)
    if state is None:
        return "it has not begun"
    parts = [_turn(view, state)]
    pending = view.get(PENDING_INTERRUPTS) or ()
    if pending:
        named = _list(
            [f"{interrupt.kind} {interrupt.interrupt_id!r} of {interrupt.tool_name}" for interrupt in pending]
        )
        parts.append(f"it waits for a person: {named}")
    for channel, what in ((STEERED_USER_MESSAGES, "steer the turn"), (QUEUED_USER_MESSAGES, "wait for a turn")):
        count = view.count_messages(channel)
        if count:
            parts.append(f"messages that {what}: {count}")
    return "; ".join(parts)


def _turn(view: StateView, state: AgentState) -> str:
    match state.status:
        case AgentStatus.WAITING_FOR_USER_MESSAGE:
            return "it waits for a user message"
        case AgentStatus.RUNNING_MODEL:
            doing = f"{state.active_turn_id} is at model step {state.turn_model_step_count + 1}"
        case AgentStatus.RUNNING_TOOLS:
            open_calls = [_call(record) for record in turn_records(view) if record.status not in FINAL_STATUSES]
            doing = f"{state.active_turn_id} has open tool calls: {_list(open_calls)}"
        case AgentStatus.COMPACTING_CONTEXT:
            doing = f"{state.active_turn_id} is compacting its context"
    cancellation = view.get(TURN_CANCELLATION_REQUEST)
    is_cancelled = cancellation is not None and cancellation.turn_id == state.active_turn_id
    return f"{doing}, and was cancelled" if is_cancelled else doing


def _call(record: AgentToolCallRecord) -> str:
    if record.is_running:
        return f"{record.tool_name} (running, attempt {record.attempt})"
    return f"{record.tool_name} ({record.status.value})"


def _list(items: list[str]) -> str:
    named = ", ".join(items[:_MAX_NAMED])
    return named if len(items) <= _MAX_NAMED else f"{named} and {len(items) - _MAX_NAMED} more"
