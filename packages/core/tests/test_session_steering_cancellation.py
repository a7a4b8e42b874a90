"""Stopping a turn: what ends at once, what runs to its end, and what a second or late request does."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepRefused,
    ToolCallSucceeded,
    ToolTaskCancelled,
    UnfinishedTurnOutcome,
)
from dex_agents.session.texts import TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.values import AgentUsage
from dex_flow import AttemptFailure
from dex_flow.kernel import AttemptDiscardedError, AttemptFailed, AttemptSucceeded, SaveCheckpoint

from .played_session import NON_IDEMPOTENT_WRITE, PlayedSession, asking, question, stored_state, waiting, wanted

# The model call


def test_cancel_turn_stops_the_turn_and_starts_none() -> None:
    session = PlayedSession()
    assert session.cancel_turn()
    assert session.payloads("turn_cancelled") == [{"message_count": 0}]
    assert session.texts() == [("turn-1", "user", "Hello")]
    session.assert_idle()


def test_cancel_turn_is_recorded_without_waiting_for_the_model_call() -> None:
    session = PlayedSession()
    running = session.attempt_of("RunModel")
    assert session.cancel_turn()
    # The commit that accepts it has ended the turn, and told the worker to stop the attempt.
    assert running.step_execution_id not in session.running
    session.assert_idle()


def test_the_answer_of_a_cancelled_model_call_is_dropped_and_its_usage_is_not_counted() -> None:
    session = PlayedSession()
    running = session.attempt_of("RunModel")
    session.cancel_turn()
    before = stored_state(session)
    late = ModelStepCompleted(new_messages=(), usage=AgentUsage(model_calls=1, output_tokens=5))
    for command in (
        AttemptSucceeded(running.step_execution_id, running.attempt, late),
        AttemptFailed(
            running.step_execution_id, running.attempt, AttemptFailure(error_type="CancelledError", message="")
        ),
        SaveCheckpoint(running.step_execution_id, running.attempt, "late"),
    ):
        with pytest.raises(AttemptDiscardedError):
            session.apply(command)
    assert stored_state(session) == before
    assert session.snapshot().usage == AgentUsage()


def test_a_pending_retry_of_the_model_call_is_cancelled() -> None:
    session = PlayedSession()
    session.fail(session.attempt_of("RunModel"), "OverloadedError", "busy", retry_after_seconds=900)
    assert session.cancel_turn()
    session.assert_idle()


def test_cancel_turn_races_the_final_answer_and_the_first_commit_wins() -> None:
    answered = PlayedSession()
    answered.answer_turn()
    assert not answered.cancel_turn("turn-1")
    assert not answered.cancel_turn()
    assert answered.payloads("turn_cancelled") == []

    cancelled = PlayedSession()
    running = cancelled.attempt_of("RunModel")
    assert cancelled.cancel_turn("turn-1")
    late = ModelStepCompleted(new_messages=(), usage=AgentUsage())
    with pytest.raises(AttemptDiscardedError):
        cancelled.apply(AttemptSucceeded(running.step_execution_id, running.attempt, late))
    assert cancelled.payloads("turn_completed") == []


def test_a_turn_whose_cancellation_was_accepted_never_completes() -> None:
    session = PlayedSession(wanted("c1"))
    assert session.cancel_turn()
    session.return_from_tool()
    assert session.event_types()[-1] == "turn_cancelled"
    assert session.payloads("turn_completed") == []
    session.assert_idle()


# Which turn


def test_cancel_turn_without_an_active_turn_or_of_another_turn_is_false() -> None:
    session = PlayedSession()
    session.answer_turn()
    session.send("again")
    before = stored_state(session)
    for turn_id in ("turn-1", "turn-3", "", "TURN-2"):
        assert not session.cancel_turn(turn_id)
    assert stored_state(session) == before
    assert session.cancel_turn("turn-2")
    for no_turn in (None, "turn-2"):
        assert not session.cancel_turn(no_turn)


def test_a_cancellation_does_not_stick_to_the_next_turn() -> None:
    session = PlayedSession()
    session.cancel_turn()
    session.send("Go on")
    session.ask_for(wanted("c1"))
    session.return_from_tool()
    session.answer_turn()
    assert session.payloads("turn_completed") == [{"message_count": 1}]
    session.assert_idle()


def test_a_queued_message_starts_the_next_turn_after_a_cancelled_one() -> None:
    session = PlayedSession()
    session.send("next")
    session.cancel_turn()
    assert session.texts()[-1] == ("turn-2", "user", "next")


# Tools and waits


def test_cancel_turn_lets_a_started_tool_run_to_its_end_and_the_turn_ends_after_it() -> None:
    session = PlayedSession(wanted("c1", NON_IDEMPOTENT_WRITE))
    session.cancel_turn()
    session.advance(600)
    assert session.state.active_turn_id == "turn-1"
    session.return_from_tool("c1")
    assert session.finished() == {"c1": "succeeded"}
    session.assert_idle()


def waits_for_approval() -> PlayedSession:
    return PlayedSession(wanted("c1", gated=True), interrupt_deadline=timedelta(hours=1))


def waits_for_answer() -> PlayedSession:
    return PlayedSession(asking("c1"), interrupt_deadline=timedelta(hours=1))


def waits_for_tools_answer() -> PlayedSession:
    session = PlayedSession(wanted("c1"))
    session.succeed(session.tool_attempt(), question())
    return session


def waits_for_timer() -> PlayedSession:
    return PlayedSession(waiting("c1"))


WAITS = [waits_for_approval, waits_for_answer, waits_for_tools_answer, waits_for_timer]


@pytest.mark.parametrize("where", WAITS, ids=lambda where: where.__name__)
def test_cancel_turn_cancels_every_wait_in_its_own_commit(where: Callable[[], PlayedSession]) -> None:
    session = where()
    interrupt_ids = session.interrupt_ids()
    assert session.cancel_turn()
    assert session.finished() == {"c1": "rejected"}
    assert [
        (resolved["approved"], resolved["cancellation_reason"]) for resolved in session.payloads("interrupt_resolved")
    ] == [(False, "turn_cancelled")] * len(interrupt_ids)
    session.assert_idle()
    for interrupt_id in interrupt_ids:
        assert not session.resolve(interrupt_id, True)
        assert not session.answer(interrupt_id, "Oslo")
    session.advance(24 * 3_600)
    session.assert_idle()


def test_the_model_sees_that_a_call_was_not_run_because_the_user_stopped_the_turn() -> None:
    session = PlayedSession(wanted("c1", gated=True), driver={"builds_unfinished_turns": True})
    session.cancel_turn()
    (call,) = session.snapshot_of(session.attempt_of("ApplyTurnControl")).tool_calls
    assert call.cancellation_reason == "turn_cancelled"
    assert tool_result_text(call) == TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT


def test_cancel_turn_abandons_a_started_task_and_drops_what_it_returns_later() -> None:
    session = PlayedSession(wanted("c1"))
    session.start_task()
    session.advance(5)
    poll = session.poll()
    assert session.cancel_turn()
    assert poll.step_execution_id not in session.running
    with pytest.raises(AttemptDiscardedError):
        session.apply(AttemptSucceeded(poll.step_execution_id, poll.attempt, ToolCallSucceeded(output="late")))
    request = session.attempt_of("CancelToolTask", "c1")
    assert session.snapshot_of(request).record.task_id == "task-7"
    session.succeed(request, ToolTaskCancelled())
    assert session.finished() == {"c1": "outcome_unknown"}
    session.assert_idle()


def test_cancel_turn_abandons_every_task_and_rejects_every_waiting_call_at_once() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2"), wanted("c3", gated=True), waiting("c4"), wanted("c5"))
    session.start_task("c1", task_id="t1")
    session.start_task("c2", task_id="t2")
    assert session.cancel_turn()
    assert session.finished() == {"c3": "rejected", "c4": "rejected"}
    for call_id in ("c2", "c1"):
        session.succeed(session.attempt_of("CancelToolTask", call_id), ToolTaskCancelled())
    assert session.payloads("turn_cancelled") == []
    session.return_from_tool("c5")
    assert session.payloads("turn_cancelled") == [{"message_count": 1}]
    session.assert_idle()


def test_a_result_that_commits_before_cancel_turn_stays() -> None:
    session = PlayedSession(wanted("c0"), wanted("c1"), asking("c2"), waiting("c3", 60))
    session.return_from_tool("c1")
    assert session.answer("turn-1.c2", "Oslo")
    session.now += 60_000_000
    assert session.cancel_turn()
    assert session.finished() == {"c1": "succeeded", "c2": "succeeded", "c3": "succeeded"}
    session.return_from_tool("c0")
    session.assert_idle()


# Twice, and together with a steer


def test_a_second_cancel_of_the_same_turn_is_true_and_changes_nothing() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2"))
    session.start_task("c2")
    assert session.cancel_turn()
    before = stored_state(session)
    session.now += 1_000_000
    for turn_id in (None, "turn-1", "turn-1"):
        assert session.cancel_turn(turn_id)
    assert not session.cancel_turn("turn-2")
    assert stored_state(session) == before


def test_a_second_cancel_while_the_turn_ends_is_true_and_does_not_start_over() -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    assert session.cancel_turn()
    ending = session.attempt_of("ApplyTurnControl")
    assert session.cancel_turn()
    assert session.attempt_of("ApplyTurnControl") == ending
    session.succeed(ending, UnfinishedTurnOutcome())
    assert session.payloads("turn_cancelled") == [{"message_count": 0}]
    session.assert_idle()


def test_a_cancellation_wins_over_a_steer_whichever_comes_first() -> None:
    for steer_first in (True, False):
        session = PlayedSession(wanted("c1"))
        first, second = (session.steer, session.cancel_turn) if steer_first else (session.cancel_turn, session.steer)
        assert first("Use staging") if steer_first else first()
        assert second() if steer_first else second("Use staging")
        session.return_from_tool()
        assert session.payloads("turn_cancelled") == [{"message_count": 1}]
        assert session.payloads("turn_steered") == []
        assert session.texts()[-1] == ("turn-2", "user", "Use staging")
        session.answer_turn()
        session.assert_idle()


def test_messages_steered_before_or_after_a_cancel_start_one_new_turn() -> None:
    session = PlayedSession(wanted("c1"))
    session.steer("before")
    session.cancel_turn()
    session.steer("after")
    session.return_from_tool()
    assert [text for turn, _, text in session.texts() if turn == "turn-2"] == ["before", "after"]


def test_a_call_that_a_steer_ended_keeps_its_reason_when_a_cancel_follows() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2", gated=True))
    session.steer("Use staging")
    session.cancel_turn()
    assert session.record("c2").cancellation_reason == "steered"


def test_cancelling_a_steered_turn_that_is_about_to_end_cancels_it() -> None:
    session = PlayedSession(wanted("c1", gated=True), driver={"builds_unfinished_turns": True})
    session.steer("Use staging")
    steered = session.attempt_of("ApplyTurnControl")
    assert session.cancel_turn()
    assert steered.step_execution_id not in session.running
    session.succeed(session.attempt_of("ApplyTurnControl"), UnfinishedTurnOutcome())
    assert session.payloads("turn_cancelled") == [{"message_count": 0}]
    assert session.payloads("turn_steered") == []
    assert session.texts()[-1] == ("turn-2", "user", "Use staging")


def test_cancelling_a_failed_turn_that_is_about_to_end_cancels_it_and_leaves_no_error() -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    refused = ModelStepRefused(error_type="TurnRefusedError", message="no credit")
    session.succeed(session.attempt_of("RunModel"), refused)
    failing = session.attempt_of("RecordTurnFailure")
    assert session.cancel_turn()
    assert failing.step_execution_id not in session.running
    session.succeed(session.attempt_of("ApplyTurnControl"), UnfinishedTurnOutcome())
    assert session.event_types()[-1] == "turn_cancelled"
    assert session.payloads("turn_failed") == []
    assert session.state.last_turn_error is None
    session.assert_idle()


# Workers


def test_a_cancellation_is_recorded_while_no_worker_runs() -> None:
    session = PlayedSession()
    session.stop_worker()
    assert session.cancel_turn()
    assert session.payloads("turn_cancelled") == [{"message_count": 0}]
    session.assert_idle()


@pytest.mark.parametrize("effect_events", [1, 2, 3])
def test_a_cancellation_survives_workers_that_die(effect_events: int) -> None:
    session = PlayedSession(wanted("c1"), wanted("c2"), driver={"builds_unfinished_turns": True})
    session.start_task("c2")
    session.cancel_turn()
    for _ in range(effect_events):
        session.lose_worker()
    # A request to stop a task that dies three times is recorded all the same.
    if effect_events < 3:
        session.succeed(session.attempt_of("CancelToolTask"), ToolTaskCancelled())
    session.succeed(session.attempt_of("ApplyTurnControl"), UnfinishedTurnOutcome())
    assert session.finished() == {"c1": "failed", "c2": "outcome_unknown"}
    assert session.payloads("turn_cancelled") == [{"message_count": 0}]
    session.assert_idle()


def test_a_durable_wait_that_was_cancelled_does_not_wake_a_later_turn() -> None:
    session = PlayedSession(waiting("c1", 60))
    session.cancel_turn()
    session.send("again")
    session.ask_for(waiting("c1", 3_600))
    session.advance(60)
    assert json.loads(session.record("c1").arguments)["duration_seconds"] == 3_600
    assert session.record("c1").status == "waiting_for_timer"
