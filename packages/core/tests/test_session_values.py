"""Stored and sent forms, and the table of record statuses."""

from datetime import UTC, datetime
from itertools import product

import msgspec
import pytest

from dex_agents.session.persistence import session_declarations
from dex_agents.session.rpcs import SESSION_RPCS
from dex_agents.session.tool_calls import move_record
from dex_agents.session.tool_values import AgentToolCallRecord, AgentToolCallStatus, ToolEffect
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.transition_rules import (
    ALLOWED_STATUS_MOVES,
    FAILURE_ROUTES,
    FINAL_STATUSES,
    STEP_GRAPH,
    TURN_ENDINGS,
    StatusMoveError,
    TurnEndingError,
    check_turn_ending,
)
from dex_agents.session.values import AgentState, AgentStatus, AgentUsage, message_sequence_key
from dex_agents.testing import SessionDriver
from dex_flow.codec import decode, encode
from dex_flow.kernel.transaction import KernelTransaction

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(status: Status) -> AgentToolCallRecord:
    return AgentToolCallRecord(
        tool_call_id="c1",
        tool_name="refund",
        arguments="{}",
        effect=ToolEffect.READ,
        requires_approval=False,
        status=status,
        deferral_order=0,
        model_step_number=1,
        deferred_at=NOON,
    )


def test_durable_names_are_those_of_the_contract() -> None:
    assert [declaration.name for declaration in session_declarations(1)] == [
        "AgentState",
        "AgentMessages",
        "AgentMessageChunks",
        "AgentMessageIndex",
        "FrameworkRunState",
        "AgentToolCalls",
        "PendingInterrupts",
        "AgentUsage",
        "TurnReplySequence",
        "SessionSettings",
        "TurnSessionSettings",
        "AgentPlan",
        "PlanExecutions",
        "PendingPlanExecution",
        "ContextSummary",
        "QueuedUserMessages",
        "SteeredUserMessages",
        "InterruptResolutions",
        "TurnControlRequests",
        "TurnCancellationRequest",
        "ToolCallCancellations",
        "ToolCallResults",
        "AgentEvents",
    ]
    assert [rpc.name for rpc in SESSION_RPCS] == [
        "send_user_message",
        "steer_user_message",
        "delete_queued_message",
        "cancel_turn",
        "resolve_interrupt",
        "answer_question",
        "execute_plan",
        "update_session_settings",
        "get_agent_snapshot",
        "list_agent_messages",
    ]
    assert message_sequence_key(42) == "000000000042"


def test_the_state_is_snake_case_json_with_utc_times() -> None:
    state = AgentState(status=AgentStatus.WAITING_FOR_USER_MESSAGE, started_at=NOON, updated_at=NOON)
    assert msgspec.json.decode(encode(state)) == {
        "status": "waiting_for_user_message",
        "started_at": "2026-01-01T12:00:00Z",
        "updated_at": "2026-01-01T12:00:00Z",
        "interaction_mode": "chat",
        "turn_count": 0,
        "active_turn_id": None,
        "last_message_sequence": 0,
        "last_turn_error": None,
        "turn_model_step_count": 0,
        "turn_tool_call_count": 0,
        "turn_continuation_count": 0,
        "turn_started_at": None,
        "turn_model_calls": 0,
        "turn_total_tokens": 0,
        "turn_limit_reached": None,
        "turn_compaction_error": None,
        "format_version": 1,
    }


def test_a_value_of_another_release_is_read_with_unknown_fields_ignored_and_missing_ones_defaulted() -> None:
    stored = (
        b'{"status":"running_model","started_at":"2026-01-01T12:00:00Z",'
        b'"updated_at":"2026-01-01T12:00:00Z","added_later":1}'
    )
    expected = AgentState(status=AgentStatus.RUNNING_MODEL, started_at=NOON, updated_at=NOON)
    assert decode(AgentState, stored) == expected


def test_a_record_keeps_every_field_through_storage() -> None:
    stored = msgspec.structs.replace(
        record(Status.SUCCEEDED), output="ok", attempt=2, started_at=NOON, finished_at=NOON
    )
    assert decode(AgentToolCallRecord, encode(stored)) == stored


def test_usage_adds_field_by_field() -> None:
    one = AgentUsage(**{name: number for number, name in enumerate(AgentUsage.__struct_fields__, 1)})
    doubled = AgentUsage(**{name: 2 * number for number, name in enumerate(AgentUsage.__struct_fields__, 1)})
    assert one.add(one) == doubled
    assert AgentUsage().add(one) == one


def test_the_status_table_knows_every_status_and_final_ones_go_nowhere() -> None:
    assert set(ALLOWED_STATUS_MOVES) == set(Status)
    assert {status for status, targets in ALLOWED_STATUS_MOVES.items() if not targets} == FINAL_STATUSES


@pytest.mark.parametrize(("start", "target"), list(product(Status, Status)))
def test_a_record_moves_only_where_the_table_lets_it_and_else_nothing_changes(start: Status, target: Status) -> None:
    transaction = RecordingTransaction()
    if target in ALLOWED_STATUS_MOVES[start]:
        moved = move_record(transaction, record(start), target)
        assert transaction.written == [moved]
        assert moved.status is target
    else:
        with pytest.raises(StatusMoveError, match=f"from {start.value} to {target.value}"):
            move_record(transaction, record(start), target)
        assert transaction.written == []


class RecordingTransaction(KernelTransaction):
    """Keeps what is written to maps; the rest of a transaction is not there."""

    def __init__(self) -> None:
        self.written: list[object] = []

    def set_instance(self, attribute_map: object, key: str, value: object) -> None:
        self.written.append(value)


@pytest.mark.parametrize("status", list(Status))
def test_runners_see_six_statuses(status: Status) -> None:
    seen = record(status).to_tool_call().status
    waiting = {Status.AWAITING_ANSWER, Status.WAITING_FOR_TIMER, Status.WAITING_FOR_TASK}
    assert seen is (AgentToolCallStatus.APPROVED if status in waiting else AgentToolCallStatus(status.value))


def test_changed_arguments_are_the_ones_to_run() -> None:
    call = record(Status.APPROVED)
    assert call.to_tool_call().arguments_to_run == "{}"
    changed = msgspec.structs.replace(call, executed_arguments='{"n":2}')
    assert changed.to_tool_call().arguments_to_run == '{"n":2}'


def test_every_step_names_where_it_may_go_and_its_failure_route() -> None:
    steps = SessionDriver(builds_unfinished_turns=True).flow.steps
    for name, step in steps.items():
        assert step.next_steps == STEP_GRAPH[name]
        if step.options.failure_route is None:
            assert name not in FAILURE_ROUTES
        else:
            assert step.options.failure_route in FAILURE_ROUTES[name]
    assert steps.keys() == STEP_GRAPH.keys()


@pytest.mark.parametrize(("ending", "step_type"), list(product(TURN_ENDINGS, STEP_GRAPH)))
def test_only_the_steps_of_the_table_end_a_turn(ending: str, step_type: str) -> None:
    if step_type in TURN_ENDINGS[ending]:
        check_turn_ending(ending, step_type)
    else:
        with pytest.raises(TurnEndingError, match=f"{step_type} may not end a turn with {ending}"):
            check_turn_ending(ending, step_type)
