"""Remote work that a tool starts: polled, asked about, lost, abandoned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dex_agents.runner_outcomes import ToolTaskPending, ToolTaskStarted
from dex_agents.session.ingress import RunnerContractError, tool_outcome, tool_task_outcome
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ToolCallFailed,
    ToolCallSucceeded,
    ToolCallTaskStarted,
    ToolTaskCancelled,
    ToolTaskStillPending,
    UnfinishedTurnOutcome,
)
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.texts import MISSING_TOOL_TASK_POLLER, OUTCOME_UNKNOWN_TOOL_RESULT, TASK_ABANDONED_ERROR
from dex_agents.session.tool_values import AgentToolCallRecord, QuestionAnswer, ToolEffect
from dex_agents.session.transition_rules import ALLOWED_STATUS_MOVES
from dex_flow.kernel import SaveCheckpoint

from .played_session import IDEMPOTENT_WRITE, NON_IDEMPOTENT_WRITE, READ, UNCLASSIFIED, PlayedSession, question, wanted

every_effect = pytest.mark.parametrize("effect", list(ToolEffect), ids=lambda effect: effect.value)
DAY = 24 * 3_600


def started(effect: ToolEffect = READ, *, driver: dict[str, Any] | None = None, **options: Any) -> PlayedSession:
    """A session whose tool started remote work that is polled in 5 seconds."""
    session = PlayedSession(wanted("c1", effect), driver=driver, **options)
    session.start_task("c1")
    return session


def polled(effect: ToolEffect = READ, **fields: Any) -> PlayedSession:
    """The same, while the first poll runs."""
    session = started(effect, **fields)
    session.advance(5)
    return session


def pending(seconds: int = 5, continuation: str | None = None) -> ToolTaskStillPending:
    return ToolTaskStillPending(poll_interval_seconds=seconds, continuation=continuation)


def read_by_poll(session: PlayedSession) -> AgentToolCallRecord:
    """The record as the running poll reads it."""
    record: AgentToolCallRecord = session.snapshot_of(session.poll("c1")).record
    return record


def assert_unknown_to_the_model(session: PlayedSession) -> None:
    assert session.finished() == {"c1": "outcome_unknown"}
    assert session.model_results() == [OUTCOME_UNKNOWN_TOOL_RESULT]


# Started and polled


@every_effect
def test_a_tool_that_starts_a_task_ends_its_step_and_says_so(effect: ToolEffect) -> None:
    session = started(effect)
    assert session.payloads("tool_task_started") == [{"tool_call_id": "c1", "tool_name": "tool", "task_id": "task-7"}]
    record = session.record()
    assert (record.status, record.is_running) == ("waiting_for_task", False)
    assert (record.task_id, record.task_poll_interval_seconds) == ("task-7", 5)
    assert sorted(session.open_step_types) == [
        "PollToolTask",
        "ResumeTurn",
    ]
    # No Step holds a worker between two polls.
    assert session.running == {}


def test_a_task_is_polled_once_per_interval_until_it_has_a_result() -> None:
    session = started()
    session.advance(4)
    assert session.running == {}
    session.advance(1)
    session.succeed(session.poll(), pending(60))
    session.advance(59)
    assert session.running == {}
    session.advance(1)
    session.succeed(session.poll(), pending(1))
    session.advance(1)
    session.succeed(session.poll(), ToolCallSucceeded(output="report", framework_result="opaque"))
    record = session.record()
    assert (record.status, record.output, record.framework_result) == ("succeeded", "report", "opaque")
    assert session.model_results() == ["report"]
    session.answer_turn()
    session.assert_idle()


@every_effect
def test_a_failure_for_the_model_that_a_poll_returns_is_failed_whatever_the_effect(effect: ToolEffect) -> None:
    session = polled(effect)
    session.succeed(session.poll(), ToolCallFailed(message="the report does not exist"))
    assert session.finished() == {"c1": "failed"}
    assert session.model_results() == ["the report does not exist"]


@pytest.mark.parametrize(
    ("wanted_seconds", "stored"),
    [(0, 1), (-5, 1), (0.001, 1), (1, 1), (1.001, 2), (59.9, 60), (DAY, DAY), (DAY + 1, DAY), (float("inf"), DAY)],
)
def test_a_poll_interval_is_rounded_up_to_whole_seconds_from_one_to_a_day(wanted_seconds: float, stored: int) -> None:
    options = AgentSessionOptions()
    first = tool_outcome(ToolTaskStarted(task_id="t", poll_interval_seconds=wanted_seconds), "tool", options)
    assert first == ToolCallTaskStarted(task_id="t", poll_interval_seconds=stored)
    later = tool_task_outcome(ToolTaskPending(poll_interval_seconds=wanted_seconds), "tool", options)
    assert later == ToolTaskStillPending(poll_interval_seconds=stored)


@pytest.mark.parametrize("seconds", [float("nan"), "5", None, True])
def test_a_poll_interval_that_is_no_number_breaks_the_runners_contract(seconds: Any) -> None:
    options = AgentSessionOptions()
    with pytest.raises(RunnerContractError, match=r"ToolTaskStarted\.poll_interval_seconds must be a number"):
        tool_outcome(ToolTaskStarted(task_id="t", poll_interval_seconds=seconds), "tool", options)
    with pytest.raises(RunnerContractError, match=r"ToolTaskPending\.poll_interval_seconds must be a number"):
        tool_task_outcome(ToolTaskPending(poll_interval_seconds=seconds), "tool", options)


def test_a_pending_task_keeps_the_continuation_it_returned_and_forgets_it_when_it_returns_none() -> None:
    session = polled()
    assert read_by_poll(session).input_continuation is None
    for continuation in ("page 2", "page 3", None):
        session.succeed(session.poll(), pending(1, continuation))
        session.advance(1)
        assert read_by_poll(session).input_continuation == continuation


def test_a_worker_restart_only_delays_the_next_poll() -> None:
    session = started()
    session.stop_worker()
    session.now += 3 * DAY * 1_000_000
    session.take_work()
    assert read_by_poll(session).task_id == "task-7"
    session.succeed(session.poll(), ToolCallSucceeded(output="report"))
    assert session.model_results() == ["report"]


def test_a_skipped_timer_polls_now() -> None:
    session = started()
    (step,) = (step for step in session.header.steps.values() if step.type == "PollToolTask")
    assert session.skip_timer(step.id)
    session.poll()


def test_tasks_of_one_response_are_polled_side_by_side() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2"), wanted("c3"))
    session.start_task("c1", interval=5, task_id="t1")
    session.start_task("c2", interval=3, task_id="t2")
    session.return_from_tool("c3", "free")
    session.advance(5)
    session.succeed(session.poll("c1"), ToolCallSucceeded(output="one"))
    session.succeed(session.poll("c2"), ToolCallSucceeded(output="two"))
    assert session.model_results() == ["one", "two", "free"]


def test_a_retried_tool_attempt_reads_the_handle_that_the_lost_one_saved() -> None:
    session = PlayedSession(wanted("c1", IDEMPOTENT_WRITE))
    lost = session.tool_attempt()
    session.apply(SaveCheckpoint(lost.step_execution_id, lost.attempt, "task-7"))
    session.lose_worker()
    retried = session.tool_attempt()
    assert (retried.attempt, retried.checkpoint) == (2, "task-7")
    session.start_task("c1", task_id="task-7")
    assert len(session.payloads("tool_task_started")) == 1


# Its questions


def asked(effect: ToolEffect = READ, **fields: Any) -> PlayedSession:
    session = polled(effect, **fields)
    session.succeed(session.poll(), question("Overwrite it?", choices=("yes", "no"), continuation="q-1"))
    return session


RESOLUTIONS = {
    "answered": QuestionAnswer(question="Overwrite it?", answer="yes"),
    "declined": QuestionAnswer(question="Overwrite it?", resolution="declined"),
    "declined with a message": QuestionAnswer(
        question="Overwrite it?", resolution="declined", rejection_message="ask Eva"
    ),
    "deadline_passed": QuestionAnswer(question="Overwrite it?", resolution="deadline_passed"),
}
every_resolution = pytest.mark.parametrize("resolution", list(RESOLUTIONS))


def resolve(session: PlayedSession, resolution: str, number: int = 1) -> None:
    interrupt_id = f"turn-1.c1-input-{number}"
    if resolution == "answered":
        assert session.answer(interrupt_id, "yes")
    elif resolution == "deadline_passed":
        session.advance(3_600)
    else:
        assert session.resolve(interrupt_id, False, "ask Eva" if "message" in resolution else None)


@every_effect
@every_resolution
def test_a_task_gets_the_end_of_its_question_on_exactly_one_poll(resolution: str, effect: ToolEffect) -> None:
    session = asked(effect, interrupt_deadline=timedelta(hours=1))
    assert session.interrupt_ids() == ["turn-1.c1-input-1"]
    record = session.record()
    assert (record.status, record.task_answer_pending) == ("awaiting_answer", False)
    resolve(session, resolution)
    # The poll that hands it over does not wait for the interval.
    record = read_by_poll(session)
    assert (record.status, record.task_answer_pending) == ("waiting_for_task", True)
    assert record.input_answers == (RESOLUTIONS[resolution],)
    assert record.input_continuation == "q-1"
    assert session.finished() == {}
    session.succeed(session.poll(), pending(2, "q-1"))
    assert session.running == {}
    session.advance(2)
    record = read_by_poll(session)
    assert (record.task_answer_pending, record.input_continuation) == (False, "q-1")
    assert record.input_answers == (RESOLUTIONS[resolution],)
    session.succeed(session.poll(), ToolCallSucceeded(output="written"))
    assert session.finished() == {"c1": "succeeded"}
    session.answer_turn()
    session.assert_idle()


@every_resolution
@pytest.mark.parametrize("how", ["failed", "lost"])
def test_a_retried_poll_gets_the_end_of_the_question_again(resolution: str, how: str) -> None:
    session = asked(interrupt_deadline=timedelta(hours=1))
    resolve(session, resolution)
    for _ in range(2):
        assert read_by_poll(session).task_answer_pending
        if how == "lost":
            session.lose_worker()
        else:
            session.fail(session.poll())
            session.advance(30)
    record = read_by_poll(session)
    assert (record.task_answer_pending, record.input_answers[-1]) == (True, RESOLUTIONS[resolution])


def test_a_passed_deadline_of_a_tasks_question_is_announced_and_answers_nothing_any_more() -> None:
    session = asked(interrupt_deadline=timedelta(hours=1))
    session.advance(3_600)
    (resolved,) = session.payloads("interrupt_resolved")
    assert (resolved["answered"], resolved["rejection_message"]) == (False, "question deadline passed")
    assert not session.answer("turn-1.c1-input-1", "yes")
    assert session.interrupt_ids() == []


def test_a_task_may_ask_again_and_its_questions_are_numbered_on() -> None:
    session = PlayedSession(wanted("c1"))
    session.succeed(session.tool_attempt(), question("Which account?"))
    assert session.answer("turn-1.c1-input-1", "A")
    session.start_task()
    session.advance(5)
    session.succeed(session.poll(), question("Overwrite it?", continuation="q-1"))
    resolve(session, "answered", 2)
    # The same question again, since the task could not tell whether the answer arrived.
    session.succeed(session.poll(), question("Overwrite it?", continuation="q-1"))
    assert session.interrupt_ids() == ["turn-1.c1-input-3"]
    resolve(session, "declined", 3)
    record = read_by_poll(session)
    assert [answer.resolution for answer in record.input_answers] == ["answered", "answered", "declined"]
    assert record.task_answer_pending


def test_a_continuation_of_the_tool_is_not_that_of_its_task() -> None:
    session = PlayedSession(wanted("c1"))
    session.succeed(session.tool_attempt(), question(continuation="of the tool"))
    session.answer("turn-1.c1-input-1", "A")
    session.start_task()
    session.advance(5)
    assert read_by_poll(session).input_continuation is None


# Lost


@every_effect
@pytest.mark.parametrize("how", ["failed", "lost"])
def test_a_poll_gets_three_attempts_and_then_the_effect_decides(effect: ToolEffect, how: str) -> None:
    session = polled(effect)
    for attempt in (1, 2, 3):
        assert session.poll().attempt == attempt
        if how == "lost":
            session.lose_worker()
        else:
            session.fail(session.poll(), "ConnectionError", "reset")
            session.advance(30)
    record = session.record()
    assert record.status == ("failed" if effect is READ else "outcome_unknown")
    assert record.error is not None
    assert record.error.startswith("WorkerLost: " if how == "lost" else "ConnectionError: reset")
    assert [row.step_type for row in session.store.history if row.step_type.startswith("RecordTool")] == [
        "RecordToolFailure" if EFFECT_RULES[effect].may_repeat else "RecordToolOutcomeUnknown"
    ]
    if effect is not READ:
        assert_unknown_to_the_model(session)


@every_effect
def test_a_poll_that_cannot_succeed_is_not_repeated(effect: ToolEffect) -> None:
    session = polled(effect)
    session.fail(session.poll(), "RunnerContractError", "not a task outcome", is_retryable=False)
    assert session.record().status == EFFECT_RULES[effect].status_when_lost


def test_a_later_poll_has_three_attempts_of_its_own() -> None:
    session = polled()
    for _ in range(4):
        session.lose_worker()
        session.lose_worker()
        session.succeed(session.poll(), pending(1))
        session.advance(1)
    session.succeed(session.poll(), ToolCallSucceeded(output="report"))
    assert session.model_results() == ["report"]


@every_effect
def test_a_task_of_a_runner_that_cannot_poll_is_missing_its_poller(effect: ToolEffect) -> None:
    session = PlayedSession(wanted("c1", effect), driver={"polls_tasks": False})
    session.start_task()
    record = session.record()
    assert record.status == ("failed" if effect is READ else "outcome_unknown")
    assert (record.error, record.task_id) == (MISSING_TOOL_TASK_POLLER, "task-7")
    assert session.model_results() == [MISSING_TOOL_TASK_POLLER if effect is READ else OUTCOME_UNKNOWN_TOOL_RESULT]


@every_effect
def test_a_poller_that_a_deploy_removed_is_missing_at_the_next_poll(effect: ToolEffect) -> None:
    before = started(effect)
    session = PlayedSession(driver={"polls_tasks": False})
    session.store, session.now = before.store, before.now
    session.running.clear()
    session.advance(5)
    assert session.record().status == ("failed" if effect is READ else "outcome_unknown")
    assert session.record().error == MISSING_TOOL_TASK_POLLER
    session.answer_turn()
    session.assert_idle()


def test_a_call_that_started_a_task_is_never_rejected() -> None:
    assert "rejected" not in {status.value for status in ALLOWED_STATUS_MOVES[started().record().status]}
    for stop in ("steer", "cancel", "decline", "deadline"):
        session = asked(driver={"builds_unfinished_turns": True}, interrupt_deadline=timedelta(hours=1))
        if stop == "steer":
            session.steer("Never mind")
            resolve(session, "declined")
        elif stop == "cancel":
            session.cancel_turn()
            session.succeed(session.attempt_of("CancelToolTask"), ToolTaskCancelled())
        else:
            resolve(session, "declined" if stop == "decline" else "deadline_passed")
        if stop != "cancel":
            session.succeed(session.poll(), ToolCallFailed(message="stopped"))
        assert session.finished()["c1"] in ("failed", "outcome_unknown")


# Abandoned


@pytest.mark.parametrize("effect", [READ, IDEMPOTENT_WRITE, NON_IDEMPOTENT_WRITE, UNCLASSIFIED], ids=lambda e: e.value)
def test_an_abandoned_task_is_recorded_as_unknown_with_the_reason(effect: ToolEffect) -> None:
    session = started(effect, driver={"builds_unfinished_turns": True})
    session.cancel_turn()
    request = session.attempt_of("CancelToolTask", "c1")
    record = session.snapshot_of(request).record
    assert (record.task_id, record.status) == ("task-7", "waiting_for_task")
    session.succeed(request, ToolTaskCancelled())
    (call,) = session.snapshot_of(session.attempt_of("ApplyTurnControl")).tool_calls
    assert (call.status, call.error, call.cancellation_reason) == (
        "outcome_unknown",
        TASK_ABANDONED_ERROR,
        "turn_cancelled",
    )


def test_a_runner_that_cannot_stop_tasks_abandons_them_at_once() -> None:
    session = started(driver={"cancels_tasks": False})
    session.cancel_turn()
    assert session.finished() == {"c1": "outcome_unknown"}
    session.assert_idle()


@every_effect
@pytest.mark.parametrize("how", ["failed", "lost", "hopeless"])
def test_a_canceller_that_keeps_failing_still_records_the_call_and_the_turn_ends(how: str, effect: ToolEffect) -> None:
    session = started(effect, driver={"builds_unfinished_turns": True})
    session.cancel_turn()
    for attempt in (1, 2, 3) if how != "hopeless" else (1,):
        request = session.attempt_of("CancelToolTask")
        assert request.attempt == attempt
        if how == "lost":
            session.lose_worker()
        else:
            session.fail(request, "ConnectionError", "reset", is_retryable=how == "failed")
            session.advance(10)
    (call,) = session.snapshot_of(session.attempt_of("ApplyTurnControl")).tool_calls
    assert (call.status, call.cancellation_reason) == ("outcome_unknown", "turn_cancelled")
    assert call.error is not None
    assert call.error.startswith(f"{TASK_ABANDONED_ERROR}, and stopping it failed: ")
    session.succeed(session.attempt_of("ApplyTurnControl"), UnfinishedTurnOutcome())
    assert session.payloads("turn_cancelled") == [{"message_count": 0}]
    session.assert_idle()


def test_the_question_of_an_abandoned_task_is_withdrawn_at_once() -> None:
    session = asked()
    session.cancel_turn()
    assert session.interrupt_ids() == []
    (resolved,) = session.payloads("interrupt_resolved")
    assert (resolved["approved"], resolved["answered"], resolved["cancellation_reason"]) == (
        False,
        False,
        "turn_cancelled",
    )
    assert not session.answer("turn-1.c1-input-1", "yes")
    session.succeed(session.attempt_of("CancelToolTask"), ToolTaskCancelled())
    assert len(session.payloads("interrupt_resolved")) == 1
    session.assert_idle()


def test_a_result_that_commits_before_the_cancellation_stays() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2"))
    session.start_task("c1")
    session.advance(5)
    session.succeed(session.poll("c1"), ToolCallSucceeded(output="report"))
    session.cancel_turn()
    assert "CancelToolTask" not in session.open_step_types
    session.return_from_tool("c2")
    assert session.finished() == {"c1": "succeeded", "c2": "succeeded"}
    session.assert_idle()
