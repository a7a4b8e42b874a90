"""The life of a tool call's record: moved between statuses, and made final exactly once."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dex_agents.session.events import emit_interrupt_resolved, emit_tool_call_finished
from dex_agents.session.identity import interrupt_id
from dex_agents.session.persistence import (
    AGENT_TOOL_CALLS,
    INTERRUPT_RESOLUTIONS,
    PENDING_INTERRUPTS,
    TOOL_CALL_CANCELLATIONS,
    TOOL_CALL_RESULTS,
)
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.questions import open_question_id
from dex_agents.session.step_types import CALL_SINGLE_ATTEMPT_TOOL, CALL_TOOL
from dex_agents.session.texts import EARLIER_ATTEMPT_FAILED
from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    CancellationReason,
    ToolCallCompleted,
    ToolEffect,
)
from dex_agents.session.transition_rules import FINAL_STATUSES, check_status_move
from dex_flow import StateView, Transaction

__all__ = [
    "drop_interrupt",
    "finalize_tool_call",
    "find_interrupt",
    "get_record",
    "move_record",
    "reject_tool_call",
    "take_interrupt",
    "tool_step_type",
    "turn_records",
]

Status = AgentToolCallRecordStatus

_WAITING_STATUSES = frozenset({Status.AWAITING_APPROVAL, Status.AWAITING_ANSWER, Status.WAITING_FOR_TIMER})


def turn_records(view: StateView) -> tuple[AgentToolCallRecord, ...]:
    """The active turn's records, in call order."""
    records = [record for _, record in view.read_range(AGENT_TOOL_CALLS)]
    return tuple(sorted(records, key=lambda record: record.deferral_order))


def get_record(view: StateView, tool_call_id: str) -> AgentToolCallRecord:
    """The record of a call of the active turn.

    Raises:
        LookupError: There is none.
    """
    record = view.get_instance(AGENT_TOOL_CALLS, tool_call_id)
    if record is None:
        raise LookupError(f"the active turn has no tool call {tool_call_id!r}")
    return record


def tool_step_type(effect: ToolEffect) -> str:
    """The Step type that runs calls of this effect."""
    return CALL_TOOL if EFFECT_RULES[effect].may_repeat else CALL_SINGLE_ATTEMPT_TOOL


def move_record(tx: Transaction, record: AgentToolCallRecord, status: Status, **changes: Any) -> AgentToolCallRecord:
    """Store the record with an open `status`.

    Raises:
        StatusMoveError: The move is not allowed.
    """
    moved = _moved(record, status, changes)
    tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, moved)
    return moved


def _moved(record: AgentToolCallRecord, status: Status, changes: dict[str, Any]) -> AgentToolCallRecord:
    check_status_move(record, status)
    return replace(record, status=status, **changes)


def finalize_tool_call(
    tx: Transaction, turn_id: str, record: AgentToolCallRecord, status: Status, **changes: Any
) -> AgentToolCallRecord:
    """Make a record final: the only place that does.

    It publishes exactly one `ToolCallResults` message, drops the call's interrupt and purges its channel instances.

    Args:
        tx: The transaction.
        turn_id: The active turn.
        record: The record as stored.
        status: A final status.
        changes: Further fields, such as `output` or `error`.

    Raises:
        StatusMoveError: The record is final already, or the move is not allowed.
    """
    assert status in FINAL_STATUSES
    final = _moved(record, status, {"finished_at": tx.now, "is_running": False, "arguments_schema": None, **changes})
    tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, final)
    for key in _interrupt_keys(turn_id, record):
        drop_interrupt(
            tx,
            turn_id,
            key,
            rejection_message=final.rejection_message,
            cancellation_reason=final.cancellation_reason,
        )
    if record.status in _WAITING_STATUSES:
        tx.purge_messages(TOOL_CALL_CANCELLATIONS, interrupt_id(turn_id, record.tool_call_id))
    tx.publish(TOOL_CALL_RESULTS, ToolCallCompleted(tool_call_id=record.tool_call_id))
    emit_tool_call_finished(tx, turn_id, final)
    return final


def reject_tool_call(
    tx: Transaction,
    turn_id: str,
    record: AgentToolCallRecord,
    *,
    rejection_message: str | None = None,
    cancellation_reason: CancellationReason | None = None,
) -> None:
    """Record a call that goes no further; by its effect when an earlier attempt failed, which may have taken effect.

    Args:
        tx: The transaction.
        turn_id: The active turn.
        record: The record as stored; no attempt of it runs.
        rejection_message: A person's words, or what the session says in their place.
        cancellation_reason: What cancelled it.
    """
    status, error = Status.REJECTED, None
    if record.earlier_attempt_failed and record.effect is not ToolEffect.READ:
        status, error = EFFECT_RULES[record.effect].status_when_lost, EARLIER_ATTEMPT_FAILED
    finalize_tool_call(
        tx,
        turn_id,
        record,
        status,
        error=error,
        rejection_message=rejection_message,
        cancellation_reason=cancellation_reason,
    )


def _interrupt_keys(turn_id: str, record: AgentToolCallRecord) -> list[str]:
    keys = [interrupt_id(turn_id, record.tool_call_id)] if record.requires_approval else []
    if record.status is Status.AWAITING_ANSWER:
        keys.append(open_question_id(turn_id, record))
    return keys


def drop_interrupt(
    tx: Transaction,
    turn_id: str,
    key: str,
    *,
    rejection_message: str | None = None,
    cancellation_reason: CancellationReason | None = None,
) -> None:
    """End an interrupt that nobody decided, when it is still pending, and purge its decisions.

    Args:
        tx: The transaction.
        turn_id: The active turn.
        key: The interrupt's ID.
        rejection_message: Why it ended without a decision.
        cancellation_reason: What cancelled it.
    """
    interrupt = take_interrupt(tx, key)
    if interrupt is not None:
        emit_interrupt_resolved(
            tx,
            turn_id,
            interrupt,
            approved=False,
            rejection_message=rejection_message,
            cancellation_reason=cancellation_reason,
        )
    tx.purge_messages(INTERRUPT_RESOLUTIONS, key)


def find_interrupt(view: StateView, key: str) -> AgentInterrupt | None:
    """The pending interrupt with this ID."""
    pending = view.get(PENDING_INTERRUPTS) or ()
    return next((interrupt for interrupt in pending if interrupt.interrupt_id == key), None)


def take_interrupt(tx: Transaction, key: str) -> AgentInterrupt | None:
    """Remove the pending interrupt with this ID and return it."""
    interrupt = find_interrupt(tx, key)
    if interrupt is not None:
        pending = tx.get(PENDING_INTERRUPTS) or ()
        tx.set(PENDING_INTERRUPTS, tuple(other for other in pending if other.interrupt_id != key))
    return interrupt
