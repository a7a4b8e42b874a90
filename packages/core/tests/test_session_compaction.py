"""Context compaction, without an engine: when the summary counts, what fails, and who stops it."""

from __future__ import annotations

from typing import Any

import pytest

from dex_agents import AgentSessionOptions, CompactionPolicy
from dex_agents.session.outcomes import ContextSummarized, ModelStepNeedsCompaction, ToolCallSucceeded
from dex_agents.session.values import AgentState, AgentStatus, AgentUsage
from dex_agents.testing import SessionDriver

from .session_scripts import ONE_CALL, answer, asks, finish_model, payloads, started, wanted

POLICY = CompactionPolicy(context_window_tokens=1_000)


def talked(turns: int = 3, **options: Any) -> SessionDriver:
    """A session with some turns of two messages each, whose next model step runs."""
    driver = started(None, compaction=POLICY, **options)
    for number in range(turns):
        assert driver.send(f"question {number}")
        finish_model(driver, answer(f"answer {number}"))
    assert driver.send("the next question")
    return driver


def compact(driver: SessionDriver, through: int, text: str = "what was said") -> None:
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=through))
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text=text, usage=ONE_CALL))


def state_of(driver: SessionDriver) -> AgentState:
    state = driver.snapshot().state
    assert state is not None
    return state


def test_a_summary_stands_for_the_messages_it_covers_and_the_turn_goes_on() -> None:
    driver = talked()
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=4))
    assert state_of(driver).status is AgentStatus.COMPACTING_CONTEXT
    claim = driver.attempt_of("CompactContext")
    snapshot = driver.snapshot_of(claim)
    assert [message.sequence for message in snapshot.messages] == [1, 2, 3, 4]
    assert snapshot.previous_summary is None
    driver.succeed(claim, ContextSummarized(text="what was said", usage=ONE_CALL))
    assert state_of(driver).status is AgentStatus.RUNNING_MODEL
    turn = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [message.sequence for message in turn.messages] == [5, 6, 7]
    assert (turn.context_summary.generation, turn.context_summary.text) == (1, "what was said")
    assert payloads(driver, "compaction_started") == [{"through_sequence": 4}]
    assert payloads(driver, "compaction_finished") == [{"generation": 1, "through_sequence": 4}]
    finish_model(driver, answer())
    assert driver.snapshot().usage.model_calls == 5
    assert [message.sequence for message in driver.snapshot().messages] == list(range(1, 9))


def test_the_next_summary_covers_what_came_since_and_knows_the_one_before() -> None:
    driver = talked()
    compact(driver, 2)
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=6))
    snapshot = driver.snapshot_of(driver.attempt_of("CompactContext"))
    assert [message.sequence for message in snapshot.messages] == [3, 4, 5, 6]
    assert snapshot.previous_summary.text == "what was said"
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="more", usage=ONE_CALL))
    summary = driver.snapshot().context_summary
    assert summary is not None
    assert (summary.generation, summary.last_sequence) == (2, 6)


def test_f39_a_worker_lost_in_a_summary_call_repeats_only_that_call() -> None:
    driver = talked()
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=4))
    driver.lose_worker()
    claim = driver.attempt_of("CompactContext")
    assert claim.attempt == 2
    driver.succeed(claim, ContextSummarized(text="once", usage=ONE_CALL))
    assert payloads(driver, "compaction_started") == [{"through_sequence": 4}]
    summary = driver.snapshot().context_summary
    assert summary is not None
    assert summary.generation == 1


def test_f39_a_summary_that_keeps_failing_lets_the_turn_go_on_without() -> None:
    driver = talked()
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=4))
    for _ in range(3):
        driver.fail(driver.attempt_of("CompactContext"), "EmptySummaryError", "the summary is blank")
        driver.advance(60)
    assert state_of(driver).status is AgentStatus.RUNNING_MODEL
    turn = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert turn.state.turn_compaction_error == "EmptySummaryError: the summary is blank"
    assert [message.sequence for message in turn.messages] == list(range(1, 8))
    finish_model(driver, answer())
    assert driver.send("again")
    assert state_of(driver).turn_compaction_error is None


@pytest.mark.parametrize("ends_with", ["steer", "cancel"])
def test_f39_a_turn_that_is_stopped_while_it_compacts_ends_and_keeps_its_messages(ends_with: str) -> None:
    driver = talked()
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=4))
    claim = driver.attempt_of("CompactContext")
    if ends_with == "cancel":
        assert driver.cancel_turn()
        assert claim.step_execution_id not in driver.running
    else:
        assert driver.steer("something else")
        driver.succeed(claim, ContextSummarized(text="done anyway", usage=ONE_CALL))
    types = driver.event_types()
    assert ("turn_cancelled" if ends_with == "cancel" else "turn_steered") in types
    assert len(driver.snapshot().messages) == (7 if ends_with == "cancel" else 8)
    summary = driver.snapshot().context_summary
    assert (summary is None) == (ends_with == "cancel")


def test_a_long_turn_compacts_between_its_own_model_steps() -> None:
    driver = talked()
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    compact(driver, 6)
    turn = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [message.sequence for message in turn.messages] == [7]
    assert [call.tool_call_id for call in turn.tool_calls] == ["c1"]
    assert turn.framework_run_state == "run state"


def test_the_usage_of_a_summary_counts_for_the_turn_and_the_session() -> None:
    driver = talked(1)
    compact(driver, 2)
    assert state_of(driver).turn_model_calls == 1
    assert driver.snapshot().usage == AgentUsage(model_calls=2, input_tokens=20, output_tokens=4, total_tokens=24)


def test_a_runner_without_the_methods_gets_every_stored_message_and_no_summary() -> None:
    driver = talked()
    compact(driver, 4)
    other = SessionDriver(AgentSessionOptions(), compacts=False)
    other.store, other.now = driver.store, driver.now
    (claim,) = driver.running.values()
    turn = other.snapshot_of(claim)
    assert turn.context_summary is None
    assert [message.sequence for message in turn.messages] == list(range(1, 8))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"context_window_tokens": 0}, "context_window_tokens must be at least 1"),
        ({"trigger_ratio": 0}, "trigger_ratio must be above 0"),
        ({"trigger_ratio": 1.1}, "trigger_ratio must be above 0 and at most 1"),
        ({"retained_ratio": 0.9}, "retained_ratio must be below trigger_ratio"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        CompactionPolicy(**{"context_window_tokens": 1_000, **fields})
