"""Whole turns on the kernel: what is stored, what the runner sees, what events say."""

from collections.abc import Sequence
from typing import Any

from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    ToolCallSucceeded,
)
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect
from dex_agents.session.values import (
    AgentMessageToolCall,
    AgentStatus,
    AgentUsage,
    FrameworkMessage,
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


def test_a_session_without_a_message_waits_for_one() -> None:
    driver = SessionDriver()
    driver.start()
    assert_idle(driver)
    assert driver.event_types() == []
    assert driver.snapshot().messages == ()


def test_a_blank_initial_message_starts_no_turn() -> None:
    driver = SessionDriver()
    driver.start(" \n")
    assert_idle(driver)


def test_a_turn_with_an_answer() -> None:
    driver = started()
    claim = driver.attempt_of("RunModel")
    snapshot = driver.snapshot_of(claim)
    assert [message.text for message in snapshot.messages] == ["Hello"]
    assert (snapshot.turn_id, snapshot.tool_calls, snapshot.framework_run_state) == ("turn-1", (), None)
    driver.succeed(claim, answer("Hi"))
    assert_idle(driver)
    stored = driver.snapshot()
    assert [(m.sequence, m.turn_id, m.role, m.text) for m in stored.messages] == [
        (1, "turn-1", "user", "Hello"),
        (2, "turn-1", "assistant", "Hi"),
    ]
    assert stored.usage == ONE_CALL
    assert [
        (event.type, decode_event_payload(event)) for event in driver.events() if event.type.startswith("turn")
    ] == [
        ("turn_started", {"sequence": 1}),
        ("turn_completed", {"message_count": 1}),
    ]


def test_a_turn_may_end_without_a_model_call_or_message() -> None:
    driver = started()
    finish_model(driver, ModelStepCompleted(new_messages=(), usage=AgentUsage()))
    assert_idle(driver)
    assert driver.snapshot().usage == AgentUsage()
    assert "usage_recorded" not in driver.event_types()


def test_a_turn_with_one_tool_call() -> None:
    driver = started(wanted("c1", tool_name="lookup"))
    assert driver.open_step_types == ["CallTool", "ResumeTurn"]
    tool = driver.attempt_of("CallTool", "c1")
    snapshot = driver.snapshot_of(tool)
    assert snapshot.idempotency_key == "session/turn-1/c1"
    assert snapshot.framework_run_state == "run state"
    assert snapshot.messages == ()
    running = driver.snapshot()
    assert running.state is not None
    assert running.state.status is AgentStatus.RUNNING_TOOLS
    assert (running.tool_calls[0].is_running, running.tool_calls[0].attempt) == (True, 1)
    driver.succeed(tool, ToolCallSucceeded(output="found", framework_result="opaque"))
    model = driver.attempt_of("RunModel")
    seen = driver.snapshot_of(model)
    (call,) = seen.tool_calls
    assert (call.tool_call_id, call.status.value, call.output, call.framework_result) == (
        "c1",
        "succeeded",
        "found",
        "opaque",
    )
    assert seen.framework_run_state == "run state"
    assert seen.state.turn_model_step_count == call.model_step_number == 1
    driver.succeed(model, answer())
    assert_idle(driver)
    assert driver.event_types() == [
        "turn_started",
        "usage_recorded",
        "tool_call_deferred",
        "tool_call_started",
        "tool_call_finished",
        "usage_recorded",
        "turn_completed",
    ]
    assert driver.snapshot().usage == ONE_CALL.add(ONE_CALL)


def test_results_reach_the_model_in_call_order_whatever_order_they_came_in() -> None:
    driver = started(wanted("c1"), wanted("c2"), wanted("c3"))
    for call in ("c3", "c1", "c2"):
        driver.succeed(driver.attempt_of("CallTool", call), ToolCallSucceeded(output=call))
    seen = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [call.output for call in seen.tool_calls] == ["c1", "c2", "c3"]


def test_a_later_round_continues_the_order_and_names_its_own_calls() -> None:
    driver = started(wanted("c1"), wanted("c2"))
    for call in ("c1", "c2"):
        driver.succeed(driver.attempt_of("CallTool", call), ToolCallSucceeded(output=call))
    finish_model(driver, asks(wanted("c3")))
    driver.succeed(driver.attempt_of("CallTool", "c3"), ToolCallSucceeded(output="c3"))
    seen = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [(call.deferral_order, call.model_step_number) for call in seen.tool_calls] == [(0, 1), (1, 1), (2, 2)]
    assert seen.state.turn_model_step_count == 2


def test_repeated_provider_ids_get_records_and_results_of_their_own() -> None:
    driver = started(wanted("same"), wanted("same"), wanted(""))
    for call in ("same", "same~2", "call-3"):
        driver.succeed(driver.attempt_of("CallTool", call), ToolCallSucceeded(output=call))
    finish_model(driver, asks(wanted("same")))
    claim = driver.attempt_of("CallTool", "same~4")
    assert driver.snapshot_of(claim).idempotency_key == "session/turn-1/same~4"
    driver.succeed(claim, ToolCallSucceeded(output="again"))
    calls = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert [call.provider_tool_call_id for call in calls] == ["same", "same", "", "same"]
    assert [call.output for call in calls] == ["same", "same~2", "call-3", "again"]


def test_stored_messages_carry_the_sessions_ids_of_their_calls() -> None:
    projection = tuple(
        AgentMessageToolCall(tool_call_id="same", tool_name="tool", arguments="as sent") for _ in range(2)
    )
    message = FrameworkMessage(role="assistant", framework_item="[]", tool_calls=projection)
    driver = SessionDriver()
    driver.start("Hello")
    finish_model(driver, asks(wanted("same"), wanted("same"), messages=[message]))
    stored = driver.snapshot().messages[-1]
    assert [(call.tool_call_id, call.arguments) for call in stored.tool_calls] == [
        ("same", '{"n":1}'),
        ("same~2", '{"n":1}'),
    ]


def test_invalid_arguments_fail_at_once_without_approval_or_run() -> None:
    bad = wanted("c1", ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True, arguments_error="they are null")
    driver = started(bad)
    assert driver.open_step_types == ["RunModel"]
    (call,) = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert (call.status.value, call.error, call.requires_approval) == ("failed", "they are null", False)
    assert "interrupt_raised" not in driver.event_types()
    assert driver.event_types().count("tool_call_finished") == 1


def test_an_invalid_call_beside_a_valid_one_counts_as_a_result() -> None:
    driver = started(wanted("c1", arguments_error="bad"), wanted("c2"))
    assert driver.open_step_types == ["CallTool", "ResumeTurn"]
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert driver.open_step_types == ["RunModel"]


def test_messages_of_a_turn_are_stored_as_it_goes_and_counted_at_its_end() -> None:
    output = FrameworkMessage(role="assistant", framework_item='"asks"', text="asks")
    driver = SessionDriver()
    driver.start("Hello")
    finish_model(driver, asks(wanted("c1"), messages=[output]))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert [m.text for m in driver.snapshot_of(driver.attempt_of("RunModel")).messages] == ["Hello", "asks"]
    finish_model(driver, answer())
    assert decode_event_payload(driver.events()[-1]) == {"message_count": 2}


def test_a_step_may_ask_for_another_model_step() -> None:
    driver = started()
    nudge = FrameworkMessage(role="user", framework_item='"nudge"', text="nudge")
    finish_model(driver, ModelStepContinued(framework_run_state="second", usage=ONE_CALL, new_messages=(nudge,)))
    seen = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert seen.framework_run_state == "second"
    assert [message.text for message in seen.messages] == ["Hello", "nudge"]
    finish_model(driver, answer())
    assert_idle(driver)
    assert driver.snapshot().usage == ONE_CALL.add(ONE_CALL)
    assert decode_event_payload(driver.events()[-1]) == {"message_count": 2}


def test_calls_of_an_earlier_step_are_not_mistaken_for_the_previous_ones_after_a_continuation() -> None:
    driver = started(wanted("c1"))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    finish_model(driver, ModelStepContinued(framework_run_state="second", usage=ONE_CALL))
    seen = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [call.model_step_number for call in seen.tool_calls] == [1]
    assert seen.state.turn_model_step_count == 2


def test_queued_messages_start_one_turn_each_in_order() -> None:
    driver = started()
    assert driver.send("second")
    assert driver.send("third")
    snapshot = driver.snapshot()
    assert snapshot.queued_message_count == 2
    assert [message.text for message in snapshot.queued_messages] == ["second", "third"]
    for _ in range(3):
        finish_model(driver, answer())
    assert_idle(driver)
    users = [(m.turn_id, m.text) for m in driver.snapshot().messages if m.role == "user"]
    assert users == [("turn-1", "Hello"), ("turn-2", "second"), ("turn-3", "third")]


def test_tool_calls_receive_the_messages_when_the_session_says_so() -> None:
    driver = started(wanted("c1"), tool_calls_read_messages=True)
    seen = driver.snapshot_of(driver.attempt_of("CallTool"))
    assert [message.text for message in seen.messages] == ["Hello"]


def test_settings_reach_the_model_step_and_the_snapshot() -> None:
    driver = SessionDriver()
    driver.start("Hello", model="small")
    assert driver.snapshot_of(driver.attempt_of("RunModel")).session_settings == {"model": "small"}
    assert driver.snapshot().session_settings == {"model": "small"}


def test_settings_too_large_fail_the_session_with_a_reason() -> None:
    driver = SessionDriver()
    driver.start("Hello", blob="x" * 20_000)
    assert driver.header.status == "failed"
    assert "session_settings" in (driver.header.failure or "")
    assert driver.snapshot().state is None


def test_an_initial_message_too_large_fails_the_session_with_a_reason() -> None:
    driver = SessionDriver()
    driver.start("x" * (1024 * 1024 + 1))
    assert (driver.header.failure or "").startswith("initial_message has 1048577 bytes")


def test_events_carry_turn_attempt_and_step() -> None:
    driver = started()
    driver.fail(driver.attempt_of("RunModel"))
    driver.advance(1)
    claim = driver.attempt_of("RunModel")
    driver.succeed(claim, answer())
    completed = driver.events()[-1]
    assert (completed.turn_id, completed.step_execution_id, completed.attempt) == (
        "turn-1",
        claim.step_execution_id,
        2,
    )
    assert completed.created_at == driver.snapshot().messages[-1].created_at
