"""The life of a tool call's record: deferred, moved between statuses, and made final exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from dex_agents.session.events import (
    emit_interrupt_raised,
    emit_interrupt_resolved,
    emit_tool_call_deferred,
    emit_tool_call_finished,
)
from dex_agents.session.identity import allocate_tool_call_id, interrupt_id
from dex_agents.session.outcomes import RequestedToolCall
from dex_agents.session.persistence import (
    AGENT_TOOL_CALLS,
    INTERRUPT_RESOLUTIONS,
    PENDING_INTERRUPTS,
    TOOL_CALL_RESULTS,
)
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.step_types import AWAIT_TOOL_APPROVAL, CALL_SINGLE_ATTEMPT_TOOL, CALL_TOOL
from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    ToolCallCompleted,
    ToolEffect,
)
from dex_agents.session.transition_rules import ALLOWED_STATUS_MOVES, FINAL_STATUSES
from dex_flow import Movement, StateView, Transaction, move

__all__ = [
    "StatusMoveError",
    "defer_tool_calls",
    "finalize_tool_call",
    "find_interrupt",
    "get_record",
    "move_record",
    "take_interrupt",
    "tool_step_type",
    "turn_records",
]

Status = AgentToolCallRecordStatus


class StatusMoveError(ValueError):
    """A record was asked to go where `ALLOWED_STATUS_MOVES` does not let it."""


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
    if status not in ALLOWED_STATUS_MOVES[record.status]:
        raise StatusMoveError(
            f"tool call {record.tool_call_id!r} cannot go from {record.status.value} to {status.value}"
        )
    return replace(record, status=status, **changes)


def finalize_tool_call(
    tx: Transaction, turn_id: str, record: AgentToolCallRecord, status: Status, **changes: Any
) -> AgentToolCallRecord:
    """Make a record final: the only place that does.

    It publishes exactly one `ToolCallResults` message, drops the call's interrupt and purges its channel instance.

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
    final = _moved(record, status, {"finished_at": tx.now, "is_running": False, **changes})
    tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, final)
    if record.requires_approval:
        key = interrupt_id(turn_id, record.tool_call_id)
        interrupt = take_interrupt(tx, key)
        if interrupt is not None:
            emit_interrupt_resolved(
                tx,
                turn_id,
                interrupt,
                approved=False,
                rejection_message=final.rejection_message,
                cancellation_reason=final.cancellation_reason,
            )
        tx.purge_messages(INTERRUPT_RESOLUTIONS, key)
    tx.publish(TOOL_CALL_RESULTS, ToolCallCompleted(tool_call_id=record.tool_call_id))
    emit_tool_call_finished(tx, turn_id, final)
    return final


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


def defer_tool_calls(
    tx: Transaction,
    turn_id: str,
    calls: Sequence[RequestedToolCall],
    *,
    first_order: int,
    model_step_number: int,
    interrupt_deadline: timedelta | None,
) -> tuple[list[AgentToolCallRecord], list[Movement]]:
    """Store a record for every call the model asked for, and raise an approval for those that need one.

    Args:
        tx: The transaction.
        turn_id: The active turn.
        calls: The calls in the model's order.
        first_order: How many calls the turn has so far.
        model_step_number: The model step that asked, from 1.
        interrupt_deadline: How long an approval waits; None for ever.

    Returns:
        The records in call order, and one movement per call that is not final yet.
    """
    now = tx.now
    records: list[AgentToolCallRecord] = []
    movements: list[Movement] = []
    interrupts: list[AgentInterrupt] = []
    for order, call in enumerate(calls, first_order):
        requires_approval = call.policy.requires_approval and call.arguments_error is None
        record = AgentToolCallRecord(
            tool_call_id=allocate_tool_call_id(
                call.tool_call_id, order, lambda key: tx.get_instance(AGENT_TOOL_CALLS, key) is not None
            ),
            provider_tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            effect=call.policy.effect,
            requires_approval=requires_approval,
            status=Status.AWAITING_APPROVAL if requires_approval else Status.APPROVED,
            deferral_order=order,
            model_step_number=model_step_number,
            deferred_at=now,
            tool_source_reference=call.tool_source_reference,
        )
        tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, record)
        emit_tool_call_deferred(tx, turn_id, record)
        if call.arguments_error is not None:
            record = finalize_tool_call(tx, turn_id, record, Status.FAILED, error=call.arguments_error)
        elif requires_approval:
            interrupts.append(
                AgentInterrupt(
                    interrupt_id=interrupt_id(turn_id, record.tool_call_id),
                    kind="approval",
                    tool_call_id=record.tool_call_id,
                    tool_name=record.tool_name,
                    arguments=record.arguments,
                    raised_at=now,
                    deadline=None if interrupt_deadline is None else now + interrupt_deadline,
                )
            )
            movements.append(move(AWAIT_TOOL_APPROVAL, record.tool_call_id))
        else:
            movements.append(move(tool_step_type(record.effect), record.tool_call_id))
        records.append(record)
    if interrupts:
        tx.set(PENDING_INTERRUPTS, (*(tx.get(PENDING_INTERRUPTS) or ()), *interrupts))
        for interrupt in interrupts:
            emit_interrupt_raised(tx, turn_id, interrupt)
    return records, movements
