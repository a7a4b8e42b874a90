"""The table "A call under a pending steer or cancel": one test per cell, and the variants of its outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dex_agents.session.outcomes import ToolCallFailed, ToolCallSucceeded, ToolTaskCancelled, ToolTaskStillPending
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.texts import (
    NO_FURTHER_ATTEMPT_STEERED,
    NO_FURTHER_ATTEMPT_TURN_CANCELLED,
    TASK_ABANDONED_ERROR,
)
from dex_agents.session.tool_values import AgentToolCall, ToolEffect

from .played_session import (
    IDEMPOTENT_WRITE,
    NON_IDEMPOTENT_WRITE,
    READ,
    UNCLASSIFIED,
    PlayedSession,
    asking,
    question,
    waiting,
    wanted,
)

STEER = "steered"
CANCEL = "turn_cancelled"
NO_FURTHER_ATTEMPT = {STEER: NO_FURTHER_ATTEMPT_STEERED, CANCEL: NO_FURTHER_ATTEMPT_TURN_CANCELLED}

both = pytest.mark.parametrize("reason", [STEER, CANCEL])
every_effect = pytest.mark.parametrize("effect", list(ToolEffect), ids=lambda effect: effect.value)
repeatable = pytest.mark.parametrize("effect", [READ, IDEMPOTENT_WRITE], ids=lambda effect: effect.value)
single_attempt = pytest.mark.parametrize(
    "effect", [NON_IDEMPOTENT_WRITE, UNCLASSIFIED], ids=lambda effect: effect.value
)


def play(*calls: Any, **options: Any) -> PlayedSession:
    """A session whose turns wait for the runner's messages when they end early, so that their records can be read."""
    return PlayedSession(*calls, driver={"builds_unfinished_turns": True}, **options)


def stop(session: PlayedSession, reason: str) -> None:
    """Steer or cancel the running turn."""
    assert session.steer("Stop that") if reason == STEER else session.cancel_turn()


def ended_call(session: PlayedSession, tool_call_id: str = "c1") -> AgentToolCall:
    """A call of the turn that is about to end because nothing of it is open any more."""
    ending = session.attempt_of("ApplyTurnControl")
    assert [claim.step_type for claim in session.running.values()] == ["ApplyTurnControl"]
    calls: tuple[AgentToolCall, ...] = session.snapshot_of(ending).tool_calls
    return next(call for call in calls if call.tool_call_id == tool_call_id)


def assert_rejected(session: PlayedSession, reason: str) -> None:
    call = ended_call(session)
    assert (call.status, call.cancellation_reason) == ("rejected", reason)
    assert (call.output, call.error, call.rejection_message) == (None, None, None)
    assert session.interrupt_ids() == []
    assert session.finished() == {"c1": "rejected"}


def gated_call() -> PlayedSession:
    return play(wanted("c1", gated=True))


def asked_question() -> PlayedSession:
    return play(asking("c1"))


def tool_question() -> PlayedSession:
    session = play(wanted("c1", NON_IDEMPOTENT_WRITE))
    session.succeed(session.tool_attempt(), question())
    return session


def durable_wait() -> PlayedSession:
    return play(waiting("c1"))


def ready_call() -> PlayedSession:
    session = play(wanted("c1", gated=True))
    session.has_worker = False
    assert session.resolve("turn-1.c1", True)
    return session


def ready_answered_call() -> PlayedSession:
    session = tool_question()
    session.has_worker = False
    assert session.answer("turn-1.c1-input-1", "the first")
    return session


NOT_STARTED = [gated_call, asked_question, tool_question, durable_wait, ready_call, ready_answered_call]


@both
@pytest.mark.parametrize("where", NOT_STARTED, ids=lambda where: where.__name__)
def test_row_1_a_call_that_is_not_started_is_rejected(where: Callable[[], PlayedSession], reason: str) -> None:
    session = where()
    stop(session, reason)
    # A call that is ready is rejected when a worker comes to take it; a call that waits, in the commit of the RPC.
    session.take_work()
    assert_rejected(session, reason)


@both
@every_effect
def test_row_2_before_run_of_the_first_attempt_rejects(effect: ToolEffect, reason: str) -> None:
    session = play()
    session.starts_claims = False
    if EFFECT_RULES[effect].may_repeat:
        # The claim is the start: the stop has to come while nobody has taken the call.
        session.has_worker = False
        session.ask_for(wanted("c1", effect))
        stop(session, reason)
        session.take_work()
    else:
        session.ask_for(wanted("c1", effect))
        claim = session.tool_attempt("c1")
        assert not claim.is_started
        stop(session, reason)
        session.begin(claim)
    assert_rejected(session, reason)
    assert "tool_call_started" not in session.event_types()


@both
@every_effect
def test_row_3_a_running_attempt_runs_to_its_end_and_its_outcome_counts(effect: ToolEffect, reason: str) -> None:
    session = play(wanted("c1", effect))
    stop(session, reason)
    assert session.record().is_running
    session.advance(600)
    session.return_from_tool("c1", "refunded")
    call = ended_call(session)
    assert (call.status, call.output, call.cancellation_reason) == ("succeeded", "refunded", None)


@both
@every_effect
def test_row_3_a_failure_for_the_model_counts_too(effect: ToolEffect, reason: str) -> None:
    session = play(wanted("c1", effect))
    stop(session, reason)
    session.succeed(session.tool_attempt(), ToolCallFailed(message="no such order"))
    call = ended_call(session)
    assert (call.status, call.error, call.cancellation_reason) == ("failed", "no such order", None)


def assert_recorded_by_effect(session: PlayedSession, effect: ToolEffect, reason: str, error: str) -> None:
    call = ended_call(session)
    assert call.status == EFFECT_RULES[effect].status_when_lost.value
    assert call.status == ("failed" if effect is READ else "outcome_unknown")
    assert (call.error, call.cancellation_reason) == (f"{error}; {NO_FURTHER_ATTEMPT[reason]}", reason)
    assert session.event_types().count("tool_call_started") == 1


@both
@repeatable
def test_row_4_a_pending_retry_makes_no_further_attempt(effect: ToolEffect, reason: str) -> None:
    session = play(wanted("c1", effect))
    session.fail(session.tool_attempt(), "TimeoutError", "slow")
    assert session.running == {}
    stop(session, reason)
    assert_recorded_by_effect(session, effect, reason, "TimeoutError: slow")
    session.advance(3_600)
    assert_recorded_by_effect(session, effect, reason, "TimeoutError: slow")


@both
@repeatable
def test_row_4_an_attempt_that_fails_while_stopped_ends_without_a_backoff(effect: ToolEffect, reason: str) -> None:
    session = play(wanted("c1", effect))
    stop(session, reason)
    session.fail(session.tool_attempt(), "TimeoutError", "slow", retry_after_seconds=900)
    assert_recorded_by_effect(session, effect, reason, "TimeoutError: slow")


@both
@repeatable
def test_row_4_an_attempt_that_is_lost_while_stopped_is_not_made_again(effect: ToolEffect, reason: str) -> None:
    session = play(wanted("c1", effect))
    stop(session, reason)
    session.lose_worker()
    call = ended_call(session)
    assert call.status == EFFECT_RULES[effect].status_when_lost.value
    assert call.error is not None
    assert call.error.startswith("WorkerLost: ")
    assert call.error.endswith(NO_FURTHER_ATTEMPT[reason])
    assert session.event_types().count("tool_call_started") == 1


@both
@repeatable
def test_row_4_an_attempt_that_cannot_be_made_again_goes_by_effect(effect: ToolEffect, reason: str) -> None:
    session = play(wanted("c1", effect))
    stop(session, reason)
    session.fail(session.tool_attempt(), "ValueError", "bad", is_retryable=False)
    call = ended_call(session)
    assert (call.status, call.error) == (EFFECT_RULES[effect].status_when_lost.value, "ValueError: bad")


@both
@single_attempt
@pytest.mark.parametrize("is_lost", [False, True], ids=["failed", "lost"])
def test_row_4_a_single_attempt_that_ends_while_stopped_is_unknown(
    effect: ToolEffect, is_lost: bool, reason: str
) -> None:
    session = play(wanted("c1", effect))
    stop(session, reason)
    if is_lost:
        session.lose_worker()
    else:
        session.fail(session.tool_attempt(), "ConnectionError", "reset")
    call = ended_call(session)
    assert (call.status, call.cancellation_reason) == ("outcome_unknown", None)
    assert call.error is not None
    assert call.error.startswith("WorkerLost: " if is_lost else "ConnectionError: reset")


@both
def test_row_4_several_lost_attempts_are_each_recorded_once(reason: str) -> None:
    session = play(
        wanted("c1"), wanted("c2", IDEMPOTENT_WRITE), wanted("c3", NON_IDEMPOTENT_WRITE), wanted("c4", gated=True)
    )
    stop(session, reason)
    session.lose_worker()
    calls = session.snapshot_of(session.attempt_of("ApplyTurnControl")).tool_calls
    statuses = [call.status.value for call in calls]
    assert statuses == ["failed", "outcome_unknown", "outcome_unknown", "rejected"]
    assert len(session.payloads("tool_call_finished")) == 4


@both
@every_effect
def test_row_5_a_tool_that_asks_is_rejected_and_no_question_is_raised(effect: ToolEffect, reason: str) -> None:
    session = play(wanted("c1", effect))
    stop(session, reason)
    session.succeed(session.tool_attempt(), question())
    assert_rejected(session, reason)
    assert "interrupt_raised" not in session.event_types()


@every_effect
def test_row_6_a_task_that_starts_while_steered_is_polled_questions_included(effect: ToolEffect) -> None:
    session = play(wanted("c1", effect))
    stop(session, STEER)
    session.start_task()
    session.advance(5)
    session.succeed(session.poll(), question("Overwrite it?"))
    assert session.interrupt_ids() == ["turn-1.c1-input-1"]
    assert session.answer("turn-1.c1-input-1", "yes")
    assert session.snapshot_of(session.poll()).record.input_answers[-1].answer == "yes"
    session.succeed(session.poll(), ToolCallSucceeded(output="written"))
    call = ended_call(session)
    assert (call.status, call.output, call.cancellation_reason) == ("succeeded", "written", None)


@every_effect
def test_row_6_a_task_that_starts_while_cancelled_is_stopped_and_unknown(effect: ToolEffect) -> None:
    session = play(wanted("c1", effect))
    stop(session, CANCEL)
    session.start_task(task_id="task-9")
    request = session.attempt_of("CancelToolTask", "c1")
    assert session.snapshot_of(request).record.task_id == "task-9"
    session.succeed(request, ToolTaskCancelled())
    assert_abandoned(session)
    assert session.payloads("tool_task_started") == [{"tool_call_id": "c1", "tool_name": "tool", "task_id": "task-9"}]


def assert_abandoned(session: PlayedSession) -> None:
    call = ended_call(session)
    assert (call.status, call.cancellation_reason, call.error) == ("outcome_unknown", CANCEL, TASK_ABANDONED_ERROR)
    assert session.interrupt_ids() == []


def between_polls(effect: ToolEffect) -> PlayedSession:
    session = play(wanted("c1", effect))
    session.start_task()
    assert session.running == {}
    return session


def during_a_poll(effect: ToolEffect) -> PlayedSession:
    session = between_polls(effect)
    session.advance(5)
    assert session.poll().is_started
    return session


def poll_retry_pending(effect: ToolEffect) -> PlayedSession:
    session = during_a_poll(effect)
    session.fail(session.poll())
    assert session.running == {}
    return session


def task_question(effect: ToolEffect) -> PlayedSession:
    session = during_a_poll(effect)
    session.succeed(session.poll(), question("Overwrite it?", continuation="q1"))
    return session


def answer_not_handed_over(effect: ToolEffect) -> PlayedSession:
    session = task_question(effect)
    session.has_worker = False
    assert session.answer("turn-1.c1-input-1", "yes")
    return session


POLLING = [between_polls, during_a_poll, poll_retry_pending, task_question, answer_not_handed_over]
Where = Callable[[ToolEffect], PlayedSession]


@every_effect
@pytest.mark.parametrize("where", POLLING, ids=lambda where: where.__name__)
def test_row_7_a_task_goes_on_while_steered(where: Where, effect: ToolEffect) -> None:
    session = where(effect)
    stop(session, STEER)
    session.take_work()
    assert session.finished() == {}
    # Nothing that could end a wait of the task is left lying.
    assert all(name != "ToolCallCancellations" for name, _ in session.store.channels)
    if where is task_question:
        assert session.answer("turn-1.c1-input-1", "yes")
    if not session.running:
        session.advance(5)
    session.succeed(session.poll(), ToolTaskStillPending(poll_interval_seconds=60))
    session.advance(60)
    session.succeed(session.poll(), ToolCallSucceeded(output="written"))
    call = ended_call(session)
    assert (call.status, call.output, call.cancellation_reason) == ("succeeded", "written", None)


@every_effect
@pytest.mark.parametrize("where", POLLING, ids=lambda where: where.__name__)
def test_row_7_a_task_is_abandoned_when_cancelled(where: Where, effect: ToolEffect) -> None:
    session = where(effect)
    stop(session, CANCEL)
    assert session.interrupt_ids() == []
    assert "PollToolTask" not in session.open_step_types
    session.take_work()
    session.succeed(session.attempt_of("CancelToolTask", "c1"), ToolTaskCancelled())
    assert_abandoned(session)
