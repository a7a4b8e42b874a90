"""What a session is doing, in the words that a timed-out wait shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    ToolEffect,
    TurnCancellationRequest,
)
from dex_agents.session.values import AgentState, AgentStatus
from dex_agents.session_activity import describe_activity

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
APPROVAL = AgentInterrupt(
    interrupt_id="turn-3.b",
    kind="approval",
    tool_call_id="b",
    tool_name="refund",
    arguments="{}",
    raised_at=NOW,
)


class CommittedView:
    """The reads of a `StateView` that a description uses."""

    def __init__(self, values: dict[str, Any], queues: dict[str, int]) -> None:
        self._values = values
        self._queues = queues

    def get(self, attribute: Any) -> Any:
        return self._values.get(attribute.name)

    def count_messages(self, channel: Any, key: str = "") -> int:
        return self._queues.get(channel.name, 0)

    def read_range(self, attribute_map: Any) -> list[tuple[str, Any]]:
        return list(self._values.get(attribute_map.name, {}).items())


def state(status: AgentStatus) -> AgentState:
    return AgentState(status=status, active_turn_id="turn-3", started_at=NOW, updated_at=NOW)


def record(name: str, **changes: Any) -> AgentToolCallRecord:
    values: dict[str, Any] = {
        "tool_call_id": name,
        "tool_name": name,
        "arguments": "{}",
        "effect": ToolEffect.READ,
        "requires_approval": False,
        "status": AgentToolCallRecordStatus.APPROVED,
        "deferral_order": 0,
        "model_step_number": 1,
        "deferred_at": NOW,
    }
    return AgentToolCallRecord(**{**values, **changes})


RUNNING_TOOLS = state(AgentStatus.RUNNING_TOOLS)
TOOL_CALLS = {
    "a": record("search", is_running=True, attempt=2, deferral_order=0),
    "b": record("refund", status=AgentToolCallRecordStatus.AWAITING_APPROVAL, deferral_order=1),
    "c": record("lookup", status=AgentToolCallRecordStatus.SUCCEEDED, deferral_order=2),
}


@pytest.mark.parametrize(
    ("values", "queues", "activity"),
    [
        ({}, {}, "it has not begun"),
        (
            {"AgentState": state(AgentStatus.WAITING_FOR_USER_MESSAGE)},
            {"QueuedUserMessages": 1},
            "it waits for a user message; messages that wait for a turn: 1",
        ),
        (
            {"AgentState": replace(state(AgentStatus.RUNNING_MODEL), turn_model_step_count=1)},
            {},
            "turn-3 is at model step 2",
        ),
        (
            {"AgentState": state(AgentStatus.COMPACTING_CONTEXT)},
            {"QueuedUserMessages": 2, "SteeredUserMessages": 1},
            "turn-3 is compacting its context; messages that steer the turn: 1; messages that wait for a turn: 2",
        ),
        (
            {
                "AgentState": RUNNING_TOOLS,
                "AgentToolCalls": TOOL_CALLS,
                "PendingInterrupts": (APPROVAL,),
                "TurnCancellationRequest": TurnCancellationRequest(turn_id="turn-3", requested_at=NOW),
            },
            {},
            "turn-3 has open tool calls: search (running, attempt 2), refund (awaiting_approval), and was cancelled; "
            "it waits for a person: approval 'turn-3.b' of refund",
        ),
        (
            {
                "AgentState": RUNNING_TOOLS,
                "AgentToolCalls": {str(number): record(f"t{number}", deferral_order=number) for number in range(9)},
                "TurnCancellationRequest": TurnCancellationRequest(turn_id="turn-2", requested_at=NOW),
            },
            {},
            "turn-3 has open tool calls: t0 (approved), t1 (approved), t2 (approved), t3 (approved), t4 (approved) "
            "and 4 more",
        ),
    ],
)
def test_the_description_names_what_is_done_and_what_waits(
    values: dict[str, Any], queues: dict[str, int], activity: str
) -> None:
    assert describe_activity(CommittedView(values, queues)) == activity  # type: ignore[arg-type]
