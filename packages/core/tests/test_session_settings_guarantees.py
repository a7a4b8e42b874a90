"""Rules of session settings and turn limits: sizes, copies, what is refused, and who sees them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from dex_agents import (
    MAX_SESSION_SETTINGS_BYTES,
    DeferredToolExecution,
    TurnLimits,
    session_settings_size,
    validate_session_settings,
)
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ContextSummarized,
    ModelStepNeedsCompaction,
    ToolCallSnapshot,
    ToolCallSucceeded,
)
from dex_agents.session.plan_values import TurnSessionSettings
from dex_agents.session.rpc_values import AgentSessionStartInput
from dex_agents.session.settings import (
    INVALID_START_SESSION_SETTINGS_REASON,
    MAX_SESSION_SETTINGS_DEPTH,
    SESSION_SETTINGS_SIZE_TOLERANCE_BYTES,
)
from dex_agents.session.values import AgentState, AgentStatus
from dex_agents.testing import SessionDriver
from dex_flow import UnstorableValueError
from dex_flow.codec import decode
from dex_flow.kernel import StartFlow

from .session_scripts import ONE_CALL, answer, asks, finish_model, payloads, started, wanted

LARGEST = MAX_SESSION_SETTINGS_BYTES + SESSION_SETTINGS_SIZE_TOLERANCE_BYTES


def of_size(size: int) -> dict[str, Any]:
    return {"a": "x" * (size - len('{"a":""}'))}


def nested(depth: int) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for _ in range(depth - 1):
        settings = {"a": settings}
    return settings


def state_of(driver: SessionDriver) -> AgentState:
    state = driver.snapshot().state
    assert state is not None
    return state


def settings_of_turn(driver: SessionDriver) -> dict[str, Any]:
    settings: dict[str, Any] = driver.snapshot_of(driver.attempt_of("RunModel")).session_settings
    return settings


# Sizes


def test_the_size_is_that_of_the_compact_json_text_in_utf_8() -> None:
    settings = {"model": "größe", "list": [1, 2.5, None, True]}
    compact = json.dumps(settings, separators=(",", ":"), ensure_ascii=False)
    assert session_settings_size(settings) == len(compact.encode())
    assert (MAX_SESSION_SETTINGS_BYTES, SESSION_SETTINGS_SIZE_TOLERANCE_BYTES) == (16_384, 1_024)


def test_the_sender_is_held_to_the_limit_and_the_session_to_the_tolerance_above_it() -> None:
    driver = started()
    between = of_size(MAX_SESSION_SETTINGS_BYTES + 1)
    with pytest.raises(ValueError, match="16385 bytes as JSON; the limit is 16384 bytes"):
        validate_session_settings(between)
    assert driver.update_settings(between)
    assert driver.update_settings(of_size(LARGEST))
    assert not driver.update_settings(of_size(LARGEST + 1))
    assert driver.snapshot().session_settings == of_size(LARGEST)


def test_start_settings_within_the_tolerance_start_the_session() -> None:
    driver = SessionDriver()
    driver.start("Hello", **of_size(LARGEST))
    assert settings_of_turn(driver) == of_size(LARGEST)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (of_size(LARGEST + 1), "they have 17409 bytes as JSON; the limit is 16384 bytes"),
        (nested(MAX_SESSION_SETTINGS_DEPTH + 1), "they are nested more than 50 levels deep"),
        (nested(600), "they are nested more than 50 levels deep"),
        ({"turn_limits": {"tokens": 1}}, "session_settings.turn_limits has no limit tokens"),
    ],
    ids=["large", "deep", "deeper than the stack", "limits"],
)
def test_bad_settings_fail_a_start_at_once_and_an_update_is_false(settings: dict[str, Any], problem: str) -> None:
    driver = SessionDriver()
    driver.start("Hello", **settings)
    assert (driver.header.status, driver.header.steps) == ("failed", {})
    assert driver.header.failure == f"{INVALID_START_SESSION_SETTINGS_REASON}: {problem}"
    assert driver.events() == []
    other = SessionDriver()
    other.start("Hello", keep=1)
    assert not other.update_settings(settings)
    assert other.snapshot().session_settings == {"keep": 1}
    with pytest.raises(ValueError, match="invalid session_settings"):
        validate_session_settings(settings)


def test_settings_as_deep_as_allowed_are_kept() -> None:
    driver = SessionDriver()
    driver.start("Hello", **nested(MAX_SESSION_SETTINGS_DEPTH))
    assert settings_of_turn(driver) == nested(MAX_SESSION_SETTINGS_DEPTH)


@pytest.mark.parametrize("settings", [None, 3, "text", [1]])
def test_start_settings_that_are_no_object_start_nothing(settings: Any) -> None:
    driver = SessionDriver()
    with pytest.raises(UnstorableValueError, match="the start input takes AgentSessionStartInput"):
        driver.apply(StartFlow(msgspec.json.encode({"initial_message": "Hello", "session_settings": settings})))
    assert driver.store.header_data is None
    assert AgentSessionStartInput().session_settings == {}


def test_texts_of_settings_are_repaired_where_they_enter() -> None:
    repaired = {"a\ufffd": ["b\ufffd"]}
    driver = SessionDriver()
    driver.start("Hello", **{"a\0": ["b\0"]})
    assert driver.snapshot().session_settings == settings_of_turn(driver) == repaired
    assert driver.update_settings({})
    assert driver.update_settings({"a\0": ["b\0"]})
    assert driver.snapshot().session_settings == repaired


# Updates and copies


def test_an_update_before_the_session_initialised_is_false() -> None:
    driver = started(None)
    del driver.store.attributes[("AgentState", "")]
    assert not driver.update_settings({"a": 1})


def test_nothing_is_merged_and_a_repeated_clear_is_true() -> None:
    driver = SessionDriver()
    driver.start(None, a={"b": 1}, c=2)
    assert driver.update_settings({"a": {"d": 3}})
    assert driver.snapshot().session_settings == {"a": {"d": 3}}
    assert driver.update_settings({})
    assert driver.update_settings({})
    assert ("SessionSettings", "") not in driver.store.attributes


def test_a_turn_reads_its_own_copy_in_every_model_call_retry_and_summary() -> None:
    driver = SessionDriver()
    driver.start("Hello", model="small")
    assert driver.update_settings({"model": "large"})
    driver.fail(driver.attempt_of("RunModel"))
    driver.advance(60)
    assert settings_of_turn(driver) == {"model": "small"}
    finish_model(driver, ModelStepNeedsCompaction(through_sequence=1))
    assert driver.snapshot_of(driver.attempt_of("CompactContext")).session_settings == {"model": "small"}
    driver.lose_worker()
    assert driver.snapshot_of(driver.attempt_of("CompactContext")).session_settings == {"model": "small"}
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="s", usage=ONE_CALL))
    assert settings_of_turn(driver) == {"model": "small"}


def test_the_copy_is_tagged_with_its_turn_and_reads_as_nothing_in_another() -> None:
    driver = SessionDriver()
    driver.start("Hello", model="small")
    copy = decode(TurnSessionSettings, driver.store.attributes[("TurnSessionSettings", "")])
    assert copy == TurnSessionSettings(turn_id="turn-1", settings={"model": "small"})
    assert driver.update_settings({})
    finish_model(driver, answer())
    assert driver.send("next")
    stored = decode(TurnSessionSettings, driver.store.attributes[("TurnSessionSettings", "")])
    assert stored.turn_id == "turn-1"
    assert settings_of_turn(driver) == {}


@pytest.mark.parametrize("start", ["queued", "steered", "approved"])
def test_every_turn_that_starts_takes_the_newest_settings(start: str) -> None:
    driver = started("Hello", built_in_tools=("write_todos",), plan_mode_enabled=True)
    todo = '{"todos":[{"content":"one","status":"pending"}]}'
    finish_model(driver, asks(wanted("t", "write_todos", arguments=todo)))
    assert driver.update_settings({"n": 1})
    assert settings_of_turn(driver) == {}
    if start == "steered":
        assert driver.steer("now")
    finish_model(driver, answer())
    if start == "queued":
        assert driver.send("next")
    elif start == "approved":
        assert driver.execute_plan(1)
    assert state_of(driver).turn_count == 2
    assert settings_of_turn(driver) == {"n": 1}


def test_snapshots_show_the_settings_of_the_next_turn() -> None:
    driver = SessionDriver()
    driver.start("Hello", model="small")
    assert driver.update_settings({"model": "large"})
    assert driver.snapshot().session_settings == {"model": "large"}
    assert settings_of_turn(driver) == {"model": "small"}


def test_tool_calls_do_not_receive_the_settings() -> None:
    fields = {field.name for kind in (ToolCallSnapshot, DeferredToolExecution) for field in dataclasses.fields(kind)}
    assert not [name for name in fields if "setting" in name]
    driver = SessionDriver()
    driver.start("Hello", secret="nothing for tools")
    finish_model(driver, asks(wanted("c")))
    assert "nothing for tools" not in repr(driver.snapshot_of(driver.attempt_of("CallTool")))


def test_a_session_without_settings_stores_no_copy() -> None:
    driver = started("Hello")
    assert settings_of_turn(driver) == {}
    assert {"SessionSettings", "TurnSessionSettings"}.isdisjoint(name for name, _ in driver.store.attributes)


# Turn limits


def test_a_limit_never_stops_a_tool_and_waits_for_every_call_of_the_response() -> None:
    driver = started(turn_limits=TurnLimits(seconds=10))
    finish_model(driver, asks(wanted("c1"), wanted("c2", requires_approval=True)))
    driver.advance(3_600)
    assert payloads(driver, "turn_limit_reached") == []
    driver.succeed(driver.attempt_of("CallTool", "c1"), ToolCallSucceeded(output="ok"))
    assert driver.resolve("turn-1.c2", True)
    driver.succeed(driver.attempt_of("CallTool", "c2"), ToolCallSucceeded(output="ok"))
    assert payloads(driver, "turn_limit_reached") == [{"limit": "seconds", "value": 10}]
    turn = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [call.status for call in turn.tool_calls] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("tool_name", ["tool", "ask_user", "write_todos"])
def test_no_call_of_the_last_model_call_runs_whatever_it_is(tool_name: str) -> None:
    driver = started(turn_limits=TurnLimits(model_calls=1), built_in_tools=("ask_user", "write_todos"))
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    arguments = '{"todos":[]}' if tool_name == "write_todos" else '{"question":"Which?"}'
    finish_model(driver, asks(wanted("c2", tool_name, arguments=arguments)))
    assert payloads(driver, "tool_call_finished")[-1]["status"] == "failed"
    assert driver.snapshot().plan is None
    assert payloads(driver, "interrupt_raised") == []
    assert payloads(driver, "turn_failed")[0]["error"] == (
        "TurnLimitReachedError: The tool call was not run: this turn reached its limit of 1 model calls."
    )


def test_a_limit_that_a_deploy_removed_in_its_last_model_call_still_ends_the_turn_and_says_no_none() -> None:
    driver = started(turn_limits=TurnLimits(model_calls=1))
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert payloads(driver, "turn_limit_reached") == [{"limit": "model_calls", "value": 1}]
    other = SessionDriver(AgentSessionOptions())
    other.store, other.now, other.running = driver.store, driver.now, driver.running
    finish_model(other, asks(wanted("c2")))
    error = state_of(other).last_turn_error
    assert error is not None
    assert error.message == "The tool call was not run: this turn reached its limit of model calls."


def test_a_limit_is_said_once_and_counts_anew_in_the_next_turn() -> None:
    driver = started(turn_limits=TurnLimits(model_calls=1, total_tokens=1))
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    driver.fail(driver.attempt_of("RunModel"))
    driver.advance(60)
    assert payloads(driver, "turn_limit_reached") == [{"limit": "model_calls", "value": 1}]
    finish_model(driver, answer())
    assert driver.send("next")
    state = state_of(driver)
    assert (state.turn_model_calls, state.turn_total_tokens, state.turn_limit_reached) == (0, 0, None)


def test_a_setting_of_null_lifts_a_limit_of_the_option_and_leaves_the_others() -> None:
    driver = SessionDriver(AgentSessionOptions(turn_limits=TurnLimits(model_calls=1, total_tokens=12)))
    driver.start("Hello", turn_limits={"model_calls": None})
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert payloads(driver, "turn_limit_reached") == [{"limit": "total_tokens", "value": 12}]


def test_limits_of_a_setting_count_from_the_next_turn_on() -> None:
    driver = started("Hello")
    assert driver.update_settings({"turn_limits": {"model_calls": 1}})
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert payloads(driver, "turn_limit_reached") == []
    finish_model(driver, answer())
    assert driver.send("next")
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    assert payloads(driver, "turn_limit_reached") == [{"limit": "model_calls", "value": 1}]


def test_a_time_that_no_calendar_holds_is_no_limit() -> None:
    longest = 365_000 * 24 * 3_600
    driver = started(turn_limits=TurnLimits(seconds=longest))
    assert driver.attempt_of("RunModel")
    with pytest.raises(ValueError, match=r"turn_limits\.seconds must be at most"):
        TurnLimits(seconds=longest + 1)
    assert not driver.update_settings({"turn_limits": {"seconds": 10**15}})


def test_an_answer_in_the_last_model_call_completes_the_turn() -> None:
    driver = started(turn_limits=TurnLimits(model_calls=1))
    finish_model(driver, asks(wanted("c1")))
    driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    finish_model(driver, answer())
    assert (state_of(driver).status, state_of(driver).last_turn_error) == (AgentStatus.WAITING_FOR_USER_MESSAGE, None)
    assert "turn_completed" in driver.event_types()
