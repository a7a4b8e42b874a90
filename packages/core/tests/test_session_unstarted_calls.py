"""Calls that no worker ever started: safe to call again, unless an earlier run may have taken effect."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.texts import TASK_ABANDONED_ERROR, TOOL_CALL_NOT_RUN_ERROR_PREFIX
from dex_agents.session.tool_values import ToolEffect

from .played_session import PlayedSession, question, wanted

every_effect = pytest.mark.parametrize("effect", list(ToolEffect), ids=lambda effect: effect.value)
DETAIL = "StartTimeout: no worker started the step within its start timeout"


def impatient(effect: ToolEffect) -> PlayedSession:
    """A session on an engine that gives up a Step nobody starts in ten seconds; its call waits for approval."""
    session = PlayedSession(wanted("c1", effect, gated=True), driver={"builds_unfinished_turns": True})
    for step_type in ("CallTool", "CallSingleAttemptTool", "CancelToolTask"):
        step = session.flow.step(step_type)
        step.options = replace(step.options, start_timeout=timedelta(seconds=10))
    return session


@every_effect
def test_a_call_that_no_worker_started_failed_and_is_safe_to_call_again(effect: ToolEffect) -> None:
    session = impatient(effect)
    session.has_worker = False
    session.resolve("turn-1.c1", True)
    session.advance(10)
    session.take_work()
    assert session.finished() == {"c1": "failed"}
    assert session.model_results() == [f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {DETAIL}"]
    assert "tool_call_started" not in session.event_types()


@every_effect
def test_a_call_whose_tool_asked_ran_before_so_its_effect_decides(effect: ToolEffect) -> None:
    session = impatient(effect)
    session.resolve("turn-1.c1", True)
    session.succeed(session.tool_attempt(), question())
    session.has_worker = False
    session.answer("turn-1.c1-input-1", "A")
    session.advance(10)
    session.take_work()
    record = session.record()
    assert (record.status, record.error) == (EFFECT_RULES[effect].status_when_lost, DETAIL)


@every_effect
def test_an_attempt_that_was_lost_had_started_so_its_effect_decides(effect: ToolEffect) -> None:
    session = impatient(effect)
    session.resolve("turn-1.c1", True)
    session.stop_worker()
    session.advance(3_600)
    session.take_work()
    while session.finished() == {}:
        session.lose_worker()
    record = session.record()
    assert record.status == EFFECT_RULES[effect].status_when_lost
    assert record.error is not None
    assert record.error.startswith("WorkerLost: ")


@every_effect
def test_a_request_to_stop_a_task_that_no_worker_started_leaves_the_call_unknown(effect: ToolEffect) -> None:
    session = impatient(effect)
    session.resolve("turn-1.c1", True)
    session.start_task()
    session.has_worker = False
    session.cancel_turn()
    session.advance(10)
    session.take_work()
    (call,) = session.snapshot_of(session.attempt_of("ApplyTurnControl")).tool_calls
    assert (call.status, call.cancellation_reason) == ("outcome_unknown", "turn_cancelled")
    assert call.error == f"{TASK_ABANDONED_ERROR}, and stopping it failed: {DETAIL}"
