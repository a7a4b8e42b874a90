"""Steering and cancellation: what is pending for the active turn, and what it does to calls that wait."""

from __future__ import annotations

from dex_agents.session.identity import interrupt_id
from dex_agents.session.persistence import (
    STEERED_USER_MESSAGES,
    TOOL_CALL_CANCELLATIONS,
    TURN_CANCELLATION_REQUEST,
    TURN_CONTROL_REQUESTS,
)
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.questions import open_question_id
from dex_agents.session.step_types import CANCEL_TOOL_TASK
from dex_agents.session.texts import NO_FURTHER_ATTEMPT_STEERED, NO_FURTHER_ATTEMPT_TURN_CANCELLED
from dex_agents.session.tool_calls import drop_interrupt, finalize_tool_call, reject_tool_call, turn_records
from dex_agents.session.tool_values import (
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    CancellationReason,
    ToolCallCancellation,
    TurnControlRequest,
)
from dex_flow import Movement, StateView, Transaction, move

__all__ = [
    "cancel_waiting_calls",
    "pending_turn_control",
    "record_without_further_attempt",
    "reject_unstarted_call",
    "request_turn_control",
    "wake_waiting_calls",
]

Status = AgentToolCallRecordStatus

#: Statuses in which a call waits and has not taken effect, unless it has a task.
_WAITING_STATUSES = frozenset({Status.AWAITING_APPROVAL, Status.AWAITING_ANSWER, Status.WAITING_FOR_TIMER})
_NO_FURTHER_ATTEMPT: dict[CancellationReason, str] = {
    "steered": NO_FURTHER_ATTEMPT_STEERED,
    "turn_cancelled": NO_FURTHER_ATTEMPT_TURN_CANCELLED,
}


def pending_turn_control(view: StateView, turn_id: str) -> CancellationReason | None:
    """Why the active turn has to end at its next boundary; a cancellation counts more than a steer."""
    cancellation = view.get(TURN_CANCELLATION_REQUEST)
    if cancellation is not None and cancellation.turn_id == turn_id:
        return "turn_cancelled"
    return "steered" if view.count_messages(STEERED_USER_MESSAGES) else None


def request_turn_control(tx: Transaction, reason: CancellationReason) -> None:
    """Wake the Step that waits, to look at what is steered or cancelled."""
    tx.publish(TURN_CONTROL_REQUESTS, TurnControlRequest(kind="steer" if reason == "steered" else "cancel"))


def wake_waiting_calls(tx: Transaction, turn_id: str, reason: CancellationReason) -> None:
    """End every wait of a call that was not run, through the Step that waits, and every pending retry.

    A task's question goes on, and so does what runs.
    """
    for record in turn_records(tx):
        if record.task_id is None and record.status in _WAITING_STATUSES:
            key = interrupt_id(turn_id, record.tool_call_id)
            tx.publish_instance(TOOL_CALL_CANCELLATIONS, key, ToolCallCancellation(reason=reason))
        else:
            _end_pending_retry(tx, turn_id, record, reason)


def cancel_waiting_calls(tx: Transaction, turn_id: str) -> list[Movement]:
    """Record every call whose waiting Step `cancel_turn` cancelled, and every pending retry.

    Returns:
        A movement per started task, which has to be abandoned.
    """
    movements = []
    for record in turn_records(tx):
        if record.task_id is not None and record.status in (Status.WAITING_FOR_TASK, Status.AWAITING_ANSWER):
            if record.status is Status.AWAITING_ANSWER:
                key = open_question_id(turn_id, record)
                drop_interrupt(tx, turn_id, key, cancellation_reason="turn_cancelled")
            movements.append(move(CANCEL_TOOL_TASK, record.tool_call_id))
        elif record.status in _WAITING_STATUSES:
            reject_unstarted_call(tx, turn_id, record, "turn_cancelled")
        else:
            _end_pending_retry(tx, turn_id, record, "turn_cancelled")
    return movements


def reject_unstarted_call(
    tx: Transaction, turn_id: str, record: AgentToolCallRecord, reason: CancellationReason
) -> None:
    """Record a call of which no attempt runs and none will start."""
    reject_tool_call(tx, turn_id, record, cancellation_reason=reason)


def record_without_further_attempt(
    tx: Transaction, turn_id: str, record: AgentToolCallRecord, reason: CancellationReason
) -> None:
    """Record a call whose earlier attempt failed, by its effect: that attempt may have taken effect."""
    error = f"{record.last_attempt_error}; {_NO_FURTHER_ATTEMPT[reason]}"
    status = EFFECT_RULES[record.effect].status_when_lost
    finalize_tool_call(tx, turn_id, record, status, error=error, cancellation_reason=reason)


def _end_pending_retry(tx: Transaction, turn_id: str, record: AgentToolCallRecord, reason: CancellationReason) -> None:
    if record.status is Status.APPROVED and not record.is_running and record.last_attempt_error is not None:
        tx.cancel_steps(record.step_execution_id)
        record_without_further_attempt(tx, turn_id, record, reason)
