"""Rules of context compaction: when a summary is asked for, what a runner needs for it, and what its failure means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from dex_agents import CompactionPolicy, ContextSummary, ContextSummaryResult, TurnLimits, create_agent_session_flow
from dex_agents.execution.compaction import RunnerCompactionExecution
from dex_agents.execution.model_step import RunnerModelStepExecution
from dex_agents.runner import FrameworkMessage, TurnCompleted, TurnRefusedError
from dex_agents.session.ingress import (
    EmptySummaryError,
    RunnerContractError,
    SummaryTooLongError,
    context_summarized,
)
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    CompactionSnapshot,
    ContextSummarized,
    ModelStepCompleted,
    ModelStepNeedsCompaction,
    ModelStepRefused,
    ModelStepSnapshot,
)
from dex_agents.session.values import AgentMessage, AgentState, AgentStatus, AgentUsage
from dex_agents.testing import SessionDriver

from .session_scripts import ONE_CALL, answer, asks, finish_model, payloads, started, wanted

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
POLICY = CompactionPolicy(context_window_tokens=1_000)
METHODS = ("estimate_input_tokens", "select_compaction_cutoff", "summarize_context")


class Runner:
    """A runner without compaction, which answers at once."""

    def __init__(self) -> None:
        self.model_calls = 0

    def build_user_message(self, text: str) -> FrameworkMessage:
        return FrameworkMessage(role="user", framework_item="{}", text=text)

    async def run_model_step(self, turn: Any) -> Any:
        self.model_calls += 1
        return TurnCompleted(new_messages=())

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        raise AssertionError


class CompactingRunner(Runner):
    """Whose estimate, cutoff and summary are given."""

    def __init__(self, estimate: Any = 0, cutoff: Any = None, summary: Any = None) -> None:
        super().__init__()
        self.estimate = estimate
        self.cutoff = cutoff
        self.summary = summary
        self.budgets: list[int] = []
        self.requests: list[Any] = []

    def estimate_input_tokens(self, turn: Any) -> Any:
        return self.estimate

    def select_compaction_cutoff(self, turn: Any, retained_token_budget: int) -> Any:
        self.budgets.append(retained_token_budget)
        return self.cutoff

    async def summarize_context(self, request: Any) -> Any:
        self.requests.append(request)
        if isinstance(self.summary, Exception):
            raise self.summary
        return self.summary


class QuietActivity:
    """An `Activity` whose events nobody reads."""

    flow_id = "order-7"
    step_execution_id = 7
    attempt = 1
    deadline: datetime | None = None
    heartbeat_checkpoint: str | None = None

    def emit(self, stream: Any, event: Any) -> None:
        raise AssertionError

    def heartbeat(self) -> None:
        """Nobody listens."""

    async def save_heartbeat_checkpoint(self, text: str) -> None:
        raise AssertionError


def message(sequence: int) -> AgentMessage:
    return AgentMessage(
        sequence=sequence, turn_id="turn-1", role="user", framework_item='{"text":"hello"}', created_at=NOW
    )


def model_snapshot(
    policy: CompactionPolicy | None = POLICY,
    *,
    summary: ContextSummary | None = None,
    error: str | None = None,
    first_stored: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> ModelStepSnapshot:
    state = AgentState(
        status=AgentStatus.RUNNING_MODEL,
        active_turn_id="turn-3",
        started_at=NOW,
        updated_at=NOW,
        last_message_sequence=9,
        turn_compaction_error=error,
    )
    return ModelStepSnapshot(
        state=state,
        turn_id="turn-3",
        messages=tuple(map(message, range(1, 10))),
        tool_calls=(),
        framework_run_state=None,
        options=AgentSessionOptions(compaction=policy),
        session_settings=dict(settings or {}),
        context_summary=summary,
        first_stored_sequence=first_stored,
    )


def step(runner: Any, snapshot: ModelStepSnapshot) -> Any:
    return asyncio.run(RunnerModelStepExecution(runner).run_model_step(QuietActivity(), snapshot))


def summarized_through(sequence: int) -> ContextSummary:
    return ContextSummary(generation=1, text="s", last_sequence=sequence, created_at=NOW)


# What a runner needs


def test_compaction_needs_a_runner_with_three_methods() -> None:
    with pytest.raises(TypeError, match=f"compaction needs a runner with {', '.join(METHODS)}"):
        create_agent_session_flow(Runner(), "Agent", compaction=POLICY)
    create_agent_session_flow(CompactingRunner(), "Agent", compaction=POLICY)
    create_agent_session_flow(Runner(), "Agent")
    create_agent_session_flow(CompactingRunner(), "Agent")


@pytest.mark.parametrize("missing", METHODS)
def test_a_runner_with_some_of_the_three_methods_is_refused_by_the_missing_one(missing: str) -> None:
    runner = type("HalfRunner", (CompactingRunner,), {missing: None})()
    for options in ({}, {"compaction": POLICY}):
        with pytest.raises(TypeError, match=f"HalfRunner is only half a ContextCompactor: it has no method {missing}"):
            create_agent_session_flow(runner, "Agent", **options)


def test_a_runner_without_the_methods_is_warned_of_on_every_model_call_once_messages_are_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "dex_agents.execution")
    runner = Runner()
    step(runner, model_snapshot(None))
    assert caplog.records == []
    for _ in range(2):
        step(runner, model_snapshot(None, first_stored=5))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "its messages before 5 are deleted, and Runner cannot read the summary" in caplog.records[0].getMessage()
    step(CompactingRunner(), model_snapshot(None, first_stored=5))
    assert len(caplog.records) == 2


# Thresholds


@pytest.mark.parametrize(("estimate", "compacts"), [(849, False), (850, True), (5_000, True)])
def test_messages_are_summarised_from_the_trigger_ratio_of_the_window_on(estimate: int, compacts: bool) -> None:
    runner = CompactingRunner(estimate, cutoff=4)
    outcome = step(runner, model_snapshot())
    assert isinstance(outcome, ModelStepNeedsCompaction if compacts else ModelStepCompleted)
    # The model is not called before the summary is stored, and the runner is asked where to cut only then.
    assert runner.model_calls == (0 if compacts else 1)
    assert runner.budgets == ([300] if compacts else [])


def test_the_ratios_are_those_of_the_contract() -> None:
    assert (POLICY.trigger_ratio, POLICY.retained_ratio) == (0.85, 0.3)
    assert (POLICY.trigger_tokens, POLICY.retained_token_budget) == (850, 300)


@pytest.mark.parametrize("cutoff", [None, 0, -3, 3, 4])
def test_a_cutoff_that_is_not_past_the_current_summary_asks_for_none(cutoff: int | None) -> None:
    runner = CompactingRunner(5_000, cutoff)
    assert isinstance(step(runner, model_snapshot(summary=summarized_through(4))), ModelStepCompleted)
    runner.cutoff = 5
    assert step(runner, model_snapshot(summary=summarized_through(4))) == ModelStepNeedsCompaction(through_sequence=5)


@pytest.mark.parametrize("cutoff", [10, True, "4", 4.0])
def test_a_cutoff_that_is_no_stored_message_breaks_the_runners_contract(cutoff: Any) -> None:
    with pytest.raises(RunnerContractError, match="select_compaction_cutoff must return the sequence of a stored"):
        step(CompactingRunner(5_000, cutoff), model_snapshot())


@pytest.mark.parametrize("estimate", [None, 1.5, True, "900"])
def test_an_estimate_that_is_no_whole_number_breaks_the_runners_contract(estimate: Any) -> None:
    with pytest.raises(RunnerContractError, match="estimate_input_tokens must return a whole number"):
        step(CompactingRunner(estimate), model_snapshot())


def test_without_a_policy_nothing_is_estimated() -> None:
    assert isinstance(step(CompactingRunner("never asked"), model_snapshot(None)), ModelStepCompleted)


# The summary call


def summarize(summary: Any, snapshot: CompactionSnapshot | None = None) -> tuple[CompactingRunner, ContextSummarized]:
    runner = CompactingRunner(summary=summary)
    snapshot = snapshot or compaction_snapshot()
    return runner, asyncio.run(RunnerCompactionExecution(runner).summarize_context(QuietActivity(), snapshot))


def compaction_snapshot(**fields: Any) -> CompactionSnapshot:
    return CompactionSnapshot(
        **{
            "turn_id": "turn-3",
            "messages": (message(5), message(6)),
            "previous_summary": summarized_through(4),
            "session_settings": {"model": "large"},
            "options": AgentSessionOptions(compaction=POLICY),
            **fields,
        }
    )


def test_one_summary_call_gets_the_messages_since_the_summary_the_window_and_the_turns_settings() -> None:
    runner, outcome = summarize(ContextSummaryResult(text="short", usage=ONE_CALL))
    (request,) = runner.requests
    assert [seen.sequence for seen in request.messages] == [5, 6]
    assert (request.previous_summary.text, request.input_token_budget) == ("s", 1_000)
    assert request.session_settings == {"model": "large"}
    with pytest.raises(TypeError):
        request.session_settings["model"] = "small"
    assert outcome == ContextSummarized(text="short", usage=ONE_CALL)


def test_a_summary_of_unknown_usage_counts_one_call() -> None:
    assert summarize(ContextSummaryResult(text="short"))[1].usage == AgentUsage(model_calls=1)


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_blank_summary_is_a_failed_attempt(text: str) -> None:
    with pytest.raises(EmptySummaryError):
        context_summarized(ContextSummaryResult(text=text), 1_000)


def test_a_summary_that_is_not_shorter_than_what_it_stands_for_is_a_failed_attempt() -> None:
    assert context_summarized(ContextSummaryResult(text="x" * 99), 100).text == "x" * 99
    with pytest.raises(SummaryTooLongError, match="the summary has 100 bytes"):
        context_summarized(ContextSummaryResult(text="x" * 100), 100)
    # The previous summary counts as what it stands for: two messages of 16 bytes and one byte.
    with pytest.raises(SummaryTooLongError, match="the summary has 33 bytes, and the messages it stands for have 33"):
        summarize(ContextSummaryResult(text="x" * 33))


def test_a_refused_summary_is_not_tried_again() -> None:
    with pytest.raises(Exception, match="too long") as raised:
        summarize(TurnRefusedError("too long"))
    assert raised.value.is_retryable is False  # type: ignore[attr-defined]


# What its failure means


def talked(**options: Any) -> SessionDriver:
    driver = started(None, **{"compaction": POLICY, **options})
    for number in range(3):
        assert driver.send(f"question {number}")
        finish_model(driver, answer(f"answer {number}"))
    assert driver.send("the next question")
    return driver


def compacting(**options: Any) -> SessionDriver:
    driver = talked(**options)
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=4))
    return driver


def state_of(driver: SessionDriver) -> AgentState:
    state = driver.snapshot().state
    assert state is not None
    return state


def test_a_summary_has_the_attempts_of_a_model_call_and_says_when_it_is_tried_again() -> None:
    driver = compacting()
    steps = driver.flow.steps
    assert steps["CompactContext"].options.retry == steps["RunModel"].options.retry
    assert steps["CompactContext"].options.attempt_timeout == steps["RunModel"].options.attempt_timeout
    assert steps["CompactContext"].options.heartbeat_timeout == steps["RunModel"].options.heartbeat_timeout
    driver.fail(driver.attempt_of("CompactContext"))
    (retrying,) = payloads(driver, "model_call_retrying")
    assert (retrying["attempt"], retrying["error"]) == (1, "RuntimeError: broken")


def test_a_failed_summary_does_not_fail_the_turn_and_is_not_tried_again_in_it() -> None:
    driver = compacting()
    for _ in range(3):
        driver.fail(driver.attempt_of("CompactContext"))
        driver.advance(60)
    assert "turn_failed" not in driver.event_types()
    assert payloads(driver, "compaction_finished") == []
    runner = CompactingRunner(900, cutoff=4)
    outcome = step(runner, model_snapshot(error=state_of(driver).turn_compaction_error))
    assert isinstance(outcome, ModelStepCompleted)
    assert runner.budgets == []


def test_input_that_does_not_fit_without_the_summary_fails_the_turn_by_name() -> None:
    failed = model_snapshot(error="EmptySummaryError: blank")
    assert isinstance(step(CompactingRunner(1_000), failed), ModelStepCompleted)
    outcome = step(CompactingRunner(1_001), failed)
    assert isinstance(outcome, ModelStepRefused)
    assert outcome.error_type == "ContextTooLargeError"
    assert "about 1001 tokens, the context window 1000" in outcome.message
    assert outcome.message.endswith("summarising the earlier messages failed: EmptySummaryError: blank")


def test_the_next_turn_tries_again() -> None:
    driver = compacting()
    driver.fail(driver.attempt_of("CompactContext"), is_retryable=False)
    finish_model(driver, answer())
    assert driver.send("again")
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=6))
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="said", usage=ONE_CALL))
    summary = driver.snapshot().context_summary
    assert summary is not None
    assert (summary.generation, summary.last_sequence) == (1, 6)


# What it leaves


def test_the_step_that_needs_a_summary_counts_no_model_call() -> None:
    driver = compacting()
    assert state_of(driver).turn_model_calls == 0
    assert driver.snapshot().usage.model_calls == 3
    assert len(payloads(driver, "usage_recorded")) == 3


def test_the_usage_of_the_summary_is_recorded_with_its_events() -> None:
    driver = compacting()
    seen = len(driver.events())
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="said", usage=ONE_CALL))
    assert sorted(event.type for event in driver.events()[seen:]) == ["compaction_finished", "usage_recorded"]


def test_the_summary_call_counts_for_the_limits_of_the_turn() -> None:
    driver = compacting(turn_limits=TurnLimits(model_calls=1))
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="said", usage=ONE_CALL))
    assert payloads(driver, "turn_limit_reached") == [{"limit": "model_calls", "value": 1}]


def test_summarised_messages_stay_stored_until_retention_deletes_them() -> None:
    driver = compacting()
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="said", usage=ONE_CALL))
    assert [seen.sequence for seen in driver.snapshot().messages] == list(range(1, 8))


def test_a_call_and_its_result_on_the_two_sides_of_a_cut_still_reach_the_runner() -> None:
    driver = talked()
    finish_model(driver, asks(wanted("c1"), wanted("c2")))
    for call in ("c1", "c2"):
        driver.fail(driver.attempt_of("CallTool", call), is_retryable=False)
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=7))
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="said", usage=ONE_CALL))
    turn = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert turn.messages == ()
    # The turn's calls and run state are no messages: a cut never takes them.
    assert [call.tool_call_id for call in turn.tool_calls] == ["c1", "c2"]
    assert turn.framework_run_state == "run state"


def test_a_deploy_without_compaction_goes_on_where_a_summary_was_asked_for() -> None:
    driver = compacting()
    driver.stop_worker()
    other = SessionDriver(AgentSessionOptions(), compacts=False)
    other.store, other.now = driver.store, driver.now
    other.take_work()
    turn = other.snapshot_of(other.attempt_of("RunModel"))
    assert [seen.sequence for seen in turn.messages] == list(range(1, 8))
    finish_model(other, answer())
    assert state_of(other).status is AgentStatus.WAITING_FOR_USER_MESSAGE
