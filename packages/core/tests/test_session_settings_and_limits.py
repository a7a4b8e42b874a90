"""Session settings, turn limits and arguments that a person changes, without an engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dex_agents import MAX_SESSION_SETTINGS_BYTES, TurnLimits, session_settings_size, validate_session_settings
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ModelStepContinued, ToolCallSucceeded
from dex_agents.session.settings import (
    INVALID_START_SESSION_SETTINGS_REASON,
    SESSION_SETTINGS_SIZE_TOLERANCE_BYTES,
)
from dex_agents.session.texts import ARGUMENTS_CHANGED_BY_USER
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.tool_values import AgentToolCall, ToolEffect
from dex_agents.session.values import AgentState
from dex_agents.testing import SessionDriver

from .session_scripts import ONE_CALL, answer, asks, finish_model, payloads, started, wanted

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"to": {"type": "string"}, "amount": {"type": "integer", "maximum": 100}},
        "required": ["to"],
        "additionalProperties": False,
    }
)


def settings_with(driver: SessionDriver) -> dict[str, Any]:
    settings: dict[str, Any] = driver.snapshot_of(driver.attempt_of("RunModel")).session_settings
    return settings


def state_of(driver: SessionDriver) -> AgentState:
    state = driver.snapshot().state
    assert state is not None
    return state


def of_size(size: int) -> dict[str, Any]:
    """Settings of exactly this many bytes."""
    return {"a": "x" * (size - len('{"a":""}'))}


def test_a_turn_keeps_the_settings_it_started_with_and_the_next_one_takes_the_new() -> None:
    driver = SessionDriver()
    driver.start("Hello", model="small")
    assert settings_with(driver) == {"model": "small"}
    assert driver.update_settings({"model": "large", "more": [1]})
    assert settings_with(driver) == {"model": "small"}
    assert driver.snapshot().session_settings == {"model": "large", "more": [1]}
    driver.lose_worker()
    assert settings_with(driver) == {"model": "small"}
    finish_model(driver, answer())
    assert driver.send("next")
    assert settings_with(driver) == {"model": "large", "more": [1]}


def test_settings_are_replaced_as_a_whole_and_an_empty_object_clears_them() -> None:
    driver = SessionDriver()
    driver.start("Hello", a=1, b=2)
    assert driver.update_settings({"b": 3})
    assert driver.snapshot().session_settings == {"b": 3}
    assert driver.update_settings({})
    assert driver.snapshot().session_settings == {}
    finish_model(driver, answer())
    assert driver.send("next")
    # The copy of the earlier turn is still stored and reads as no settings.
    assert settings_with(driver) == {}


def test_null_settings_and_over_large_ones_are_refused() -> None:
    driver = SessionDriver()
    driver.start()
    largest = MAX_SESSION_SETTINGS_BYTES + SESSION_SETTINGS_SIZE_TOLERANCE_BYTES
    assert not driver.update_settings(None)
    assert driver.update_settings(of_size(largest))
    assert not driver.update_settings(of_size(largest + 1))
    assert session_settings_size(driver.snapshot().session_settings) == largest


def test_invalid_start_settings_fail_the_session_at_once_with_the_named_reason() -> None:
    driver = SessionDriver()
    driver.start("Hello", **of_size(MAX_SESSION_SETTINGS_BYTES + SESSION_SETTINGS_SIZE_TOLERANCE_BYTES + 1))
    assert (driver.header.status, driver.header.steps) == ("failed", {})
    assert (driver.header.failure or "").startswith(f"{INVALID_START_SESSION_SETTINGS_REASON}: they have 17409 bytes")


def test_settings_are_checked_before_they_are_sent() -> None:
    validate_session_settings(of_size(MAX_SESSION_SETTINGS_BYTES))
    with pytest.raises(ValueError, match=f"{MAX_SESSION_SETTINGS_BYTES + 1} bytes as JSON"):
        validate_session_settings(of_size(MAX_SESSION_SETTINGS_BYTES + 1))
    with pytest.raises(TypeError, match="must be a JSON object"):
        validate_session_settings([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no limit tokens"):
        validate_session_settings({"turn_limits": {"tokens": 1}})


@pytest.mark.parametrize("problem", [{"turn_limits": 3}, {"turn_limits": {"model_calls": 0}}])
def test_turn_limits_that_cannot_be_are_refused_as_settings(problem: dict[str, Any]) -> None:
    driver = SessionDriver()
    driver.start()
    assert not driver.update_settings(problem)


# Turn limits


@pytest.mark.parametrize(
    ("limits", "name", "value"),
    [
        (TurnLimits(model_calls=1), "model_calls", 1),
        (TurnLimits(total_tokens=12), "total_tokens", 12),
        (TurnLimits(seconds=30), "seconds", 30),
    ],
)
def test_a_turn_that_reached_a_limit_makes_one_last_model_call(limits: TurnLimits, name: str, value: int) -> None:
    driver = started(turn_limits=limits)
    finish_model(driver, asks(wanted("c1")))
    driver.advance(31)
    assert payloads(driver, "turn_limit_reached") == []  # a tool that runs is never stopped
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert payloads(driver, "turn_limit_reached") == [{"limit": name, "value": value}]
    assert state_of(driver).turn_limit_reached == name
    finish_model(driver, answer())
    assert state_of(driver).last_turn_error is None
    assert driver.send("next")
    assert state_of(driver).turn_limit_reached is None


def test_calls_of_the_last_model_call_are_not_run_and_end_the_turn() -> None:
    driver = started(turn_limits=TurnLimits(model_calls=1))
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    finish_model(driver, asks(wanted("c2", requires_approval=True, effect=ToolEffect.UNCLASSIFIED)))
    error = state_of(driver).last_turn_error
    assert error is not None
    text = "The tool call was not run: this turn reached its limit of 1 model calls."
    assert (error.type, error.message) == ("TurnLimitReachedError", text)
    finished = payloads(driver, "tool_call_finished")
    assert [(call["tool_call_id"], call["status"]) for call in finished] == [("c1", "succeeded"), ("c2", "failed")]
    assert payloads(driver, "interrupt_raised") == []
    assert driver.open_step_types == ["AwaitUserMessage"]


def test_a_continuation_after_the_limit_ends_the_turn() -> None:
    driver = started(turn_limits=TurnLimits(model_calls=1))
    finish_model(driver, ModelStepContinued(framework_run_state="s", usage=ONE_CALL))
    finish_model(driver, ModelStepContinued(framework_run_state="s", usage=ONE_CALL))
    error = state_of(driver).last_turn_error
    assert error is not None
    assert error.type == "TurnLimitReachedError"


def test_settings_replace_single_limits() -> None:
    driver = SessionDriver(AgentSessionOptions(turn_limits=TurnLimits(model_calls=1)))
    driver.start("Hello", turn_limits={"model_calls": 3})
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert payloads(driver, "turn_limit_reached") == []


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_a_limit_that_is_no_positive_whole_number_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"turn_limits\.seconds"):
        TurnLimits(seconds=value)


# Changed arguments


def waiting_for_approval() -> SessionDriver:
    driver = started()
    arguments = '{"to":"a@x","amount":5}'
    call = wanted("c1", "send", arguments=arguments, requires_approval=True, arguments_schema=SCHEMA)
    finish_model(driver, asks(call))
    return driver


def test_f29_changed_arguments_run_and_both_forms_are_kept() -> None:
    driver = waiting_for_approval()
    assert driver.resolve("turn-1.c1", True, arguments={"to": "b@x", "amount": 5})
    record = driver.snapshot().tool_calls[0]
    assert (record.arguments, record.executed_arguments) == ('{"to":"a@x","amount":5}', '{"to": "b@x", "amount": 5}')
    assert record.arguments_schema is None
    snapshot = driver.snapshot_of(driver.attempt_of("CallTool"))
    assert snapshot.record.to_tool_call().arguments_to_run == '{"to": "b@x", "amount": 5}'
    assert payloads(driver, "interrupt_resolved")[0]["arguments_changed"] is True
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="sent"))
    call = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls[0]
    assert tool_result_text(call) == f'{ARGUMENTS_CHANGED_BY_USER}{{"to": "b@x", "amount": 5}}\nsent'


@pytest.mark.parametrize(
    "arguments", [{"amount": 5}, {"to": 3}, {"to": "b", "amount": 101}, {"to": "b", "more": 1}, {}]
)
def test_f29_arguments_that_do_not_fit_the_stored_schema_are_refused_and_the_approval_stays(
    arguments: dict[str, Any],
) -> None:
    driver = waiting_for_approval()
    assert not driver.resolve("turn-1.c1", True, arguments=arguments)
    assert [interrupt.interrupt_id for interrupt in driver.snapshot().pending_interrupts] == ["turn-1.c1"]
    assert driver.resolve("turn-1.c1", True)
    assert driver.snapshot().tool_calls[0].executed_arguments is None


def test_f29_a_rejection_with_arguments_is_refused() -> None:
    driver = waiting_for_approval()
    assert not driver.resolve("turn-1.c1", False, arguments={"to": "b"})
    assert driver.snapshot().tool_calls[0].status == "awaiting_approval"


def test_f29_the_same_arguments_are_no_change() -> None:
    driver = waiting_for_approval()
    assert driver.resolve("turn-1.c1", True, arguments={"amount": 5, "to": "a@x"})
    assert driver.snapshot().tool_calls[0].executed_arguments is None
    assert payloads(driver, "interrupt_resolved")[0]["arguments_changed"] is False


def test_f29_a_broken_schema_refuses_the_edit_and_not_the_approval() -> None:
    driver = started()
    finish_model(driver, asks(wanted("c1", requires_approval=True, arguments_schema='{"type":"nonsense"}')))
    assert not driver.resolve("turn-1.c1", True, arguments={"n": 2})
    assert driver.resolve("turn-1.c1", True)


def test_the_schema_is_kept_only_while_a_person_may_change_the_arguments() -> None:
    driver = started()
    finish_model(driver, asks(wanted("c1", arguments_schema=SCHEMA), wanted("c2", requires_approval=True)))
    assert [record.arguments_schema for record in driver.snapshot().tool_calls] == [None, None]


def test_an_unchanged_call_says_nothing_about_arguments() -> None:
    call = AgentToolCall(
        tool_call_id="c",
        tool_name="t",
        arguments="{}",
        effect=ToolEffect.READ,
        requires_approval=False,
        status="succeeded",  # type: ignore[arg-type]
        deferral_order=0,
        model_step_number=1,
        output="ok",
    )
    assert tool_result_text(call) == "ok"
