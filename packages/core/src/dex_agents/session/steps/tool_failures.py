"""Failure routes of tool calls: what is recorded when no attempt is left."""

from __future__ import annotations

from typing import Any

from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.sanitizer import sanitize_error_text
from dex_agents.session.step_types import (
    CALL_SINGLE_ATTEMPT_TOOL,
    CALL_TOOL,
    CANCEL_TOOL_TASK,
    RECORD_TOOL_FAILURE,
    RECORD_TOOL_OUTCOME_UNKNOWN,
)
from dex_agents.session.texts import TASK_ABANDONED_ERROR, TOOL_CALL_NOT_RUN_ERROR_PREFIX
from dex_agents.session.tool_calls import finalize_tool_call, get_record
from dex_agents.session.tool_values import AgentToolCallRecord, AgentToolCallRecordStatus
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, session_state
from dex_flow import AttemptProgress, Decision, InlineStep, Transaction, dead_end

__all__ = ["RecordToolFailure", "RecordToolOutcomeUnknown"]


class RecordToolFailure(InlineStep[str]):
    """Records a lost call that may repeat: `failed` for a read, `outcome_unknown` for a write."""

    next_steps = STEP_GRAPH[RECORD_TOOL_FAILURE]

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Make the record final."""
        record = get_record(tx, input)
        return _record_lost_call(tx, record, EFFECT_RULES[record.effect].status_when_lost)


class RecordToolOutcomeUnknown(InlineStep[str]):
    """Records a lost call that must not run twice: `outcome_unknown`."""

    next_steps = STEP_GRAPH[RECORD_TOOL_OUTCOME_UNKNOWN]

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Make the record final."""
        return _record_lost_call(tx, get_record(tx, input), AgentToolCallRecordStatus.OUTCOME_UNKNOWN)


def _record_lost_call(tx: Transaction, record: AgentToolCallRecord, status: AgentToolCallRecordStatus) -> Decision:
    failure = tx.recovery_error
    if failure is None:
        raise LookupError(f"tool call {record.tool_call_id!r} came to a failure route without a failure")
    error = f"{failure.error_type}: {failure.message}"
    changes: dict[str, Any] = {}
    if failure.step_type == CANCEL_TOOL_TASK:
        error = f"{TASK_ABANDONED_ERROR}, and stopping it failed: {error}"
        changes["cancellation_reason"] = "turn_cancelled"
    has_run = record.task_id is not None or bool(record.input_answers) or record.input_question is not None
    is_tool_step = failure.step_type in (CALL_TOOL, CALL_SINGLE_ATTEMPT_TOOL)
    if is_tool_step and failure.attempt_progress is AttemptProgress.NOT_STARTED and not has_run:
        status = AgentToolCallRecordStatus.FAILED
        error = f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {error}"
    turn = active_turn(session_state(tx))
    finalize_tool_call(tx, turn, record, status, error=sanitize_error_text(error), **changes)
    return dead_end()
