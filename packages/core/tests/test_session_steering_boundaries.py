"""Where a steered turn ends, what it lets run, and what wins when something else comes at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from dex_agents.session.outcomes import ToolCallSucceeded, ToolTaskStillPending
from dex_agents.session.texts import TOOL_CALL_CANCELLED_BY_STEERING_RESULT
from dex_agents.session.tool_results import tool_result_text

from .played_session import NON_IDEMPOTENT_WRITE, PlayedSession, asking, question, stored_state, waiting, wanted


def events_after_steer(session: PlayedSession, text: str = "Use staging") -> list[str]:
    """What the steer itself does."""
    before = len(session.events())
    assert session.steer(text)
    return session.event_types()[before:]


# Where the turn ends


def test_steering_never_interrupts_a_model_call() -> None:
    session = PlayedSession()
    running = session.attempt_of("RunModel")
    assert events_after_steer(session) == []
    assert session.attempt_of("RunModel") == running
    assert session.header.steps[running.step_execution_id].status == "running"


def test_a_final_answer_completes_a_steered_turn_as_usual() -> None:
    session = PlayedSession()
    session.steer("Use staging")
    session.answer_turn("deployed")
    assert session.payloads("turn_completed") == [{"message_count": 1}]
    assert session.payloads("turn_steered") == []
    assert session.state.active_turn_id == "turn-2"


def test_a_steered_turn_ends_at_its_next_boundary_and_runs_no_call_the_model_still_asks_for() -> None:
    session = PlayedSession()
    session.steer("Use staging")
    session.ask_for(wanted("c1"), wanted("c2", NON_IDEMPOTENT_WRITE), wanted("c3", gated=True), asking("c4"))
    assert session.finished() == dict.fromkeys(["c1", "c2", "c3", "c4"], "rejected")
    assert "tool_call_started" not in session.event_types()
    assert session.payloads("turn_steered") == [{"steered_message_count": 1, "message_count": 0}]
    assert session.state.active_turn_id == "turn-2"


def test_a_steered_turn_makes_no_further_model_call() -> None:
    session = PlayedSession(wanted("c1"))
    session.steer("Use staging")
    session.return_from_tool()
    # The model call that runs now is that of the next turn.
    assert session.state.active_turn_id == "turn-2"
    assert session.snapshot_of(session.attempt_of("RunModel")).tool_calls == ()
    assert session.snapshot().usage.model_calls == 1


def test_a_failed_model_call_of_a_steered_turn_is_not_made_again() -> None:
    session = PlayedSession()
    session.steer("Use staging")
    session.fail(session.attempt_of("RunModel"), "OverloadedError", "busy")
    session.advance(1)
    assert session.payloads("turn_steered") == [{"steered_message_count": 1, "message_count": 0}]
    assert session.snapshot_of(session.attempt_of("RunModel")).turn_id == "turn-2"


def test_steering_lets_a_started_tool_run_to_its_end() -> None:
    session = PlayedSession(wanted("c1", NON_IDEMPOTENT_WRITE), wanted("c2", gated=True))
    assert events_after_steer(session) == ["interrupt_resolved", "tool_call_finished"]
    session.advance(3_600)
    assert session.finished() == {"c2": "rejected"}
    assert session.state.active_turn_id == "turn-1"
    session.return_from_tool("c1")
    assert session.finished() == {"c2": "rejected", "c1": "succeeded"}
    assert session.state.active_turn_id == "turn-2"


def test_steering_waits_for_a_started_task_its_questions_included() -> None:
    session = PlayedSession(wanted("c1"))
    session.start_task()
    assert events_after_steer(session) == []
    session.advance(5)
    session.succeed(session.poll(), question("Overwrite it?"))
    assert events_after_steer(session, "And quickly") == []
    assert session.interrupt_ids() == ["turn-1.c1-input-1"]
    assert session.answer("turn-1.c1-input-1", "yes")
    session.succeed(session.poll(), ToolTaskStillPending(poll_interval_seconds=1))
    session.advance(1)
    session.succeed(session.poll(), ToolCallSucceeded(output="written"))
    assert session.finished() == {"c1": "succeeded"}
    assert session.payloads("turn_steered") == [{"steered_message_count": 2, "message_count": 1}]


# What waits


def waits_for_approval() -> PlayedSession:
    return PlayedSession(wanted("c1", gated=True))


def waits_for_answer() -> PlayedSession:
    return PlayedSession(asking("c1"))


def waits_for_tools_answer() -> PlayedSession:
    session = PlayedSession(wanted("c1"))
    session.succeed(session.tool_attempt(), question())
    return session


def waits_for_timer() -> PlayedSession:
    return PlayedSession(waiting("c1"))


WAITS = [waits_for_approval, waits_for_answer, waits_for_tools_answer, waits_for_timer]
every_wait = pytest.mark.parametrize("where", WAITS, ids=lambda where: where.__name__)


@every_wait
def test_a_steer_ends_every_wait_in_its_own_commit(where: Callable[[], PlayedSession]) -> None:
    session = where()
    new = events_after_steer(session)
    assert new[-3:] == ["tool_call_finished", "turn_steered", "turn_started"]
    assert session.finished() == {"c1": "rejected"}
    assert session.interrupt_ids() == []
    for resolved in session.payloads("interrupt_resolved"):
        assert (resolved["approved"], resolved["answered"]) == (False, False)
        assert (resolved["rejection_message"], resolved["cancellation_reason"]) == (None, "steered")
    session.answer_turn()
    session.assert_idle()


@every_wait
def test_deciding_or_answering_after_a_steer_is_false_and_changes_nothing(where: Callable[[], PlayedSession]) -> None:
    session = where()
    ids = session.interrupt_ids()
    session.steer("Use staging")
    before = stored_state(session)
    for interrupt_id in ids:
        assert not session.resolve(interrupt_id, True)
        assert not session.resolve(interrupt_id, False, "no")
        assert not session.answer(interrupt_id, "Oslo")
    assert stored_state(session) == before


def test_the_model_sees_that_a_call_was_not_run_because_of_the_new_message() -> None:
    session = PlayedSession(wanted("c1", gated=True), driver={"builds_unfinished_turns": True})
    session.steer("Use staging")
    (call,) = session.snapshot_of(session.attempt_of("ApplyTurnControl")).tool_calls
    assert call.cancellation_reason == "steered"
    assert tool_result_text(call) == TOOL_CALL_CANCELLED_BY_STEERING_RESULT


def test_a_queued_message_does_not_end_a_durable_wait_and_a_steered_one_does() -> None:
    session = PlayedSession(waiting("c1", 60))
    session.send("Are you there?")
    session.advance(59)
    assert session.finished() == {}
    (queued,) = session.snapshot().queued_messages
    assert session.steer(message_id=queued.message_id)
    assert session.finished() == {"c1": "rejected"}
    assert session.texts()[-1] == ("turn-2", "user", "Are you there?")


# Who wins


def test_an_answer_that_commits_before_a_steer_is_the_calls_result() -> None:
    session = PlayedSession(asking("c1"), wanted("c2"))
    assert session.answer("turn-1.c1", "Oslo")
    session.steer("Use staging")
    assert session.record("c1").output == '{"status": "answered", "answer": "Oslo"}'
    session.return_from_tool("c2")
    assert session.finished() == {"c1": "succeeded", "c2": "succeeded"}


def test_a_durable_wait_whose_timer_fires_before_a_steer_keeps_its_result() -> None:
    session = PlayedSession(waiting("c1", 60), wanted("c2"))
    session.now += 60_000_000
    session.steer("Use staging")
    assert json.loads(session.record("c1").output or "")["status"] == "completed"
    session.return_from_tool("c2")
    assert session.finished() == {"c1": "succeeded", "c2": "succeeded"}


def test_a_built_in_call_with_invalid_arguments_of_a_steered_turn_fails_at_once() -> None:
    session = PlayedSession()
    session.steer("Use staging")
    session.ask_for(asking("c1", question=" "), waiting("c2", 0), waiting("c3", 60))
    assert session.finished() == {"c1": "failed", "c2": "failed", "c3": "rejected"}


def test_a_decision_that_commits_before_a_steer_moves_the_call_on_and_the_tool_is_still_not_started() -> None:
    session = PlayedSession(wanted("c1", gated=True), wanted("c2", NON_IDEMPOTENT_WRITE, gated=True), wanted("c3"))
    session.starts_claims = False
    session.has_worker = False
    assert session.resolve("turn-1.c1", True)
    assert session.resolve("turn-1.c2", True)
    session.steer("Use staging")
    assert session.record("c1").status == "approved"
    session.take_work()
    # A single-attempt call is claimed before it starts, and the start looks once more.
    session.begin(session.tool_attempt("c2"))
    assert {call_id: session.record(call_id).cancellation_reason for call_id in ("c1", "c2")} == {
        "c1": "steered",
        "c2": "steered",
    }
    assert session.payloads("tool_call_started") == [{"tool_call_id": "c3", "tool_name": "tool"}]
    approvals = [resolved["approved"] for resolved in session.payloads("interrupt_resolved")]
    assert approvals == [True, True]


def test_a_tools_answer_that_commits_before_a_steer_moves_the_call_on_and_the_tool_does_not_run_again() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2"))
    session.succeed(session.tool_attempt("c1"), question())
    session.has_worker = False
    assert session.answer("turn-1.c1-input-1", "the first")
    session.steer("Use staging")
    session.take_work()
    record = session.record("c1")
    assert (record.status, record.cancellation_reason) == ("rejected", "steered")
    assert session.payloads("tool_call_started").count({"tool_call_id": "c1", "tool_name": "tool"}) == 1


def test_a_rejection_that_commits_before_a_steer_keeps_its_words() -> None:
    session = PlayedSession(wanted("c1", gated=True), wanted("c2"))
    assert session.resolve("turn-1.c1", False, "use b@x")
    session.steer("Use staging")
    assert (session.record("c1").rejection_message, session.record("c1").cancellation_reason) == ("use b@x", None)


def test_a_deadline_that_passes_before_a_steer_is_the_calls_end() -> None:
    session = PlayedSession(wanted("c1", gated=True), asking("c2"), wanted("c3"), interrupt_deadline=timedelta(hours=1))
    session.now += 3_600_000_000
    session.steer("Use staging")
    assert [session.record(call_id).rejection_message for call_id in ("c1", "c2")] == [
        "approval deadline passed",
        "question deadline passed",
    ]
    assert [session.record(call_id).cancellation_reason for call_id in ("c1", "c2")] == [None, None]


def test_a_second_steer_of_the_same_turn_changes_no_finished_call() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2", gated=True), waiting("c3"))
    session.steer("one")
    ended = session.finished()
    finished_at = session.record("c2").finished_at
    session.now += 1_000_000
    assert events_after_steer(session, "two") == []
    assert session.finished() == ended == {"c2": "rejected", "c3": "rejected"}
    assert session.record("c2").finished_at == finished_at


def test_a_steer_that_nothing_needs_any_more_does_not_disturb_the_next_turn() -> None:
    session = PlayedSession()
    session.steer("one")
    session.steer("two")
    session.answer_turn()
    # Both wakes of turn 1 are gone: a call of turn 2 that waits goes on waiting.
    assert session.store.channels == {}
    session.ask_for(wanted("c1", gated=True))
    assert session.interrupt_ids() == ["turn-2.c1"]
    assert session.finished() == {}
    assert session.resolve("turn-2.c1", True)
    session.return_from_tool()
    session.answer_turn()
    session.assert_idle()
