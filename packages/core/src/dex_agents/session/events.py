"""The session's live events: their types and payloads, one function each."""

from __future__ import annotations

from typing import Any

from dex_agents.session.event_values import AgentEvent, encode_event_payload
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.session.plan_values import AgentPlan, ContextSummary
from dex_agents.session.sanitizer import sanitize_error_text
from dex_agents.session.tool_values import AgentInterrupt, AgentToolCallRecord, CancellationReason
from dex_agents.session.values import AgentUsage
from dex_flow import AttemptFailure, Transaction

__all__ = [
    "COMPACTION_FINISHED",
    "COMPACTION_STARTED",
    "INTERRUPT_RAISED",
    "INTERRUPT_RESOLVED",
    "MODEL_CALL_RETRYING",
    "PLAN_EXECUTION_STARTED",
    "PLAN_UPDATED",
    "REASONING_DELTA",
    "TEXT_DELTA",
    "TIMER_STARTED",
    "TOOL_CALL_DEFERRED",
    "TOOL_CALL_FINISHED",
    "TOOL_CALL_STARTED",
    "TOOL_TASK_STARTED",
    "TURN_CANCELLED",
    "TURN_COMPLETED",
    "TURN_FAILED",
    "TURN_LIMIT_REACHED",
    "TURN_STARTED",
    "TURN_STEERED",
    "USAGE_RECORDED",
    "emit_compaction_finished",
    "emit_compaction_started",
    "emit_interrupt_raised",
    "emit_interrupt_resolved",
    "emit_model_call_retrying",
    "emit_plan_execution_started",
    "emit_plan_updated",
    "emit_timer_started",
    "emit_tool_call_deferred",
    "emit_tool_call_finished",
    "emit_tool_call_started",
    "emit_tool_task_started",
    "emit_turn_cancelled",
    "emit_turn_completed",
    "emit_turn_failed",
    "emit_turn_limit_reached",
    "emit_turn_started",
    "emit_turn_steered",
    "emit_usage_recorded",
]

TURN_STARTED = "turn_started"
TURN_COMPLETED = "turn_completed"
TURN_FAILED = "turn_failed"
TURN_STEERED = "turn_steered"
TURN_CANCELLED = "turn_cancelled"
TURN_LIMIT_REACHED = "turn_limit_reached"
TEXT_DELTA = "text_delta"
REASONING_DELTA = "reasoning_delta"
MODEL_CALL_RETRYING = "model_call_retrying"
TOOL_CALL_DEFERRED = "tool_call_deferred"
TOOL_CALL_STARTED = "tool_call_started"
TOOL_CALL_FINISHED = "tool_call_finished"
TIMER_STARTED = "timer_started"
TOOL_TASK_STARTED = "tool_task_started"
PLAN_UPDATED = "plan_updated"
PLAN_EXECUTION_STARTED = "plan_execution_started"
COMPACTION_STARTED = "compaction_started"
COMPACTION_FINISHED = "compaction_finished"
INTERRUPT_RAISED = "interrupt_raised"
INTERRUPT_RESOLVED = "interrupt_resolved"
USAGE_RECORDED = "usage_recorded"


def emit_turn_started(tx: Transaction, turn_id: str, sequence: int) -> None:
    """A turn started; `sequence` is that of its first user message."""
    _emit(tx, turn_id, TURN_STARTED, {"sequence": sequence})


def emit_turn_completed(tx: Transaction, turn_id: str, message_count: int) -> None:
    """A turn ended with an answer and `message_count` messages after its user messages."""
    _emit(tx, turn_id, TURN_COMPLETED, {"message_count": message_count})


def emit_turn_failed(tx: Transaction, turn_id: str, error: str) -> None:
    """A turn ended without an answer."""
    _emit(tx, turn_id, TURN_FAILED, {"error": error})


def emit_turn_steered(tx: Transaction, turn_id: str, steered_message_count: int, message_count: int) -> None:
    """A turn ended because the user sent `steered_message_count` messages that the next turn answers."""
    payload = {"steered_message_count": steered_message_count, "message_count": message_count}
    _emit(tx, turn_id, TURN_STEERED, payload)


def emit_turn_cancelled(tx: Transaction, turn_id: str, message_count: int) -> None:
    """A turn ended because the user stopped it."""
    _emit(tx, turn_id, TURN_CANCELLED, {"message_count": message_count})


def emit_turn_limit_reached(tx: Transaction, turn_id: str, limit: str, value: int) -> None:
    """A turn reached the named limit."""
    _emit(tx, turn_id, TURN_LIMIT_REACHED, {"limit": limit, "value": value})


def emit_model_call_retrying(tx: Transaction, turn_id: str, failure: AttemptFailure) -> None:
    """An attempt of a model call failed and another one follows."""
    _emit(
        tx,
        turn_id,
        MODEL_CALL_RETRYING,
        {
            "attempt": failure.attempt,
            "error": sanitize_error_text(f"{failure.error_type}: {failure.message}"),
            "next_attempt_at": failure.next_attempt_at,
        },
    )


def emit_tool_call_deferred(tx: Transaction, turn_id: str, record: AgentToolCallRecord) -> None:
    """The model asked for a call, which runs in a Step of its own."""
    _emit(
        tx,
        turn_id,
        TOOL_CALL_DEFERRED,
        {
            "tool_call_id": record.tool_call_id,
            "tool_name": record.tool_name,
            "effect": record.effect,
            "requires_approval": record.requires_approval,
        },
    )


def emit_tool_call_started(tx: Transaction, turn_id: str, record: AgentToolCallRecord) -> None:
    """An attempt of the call starts."""
    payload = {"tool_call_id": record.tool_call_id, "tool_name": record.tool_name}
    _emit(tx, turn_id, TOOL_CALL_STARTED, payload)


def emit_tool_call_finished(tx: Transaction, turn_id: str, record: AgentToolCallRecord) -> None:
    """The call's record became final."""
    payload = {"tool_call_id": record.tool_call_id, "tool_name": record.tool_name, "status": record.status}
    _emit(tx, turn_id, TOOL_CALL_FINISHED, payload)


def emit_timer_started(tx: Transaction, turn_id: str, record: AgentToolCallRecord, reason: str) -> None:
    """A durable wait began."""
    payload = {"tool_call_id": record.tool_call_id, "wait_until": record.wait_until, "reason": reason}
    _emit(tx, turn_id, TIMER_STARTED, payload)


def emit_tool_task_started(tx: Transaction, turn_id: str, record: AgentToolCallRecord) -> None:
    """A tool started remote work."""
    payload = {"tool_call_id": record.tool_call_id, "tool_name": record.tool_name, "task_id": record.task_id}
    _emit(tx, turn_id, TOOL_TASK_STARTED, payload)


def emit_interrupt_raised(tx: Transaction, turn_id: str, interrupt: AgentInterrupt) -> None:
    """The session waits for a person."""
    _emit(
        tx,
        turn_id,
        INTERRUPT_RAISED,
        {
            "interrupt_id": interrupt.interrupt_id,
            "kind": interrupt.kind,
            "tool_call_id": interrupt.tool_call_id,
            "tool_name": interrupt.tool_name,
            "deadline": interrupt.deadline,
            "question": interrupt.question,
            "choices": interrupt.choices,
            "allows_free_text": interrupt.allows_free_text,
        },
    )


def emit_interrupt_resolved(
    tx: Transaction,
    turn_id: str,
    interrupt: AgentInterrupt,
    *,
    approved: bool,
    answered: bool = False,
    rejection_message: str | None = None,
    cancellation_reason: CancellationReason | None = None,
    arguments_changed: bool = False,
) -> None:
    """A person decided or answered, a deadline passed, or the call was cancelled."""
    _emit(
        tx,
        turn_id,
        INTERRUPT_RESOLVED,
        {
            "interrupt_id": interrupt.interrupt_id,
            "kind": interrupt.kind,
            "approved": approved,
            "answered": answered,
            "rejection_message": rejection_message,
            "cancellation_reason": cancellation_reason,
            "arguments_changed": arguments_changed,
        },
    )


def emit_plan_updated(tx: Transaction, turn_id: str, plan: AgentPlan) -> None:
    """The plan was replaced, or an approval marked a draft `active`."""
    payload = {"revision": plan.revision, "status": plan.status, "task_count": len(plan.tasks)}
    _emit(tx, turn_id, PLAN_UPDATED, payload)


def emit_plan_execution_started(tx: Transaction, turn_id: str, revision: int) -> None:
    """A turn carries out the approved plan."""
    _emit(tx, turn_id, PLAN_EXECUTION_STARTED, {"revision": revision})


def emit_compaction_started(tx: Transaction, turn_id: str, through_sequence: int) -> None:
    """The messages through this one are being summarised."""
    _emit(tx, turn_id, COMPACTION_STARTED, {"through_sequence": through_sequence})


def emit_compaction_finished(tx: Transaction, turn_id: str, summary: ContextSummary) -> None:
    """The summary is stored."""
    payload = {"generation": summary.generation, "through_sequence": summary.last_sequence}
    _emit(tx, turn_id, COMPACTION_FINISHED, payload)


def emit_usage_recorded(tx: Transaction, turn_id: str, recorded: AgentUsage, session: AgentUsage) -> None:
    """A model call's usage was added to the session's."""
    _emit(tx, turn_id, USAGE_RECORDED, {"recorded": recorded, "session": session})


def _emit(tx: Transaction, turn_id: str, event_type: str, payload: dict[str, Any]) -> None:
    tx.emit(
        AGENT_EVENTS,
        AgentEvent(
            type=event_type,
            turn_id=turn_id,
            attempt=tx.attempt,
            step_execution_id=tx.step_execution_id,
            payload=encode_event_payload(payload),
            created_at=tx.now,
        ),
    )
