"""What becomes of failed model steps, failed turns, and failed or lost tool calls."""

from collections.abc import Sequence
from typing import Any

import pytest

from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepRefused,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    ToolCallFailed,
    ToolCallSucceeded,
    ToolCallTaskStarted,
    UnfinishedTurnOutcome,
)
from dex_agents.session.texts import (
    MISSING_TOOL_TASK_POLLER,
    TURN_FAILURE_NOTE_FOOTER,
    TURN_FAILURE_NOTE_HEADER,
)
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect
from dex_agents.session.values import (
    AgentStatus,
    AgentUsage,
    FrameworkMessage,
    TurnError,
)
from dex_agents.testing import SessionDriver

ONE_CALL = AgentUsage(model_calls=1, input_tokens=10, output_tokens=2, total_tokens=12)


def answer(text: str = "done") -> ModelStepCompleted:
    message = FrameworkMessage(role="assistant", framework_item=f'"{text}"', text=text)
    return ModelStepCompleted(new_messages=(message,), usage=ONE_CALL)


def wanted(tool_call_id: str, effect: ToolEffect = ToolEffect.READ, **fields: Any) -> RequestedToolCall:
    policy = ResolvedToolPolicy(effect=effect, requires_approval=fields.pop("requires_approval", False))
    return RequestedToolCall(
        tool_call_id=tool_call_id,
        tool_name=fields.pop("tool_name", "tool"),
        arguments='{"n":1}',
        policy=policy,
        **fields,
    )


def asks(*calls: RequestedToolCall, messages: Sequence[FrameworkMessage] = ()) -> ModelStepToolCallsRequested:
    return ModelStepToolCallsRequested(
        framework_run_state="run state", tool_calls=calls, usage=ONE_CALL, new_messages=tuple(messages)
    )


def finish_model(driver: SessionDriver, outcome: Any) -> None:
    driver.succeed(driver.attempt_of("RunModel"), outcome)


def started(*calls: RequestedToolCall, **options: Any) -> SessionDriver:
    driver = SessionDriver(AgentSessionOptions(**options))
    driver.start("Hello")
    if calls:
        finish_model(driver, asks(*calls))
    return driver


def assert_idle(driver: SessionDriver) -> None:
    snapshot = driver.snapshot()
    assert snapshot.state is not None
    assert snapshot.state.status is AgentStatus.WAITING_FOR_USER_MESSAGE
    assert snapshot.state.active_turn_id is None
    assert (snapshot.tool_calls, snapshot.pending_interrupts, snapshot.queued_messages) == ((), (), ())
    assert driver.open_step_types == ["AwaitUserMessage"]
    assert not driver.running
    assert driver.store.channels == {}
    assert ("FrameworkRunState", "") not in driver.store.attributes


def test_a_failed_model_attempt_is_repeated_from_the_same_state_and_said_so() -> None:
    driver = started()
    before = driver.snapshot_of(driver.attempt_of("RunModel"))
    driver.fail(driver.attempt_of("RunModel"), "ConnectionError", "reset\ufffd")
    event = driver.events()[-1]
    assert (event.type, event.attempt) == ("model_call_retrying", 1)
    payload = decode_event_payload(event)
    assert (payload["attempt"], payload["error"]) == (1, "ConnectionError: reset\ufffd")
    assert payload["next_attempt_at"] == "2026-01-01T00:00:01Z"
    driver.advance(1)
    claim = driver.attempt_of("RunModel")
    assert claim.attempt == 2
    assert driver.snapshot_of(claim) == before
    driver.succeed(claim, answer())
    assert_idle(driver)
    assert driver.snapshot().usage == ONE_CALL


def exhaust_model(driver: SessionDriver) -> None:
    for seconds in (1, 2, 0):
        driver.fail(driver.attempt_of("RunModel"), "ProviderError", "server error")
        driver.advance(seconds)


def test_exhausted_attempts_fail_the_turn_and_the_next_turn_works() -> None:
    driver = started()
    exhaust_model(driver)
    assert_idle(driver)
    snapshot = driver.snapshot()
    assert snapshot.state is not None
    assert snapshot.state.last_turn_error == TurnError(turn_id="turn-1", type="ProviderError", message="server error")
    assert [message.text for message in snapshot.messages] == ["Hello"]
    assert decode_event_payload(driver.events()[-1]) == {"error": "ProviderError: server error"}
    driver.send("Again")
    finish_model(driver, answer())
    after = driver.snapshot().state
    assert after is not None
    assert after.last_turn_error is None
    assert after.turn_count == 2


def test_a_failed_turn_tells_the_model_what_its_tools_did() -> None:
    driver = started(wanted("c1", tool_name="lookup"), wanted("c2", tool_name="refund"))
    driver.succeed(driver.attempt_of("CallTool", "c1"), ToolCallSucceeded(output="ok"))
    driver.succeed(driver.attempt_of("CallTool", "c2"), ToolCallFailed(message="no"))
    exhaust_model(driver)
    assert_idle(driver)
    note = driver.snapshot().messages[-1]
    assert (note.role, note.turn_id) == ("user", "turn-1")
    assert note.text.split("\n") == [
        TURN_FAILURE_NOTE_HEADER,
        '- lookup {"n":1}: succeeded',
        '- refund {"n":1}: failed',
        TURN_FAILURE_NOTE_FOOTER,
    ]


def test_a_refused_turn_ends_at_once_and_counts_its_usage() -> None:
    driver = started()
    finish_model(driver, ModelStepRefused(error_type="TurnRefusedError", message="too long", usage=ONE_CALL))
    assert_idle(driver)
    snapshot = driver.snapshot()
    assert snapshot.state is not None
    assert snapshot.state.last_turn_error == TurnError(turn_id="turn-1", type="TurnRefusedError", message="too long")
    assert snapshot.usage == ONE_CALL
    assert "model_call_retrying" not in driver.event_types()


def failed_with_runner_messages(refused: bool) -> SessionDriver:
    driver = SessionDriver(builds_unfinished_turns=True)
    driver.start("Hello")
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    if refused:
        finish_model(driver, ModelStepRefused(error_type="TurnRefusedError", message="stop"))
    else:
        exhaust_model(driver)
    return driver


@pytest.mark.parametrize("refused", [True, False])
def test_a_runner_completes_the_transcript_of_a_failed_turn(refused: bool) -> None:
    driver = failed_with_runner_messages(refused)
    claim = driver.attempt_of("RecordTurnFailure")
    seen = driver.snapshot_of(claim)
    assert [call.status.value for call in seen.tool_calls] == ["succeeded"]
    result = FrameworkMessage(role="tool", framework_item='"result"', text="ok", tool_call_id="c1")
    driver.succeed(claim, UnfinishedTurnOutcome(messages=(result,)))
    assert_idle(driver)
    assert [message.role for message in driver.snapshot().messages] == ["user", "tool", "user"]
    state = driver.snapshot().state
    assert state is not None
    assert state.last_turn_error is not None
    assert state.last_turn_error.message == ("stop" if refused else "server error")


@pytest.mark.parametrize("refused", [True, False])
def test_a_builder_that_raises_leaves_the_note_alone(refused: bool) -> None:
    driver = failed_with_runner_messages(refused)
    driver.succeed(driver.attempt_of("RecordTurnFailure"), UnfinishedTurnOutcome(error="KeyError: 'x'"))
    assert_idle(driver)
    assert [message.role for message in driver.snapshot().messages] == ["user", "user"]


@pytest.mark.parametrize("refused", [True, False])
def test_a_builder_that_kills_every_worker_leaves_the_note_and_the_turns_own_error(refused: bool) -> None:
    driver = failed_with_runner_messages(refused)
    for _ in range(3):
        driver.attempt_of("RecordTurnFailure")
        driver.lose_worker()
    assert_idle(driver)
    assert driver.snapshot().messages[-1].text.startswith(TURN_FAILURE_NOTE_HEADER)
    state = driver.snapshot().state
    assert state is not None
    assert state.last_turn_error is not None
    assert state.last_turn_error.message == ("stop" if refused else "server error")


def test_continuations_are_limited() -> None:
    driver = started(max_model_step_continuations=2)
    for _ in range(3):
        finish_model(driver, ModelStepContinued(framework_run_state="again", usage=ONE_CALL))
    assert_idle(driver)
    state = driver.snapshot().state
    assert state is not None
    assert state.last_turn_error is not None
    assert state.last_turn_error.type == "ModelStepContinuationLimitError"
    assert "max_model_step_continuations" in state.last_turn_error.message
    limit = next(event for event in driver.events() if event.type == "turn_limit_reached")
    assert decode_event_payload(limit) == {"limit": "max_model_step_continuations", "value": 2}


@pytest.mark.parametrize(
    ("effect", "attempts", "status"),
    [
        (ToolEffect.READ, 3, Status.FAILED),
        (ToolEffect.IDEMPOTENT_WRITE, 3, Status.OUTCOME_UNKNOWN),
        (ToolEffect.NON_IDEMPOTENT_WRITE, 1, Status.OUTCOME_UNKNOWN),
        (ToolEffect.UNCLASSIFIED, 1, Status.OUTCOME_UNKNOWN),
    ],
)
@pytest.mark.parametrize("lost", [True, False])
def test_a_failing_or_lost_call_is_recorded_by_its_effect(
    effect: ToolEffect, attempts: int, status: Status, lost: bool
) -> None:
    driver = SessionDriver(polls_tasks=False)
    driver.start("Hello")
    finish_model(driver, asks(wanted("c1", effect), wanted("c2")))
    step = "CallTool" if attempts == 3 else "CallSingleAttemptTool"
    keys = set()
    for attempt in range(1, attempts + 1):
        claim = driver.attempt_of(step, "c1")
        assert claim.attempt == attempt
        keys.add(driver.snapshot_of(claim).idempotency_key)
        if lost:
            driver.lose_worker()
        else:
            driver.fail(claim, "TimeoutError", "no answer")
            driver.advance(5)
    assert len(keys) == 1
    record = driver.snapshot().tool_calls[0]
    assert record.status is status
    assert record.attempt == attempts
    assert not record.is_running
    assert ("WorkerLost" if lost else "TimeoutError: no answer") in (record.error or "")
    assert driver.event_types().count("tool_call_started") >= attempts + 1


def test_a_claimed_single_attempt_call_that_never_started_runs_after_the_worker_is_lost() -> None:
    driver = SessionDriver()
    driver.starts_claims = False
    driver.start("Hello")
    finish_model(driver, asks(wanted("c1", ToolEffect.UNCLASSIFIED)))
    assert not driver.attempt_of("CallSingleAttemptTool").is_started
    driver.lose_worker()
    claim = driver.attempt_of("CallSingleAttemptTool")
    assert claim.attempt == 1
    driver.begin(claim)
    driver.succeed(driver.attempt_of("CallSingleAttemptTool"), ToolCallSucceeded(output="once"))
    assert driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls[0].output == "once"


@pytest.mark.parametrize(
    ("effect", "status"),
    [(ToolEffect.READ, Status.FAILED), (ToolEffect.UNCLASSIFIED, Status.OUTCOME_UNKNOWN)],
)
def test_remote_work_that_nothing_polls_is_recorded_by_effect(effect: ToolEffect, status: Status) -> None:
    driver = SessionDriver(polls_tasks=False)
    driver.start("Hello")
    finish_model(driver, asks(wanted("c1", effect), wanted("c2")))
    step = "CallTool" if effect is ToolEffect.READ else "CallSingleAttemptTool"
    driver.succeed(driver.attempt_of(step, "c1"), ToolCallTaskStarted(task_id="t", poll_interval_seconds=5))
    record = driver.snapshot().tool_calls[0]
    assert (record.status, record.error, record.task_id) == (status, MISSING_TOOL_TASK_POLLER, "t")


def test_a_call_between_two_attempts_is_not_running() -> None:
    driver = started(wanted("c1"))
    driver.fail(driver.attempt_of("CallTool"))
    waiting = driver.snapshot().tool_calls[0]
    assert (waiting.status, waiting.is_running, waiting.attempt) == (Status.APPROVED, False, 1)
    driver.advance(1)
    running = driver.snapshot().tool_calls[0]
    assert (running.is_running, running.attempt) == (True, 2)


def test_a_failed_call_keeps_the_frameworks_own_form_for_its_runner() -> None:
    driver = started(wanted("c1", tool_name="lookup"))
    failure = ToolCallFailed(message="no", framework_result="opaque")
    driver.succeed(driver.attempt_of("CallTool", "c1"), failure)
    (call,) = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert (call.status, call.error, call.framework_result) == ("failed", "no", "opaque")
