"""The session's transition rules, as data: where records and Steps may go, and which Steps end a turn.

Every Step takes its `next_steps` from `STEP_GRAPH`, every move of a record is checked against `ALLOWED_STATUS_MOVES`,
and every end of a turn against `TURN_ENDINGS`; the tables of the documentation are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dex_agents.session.step_types import (
    APPLY_TURN_CONTROL,
    APPLY_TURN_CONTROL_NOTE,
    AWAIT_QUESTION_ANSWER,
    AWAIT_TIMER,
    AWAIT_TOOL_APPROVAL,
    AWAIT_USER_MESSAGE,
    CALL_SINGLE_ATTEMPT_TOOL,
    CALL_TOOL,
    CANCEL_TOOL_TASK,
    COMPACT_CONTEXT,
    FINISH_TURN_CANCELLATION,
    POLL_TOOL_TASK,
    RECORD_COMPACTION_FAILURE,
    RECORD_TOOL_FAILURE,
    RECORD_TOOL_OUTCOME_UNKNOWN,
    RECORD_TURN_FAILURE,
    RECORD_TURN_FAILURE_NOTE,
    RESUME_TURN,
    RUN_MODEL,
    START_AGENT_SESSION,
)
from dex_agents.session.tool_values import AgentToolCallRecord, AgentToolCallRecordStatus

__all__ = [
    "ALLOWED_STATUS_MOVES",
    "CANCELLED_BY_TURN_CANCELLATION",
    "FAILURE_ROUTES",
    "FINAL_STATUSES",
    "STEP_GRAPH",
    "TURN_ENDINGS",
    "StatusMoveError",
    "TurnEndingError",
    "check_status_move",
    "check_turn_ending",
]

Status = AgentToolCallRecordStatus

FINAL_STATUSES = frozenset({Status.SUCCEEDED, Status.FAILED, Status.REJECTED, Status.OUTCOME_UNKNOWN})

#: Where a record may go from each status. A final status never changes, and a call that started a task is never
#: rejected: it may have taken effect.
ALLOWED_STATUS_MOVES: Mapping[Status, frozenset[Status]] = MappingProxyType(
    {
        Status.AWAITING_APPROVAL: frozenset({Status.APPROVED, Status.REJECTED}),
        Status.APPROVED: frozenset({Status.AWAITING_ANSWER, Status.WAITING_FOR_TASK}) | FINAL_STATUSES,
        Status.AWAITING_ANSWER: frozenset({Status.APPROVED, Status.WAITING_FOR_TASK}) | FINAL_STATUSES,
        Status.WAITING_FOR_TIMER: frozenset({Status.SUCCEEDED, Status.REJECTED}),
        Status.WAITING_FOR_TASK: frozenset(
            {Status.WAITING_FOR_TASK, Status.AWAITING_ANSWER, Status.SUCCEEDED, Status.FAILED, Status.OUTCOME_UNKNOWN}
        ),
        Status.SUCCEEDED: frozenset(),
        Status.FAILED: frozenset(),
        Status.REJECTED: frozenset(),
        Status.OUTCOME_UNKNOWN: frozenset(),
    }
)

#: Where the Decision of each Step type may go; an empty tuple is a dead end.
STEP_GRAPH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        START_AGENT_SESSION: (RUN_MODEL, AWAIT_USER_MESSAGE),
        AWAIT_USER_MESSAGE: (RUN_MODEL, APPLY_TURN_CONTROL, AWAIT_USER_MESSAGE),
        RUN_MODEL: (
            AWAIT_USER_MESSAGE,
            RUN_MODEL,
            APPLY_TURN_CONTROL,
            COMPACT_CONTEXT,
            AWAIT_TOOL_APPROVAL,
            AWAIT_QUESTION_ANSWER,
            AWAIT_TIMER,
            CALL_TOOL,
            CALL_SINGLE_ATTEMPT_TOOL,
            RESUME_TURN,
            RECORD_TURN_FAILURE,
        ),
        COMPACT_CONTEXT: (RUN_MODEL, APPLY_TURN_CONTROL),
        RECORD_COMPACTION_FAILURE: (RUN_MODEL,),
        AWAIT_TOOL_APPROVAL: (CALL_TOOL, CALL_SINGLE_ATTEMPT_TOOL),
        AWAIT_QUESTION_ANSWER: (CALL_TOOL, CALL_SINGLE_ATTEMPT_TOOL, POLL_TOOL_TASK),
        AWAIT_TIMER: (),
        CALL_TOOL: (AWAIT_QUESTION_ANSWER, POLL_TOOL_TASK, CANCEL_TOOL_TASK),
        CALL_SINGLE_ATTEMPT_TOOL: (AWAIT_QUESTION_ANSWER, POLL_TOOL_TASK, CANCEL_TOOL_TASK),
        POLL_TOOL_TASK: (POLL_TOOL_TASK, AWAIT_QUESTION_ANSWER),
        CANCEL_TOOL_TASK: (),
        RECORD_TOOL_FAILURE: (),
        RECORD_TOOL_OUTCOME_UNKNOWN: (),
        RESUME_TURN: (RUN_MODEL, APPLY_TURN_CONTROL, RESUME_TURN),
        APPLY_TURN_CONTROL: (RUN_MODEL, AWAIT_USER_MESSAGE),
        APPLY_TURN_CONTROL_NOTE: (RUN_MODEL, AWAIT_USER_MESSAGE),
        FINISH_TURN_CANCELLATION: (APPLY_TURN_CONTROL, CANCEL_TOOL_TASK),
        RECORD_TURN_FAILURE: (AWAIT_USER_MESSAGE,),
        RECORD_TURN_FAILURE_NOTE: (AWAIT_USER_MESSAGE,),
    }
)

#: Where a Step goes once no attempt is left. `PollToolTask` follows the call's effect like the Step that ran the tool.
FAILURE_ROUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        RUN_MODEL: (RECORD_TURN_FAILURE,),
        COMPACT_CONTEXT: (RECORD_COMPACTION_FAILURE,),
        CALL_TOOL: (RECORD_TOOL_FAILURE,),
        CALL_SINGLE_ATTEMPT_TOOL: (RECORD_TOOL_OUTCOME_UNKNOWN,),
        POLL_TOOL_TASK: (RECORD_TOOL_FAILURE, RECORD_TOOL_OUTCOME_UNKNOWN),
        CANCEL_TOOL_TASK: (RECORD_TOOL_OUTCOME_UNKNOWN,),
        RECORD_TURN_FAILURE: (RECORD_TURN_FAILURE_NOTE,),
        APPLY_TURN_CONTROL: (APPLY_TURN_CONTROL_NOTE,),
    }
)

#: Steps that `cancel_turn` cancels in its own commit: the model call, everything that waits, and what ends a turn.
CANCELLED_BY_TURN_CANCELLATION = (
    RUN_MODEL,
    COMPACT_CONTEXT,
    RECORD_TURN_FAILURE,
    RECORD_TURN_FAILURE_NOTE,
    APPLY_TURN_CONTROL,
    APPLY_TURN_CONTROL_NOTE,
    AWAIT_TOOL_APPROVAL,
    AWAIT_QUESTION_ANSWER,
    AWAIT_TIMER,
    POLL_TOOL_TASK,
)

#: Which Step types may end a turn, by the event that says so.
TURN_ENDINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "turn_completed": (RUN_MODEL,),
        "turn_failed": (RECORD_TURN_FAILURE, RECORD_TURN_FAILURE_NOTE),
        "turn_steered": (APPLY_TURN_CONTROL, APPLY_TURN_CONTROL_NOTE),
        "turn_cancelled": (APPLY_TURN_CONTROL, APPLY_TURN_CONTROL_NOTE),
    }
)


class StatusMoveError(ValueError):
    """A record was asked to go where `ALLOWED_STATUS_MOVES` does not let it."""


class TurnEndingError(ValueError):
    """A Step tried to end a turn in a way `TURN_ENDINGS` does not give it."""


def check_status_move(record: AgentToolCallRecord, status: Status) -> None:
    """Make sure that a record may go to `status`.

    Raises:
        StatusMoveError: It may not.
    """
    if status not in ALLOWED_STATUS_MOVES[record.status]:
        raise StatusMoveError(
            f"tool call {record.tool_call_id!r} cannot go from {record.status.value} to {status.value}"
        )


def check_turn_ending(event_type: str, step_type: str) -> None:
    """Make sure that a Step of this type may end a turn with this event.

    Raises:
        TurnEndingError: It may not.
    """
    if step_type not in TURN_ENDINGS[event_type]:
        raise TurnEndingError(f"{step_type} may not end a turn with {event_type}")
