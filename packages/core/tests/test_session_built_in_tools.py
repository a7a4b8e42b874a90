"""The tools that the session runs itself: `ask_user` and `durable_wait`."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dex_agents.session.built_in_tools import (
    BUILT_IN_TOOL_DEFINITIONS,
    InvalidBuiltInArgumentsError,
    read_ask_user_arguments,
    read_durable_wait_arguments,
)
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.sanitizer import MAX_ERROR_CHARACTERS
from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED
from dex_agents.session.tool_values import ToolPolicy

from .played_session import READ, PlayedSession, asking, stored_state, waiting, wanted

YEAR = timedelta(days=365)


# Both


@pytest.mark.parametrize("call", [asking("c1"), waiting("c1")], ids=["ask_user", "durable_wait"])
def test_a_built_in_call_is_a_read_without_approval_whatever_the_runner_says(call: Any) -> None:
    assert call.policy.requires_approval
    session = PlayedSession(call)
    record = session.record()
    assert (record.effect, record.requires_approval) == (READ, False)
    assert session.payloads("tool_call_deferred") == [
        {"tool_call_id": "c1", "tool_name": call.tool_name, "effect": "read", "requires_approval": False}
    ]
    assert session.running == {}
    assert "tool_call_started" not in session.event_types()


@pytest.mark.parametrize("call", [asking("c1"), waiting("c1")], ids=["ask_user", "durable_wait"])
def test_a_name_that_is_not_enabled_is_an_ordinary_tool(call: Any) -> None:
    session = PlayedSession(call, built_in_tools=())
    assert session.record().status == "awaiting_approval"
    assert session.resolve("turn-1.c1", True)
    session.return_from_tool("c1", "handled by the runner")
    assert session.model_results() == ["handled by the runner"]


@pytest.mark.parametrize("name", list(BUILT_IN_TOOL_DEFINITIONS))
def test_an_enabled_name_is_reserved_and_a_policy_for_it_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"tool_policies.*{name}"):
        AgentSessionOptions(built_in_tools=[name], tool_policies={name: ToolPolicy(effect=READ)})
    AgentSessionOptions(tool_policies={name: ToolPolicy(effect=READ)})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (asking("c1", question=""), "invalid ask_user arguments: question must be text that is not blank"),
        (waiting("c1", 0), "invalid durable_wait arguments: duration_seconds must be from 1 to 31536000"),
    ],
    ids=["ask_user", "durable_wait"],
)
def test_invalid_arguments_fail_the_call_at_once_and_the_model_sees_why(call: Any, reason: str) -> None:
    session = PlayedSession(call)
    assert session.finished() == {"c1": "failed"}
    assert session.model_results() == [reason]
    assert session.interrupt_ids() == []
    assert {"interrupt_raised", "timer_started", "tool_call_started"}.isdisjoint(session.event_types())


def test_arguments_that_are_no_json_object_fail_a_built_in_call_too() -> None:
    broken = wanted("c1", tool_name="ask_user", arguments="{}", arguments_error="not a JSON object")
    session = PlayedSession(broken)
    assert session.model_results() == ["not a JSON object"]


def test_what_is_wrong_is_told_in_bounded_storable_text() -> None:
    session = PlayedSession(asking("c1", **{"x" * 1_000_000: 1}), asking("c2", **{"\0\ud800": 1}))
    for call_id in ("c1", "c2"):
        error = session.record(call_id).error
        assert error is not None
        assert error.startswith("invalid ask_user arguments: there is no argument ")
        assert len(error) < MAX_ERROR_CHARACTERS + 100
        assert "\0" not in error
        error.encode()


@pytest.mark.parametrize("depth", [500, 900, 990, 2_000, 100_000])
def test_arguments_nested_too_deeply_fail_the_call(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    call = wanted("c1", tool_name="ask_user", arguments=f'{{"question":{nested}}}')
    session = PlayedSession(call)
    assert session.finished() == {"c1": "failed"}
    assert session.model_results()[0].startswith("invalid ask_user arguments: ")


def test_several_built_in_calls_of_one_response_wait_side_by_side() -> None:
    session = PlayedSession(asking("c1"), waiting("c2", 60), asking("c3", question="When?"), wanted("c4"))
    assert session.interrupt_ids() == ["turn-1.c1", "turn-1.c3"]
    session.return_from_tool("c4", "free")
    assert session.answer("turn-1.c3", "now")
    session.advance(60)
    assert session.answer("turn-1.c1", "Oslo")
    assert [json.loads(text)["status"] for text in session.model_results()[:3]] == ["answered", "completed", "answered"]
    assert session.model_results()[3] == "free"


# ask_user


def test_an_answered_question_is_the_calls_result() -> None:
    session = PlayedSession(asking("c1", question="Which city?", choices=["Oslo", "Bergen"]))
    (interrupt,) = session.snapshot().pending_interrupts
    assert (interrupt.interrupt_id, interrupt.kind, interrupt.tool_name) == ("turn-1.c1", "question", "ask_user")
    assert (interrupt.question, interrupt.choices, interrupt.allows_free_text) == (
        "Which city?",
        ("Oslo", "Bergen"),
        True,
    )
    assert session.record().status == "awaiting_answer"
    assert session.answer("turn-1.c1", "Tromsø")
    assert session.model_results() == ['{"status": "answered", "answer": "Tromsø"}']
    assert session.payloads("interrupt_raised") == [
        {
            "interrupt_id": "turn-1.c1",
            "kind": "question",
            "tool_call_id": "c1",
            "tool_name": "ask_user",
            "deadline": None,
            "question": "Which city?",
            "choices": ["Oslo", "Bergen"],
            "allows_free_text": True,
        }
    ]
    assert session.payloads("interrupt_resolved") == [
        {
            "interrupt_id": "turn-1.c1",
            "kind": "question",
            "approved": True,
            "answered": True,
            "rejection_message": None,
            "cancellation_reason": None,
            "arguments_changed": False,
        }
    ]


@pytest.mark.parametrize(
    ("message", "seen"),
    [(None, QUESTION_DECLINED), (" ", QUESTION_DECLINED), ("None of your business", "None of your business")],
    ids=["without a message", "with a blank message", "with a message"],
)
def test_a_declined_question_is_rejected_with_the_words_of_the_person(message: str | None, seen: str) -> None:
    session = PlayedSession(asking("c1"))
    assert session.resolve("turn-1.c1", False, message)
    assert session.finished() == {"c1": "rejected"}
    assert session.model_results() == [seen]
    (resolved,) = session.payloads("interrupt_resolved")
    assert (resolved["approved"], resolved["answered"]) == (False, False)


def test_a_question_whose_deadline_passes_is_rejected() -> None:
    session = PlayedSession(asking("c1"), interrupt_deadline=timedelta(hours=1))
    assert session.payloads("interrupt_raised")[0]["deadline"] == "2026-01-01T01:00:00Z"
    session.advance(3_599)
    assert session.finished() == {}
    session.advance(1)
    assert session.model_results() == [QUESTION_DEADLINE_PASSED]
    assert not session.answer("turn-1.c1", "Oslo")
    (resolved,) = session.payloads("interrupt_resolved")
    assert (resolved["answered"], resolved["rejection_message"]) == (False, QUESTION_DEADLINE_PASSED)


def test_a_question_without_a_deadline_waits_for_ever() -> None:
    session = PlayedSession(asking("c1"))
    session.stop_worker()
    session.advance(10 * YEAR.total_seconds())
    assert session.answer("turn-1.c1", "Oslo")
    session.take_work()
    session.attempt_of("RunModel")


def test_an_answer_before_the_deadline_wins_and_one_at_it_loses() -> None:
    early = PlayedSession(asking("c1"), interrupt_deadline=timedelta(seconds=10))
    early.now += 9_999_999
    assert early.answer("turn-1.c1", "Oslo")
    early.advance(100)
    assert early.finished() == {"c1": "succeeded"}
    late = PlayedSession(asking("c1"), interrupt_deadline=timedelta(seconds=10))
    late.now += 10_000_000
    assert not late.answer("turn-1.c1", "Oslo")
    assert late.finished() == {"c1": "rejected"}
    for session in (early, late):
        assert len(session.payloads("interrupt_resolved")) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "question must be text that is not blank"),
        ({"question": None}, "question must be text that is not blank"),
        ({"question": "\u3000\n"}, "question must be text that is not blank"),
        ({"question": 7}, "question must be text that is not blank"),
        ({"question": ["Which?"]}, "question must be text that is not blank"),
        ({"question": "Q", "choices": "Oslo"}, "choices must be a list of texts"),
        ({"question": "Q", "choices": {"a": 1}}, "choices must be a list of texts"),
        ({"question": "Q", "choices": True}, "choices must be a list of texts"),
        ({"question": "Q", "choices": ["Oslo", 7]}, "choices must be texts that are not blank"),
        ({"question": "Q", "choices": ["Oslo", " "]}, "choices must be texts that are not blank"),
        ({"question": "Q", "choices": ["Oslo", None]}, "choices must be texts that are not blank"),
        ({"question": "Q", "choices": ["Oslo", "Oslo"]}, "choices must differ from each other"),
        ({"question": "Q", "choices": ["Oslo", " Oslo "]}, "choices must differ from each other"),
        ({"question": "Q", "allows_free_text": "no"}, "allows_free_text must be true or false"),
        ({"question": "Q", "allows_free_text": 0}, "allows_free_text must be true or false"),
        ({"question": "Q", "allows_free_text": False}, "without choices, allows_free_text must be true"),
        ({"question": "Q", "choices": [], "allows_free_text": False}, "without choices, allows_free_text must be true"),
        ({"question": "Q", "options": []}, "there is no argument options"),
        ({"question": "Q", "b": 1, "a": 2}, "there is no argument a, b"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_ask_user_refuses_arguments_that_do_not_fit(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidBuiltInArgumentsError) as raised:
        read_ask_user_arguments(json.dumps(arguments))
    assert str(raised.value) == f"invalid ask_user arguments: {reason}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": "Q"},
        {"question": "Q", "choices": None, "allows_free_text": None},
        {"question": "Q", "choices": []},
        {"question": "Q", "choices": [], "allows_free_text": True},
    ],
    ids=json.dumps,
)
def test_null_and_absent_optional_arguments_of_ask_user_are_the_same(arguments: dict[str, Any]) -> None:
    read = read_ask_user_arguments(json.dumps(arguments))
    assert (read.question, read.choices, read.allows_free_text) == ("Q", (), True)


# durable_wait


def test_a_durable_wait_waits_and_completes() -> None:
    session = PlayedSession(waiting("c1", 90, reason="the build"))
    record = session.record()
    assert record.status == "waiting_for_timer"
    assert record.wait_until == record.deferred_at + timedelta(seconds=90)
    assert session.payloads("timer_started") == [
        {"tool_call_id": "c1", "wait_until": "2026-01-01T00:01:30Z", "reason": "the build"}
    ]
    assert session.interrupt_ids() == []
    session.advance(89)
    assert session.finished() == {}
    session.advance(1)
    assert session.model_results() == ['{"status": "completed", "waited_seconds": 90, "reason": "the build"}']


def test_a_durable_wait_that_is_due_while_no_worker_runs_has_fired_when_one_starts() -> None:
    session = PlayedSession(waiting("c1", 60))
    session.stop_worker()
    session.now += 7 * 24 * 3_600 * 1_000_000
    assert session.snapshot().tool_calls[0].status == "waiting_for_timer"
    session.take_work()
    assert json.loads(session.model_results()[0])["waited_seconds"] == 60


def test_a_skipped_timer_completes_the_wait() -> None:
    session = PlayedSession(waiting("c1", 24 * 3_600))
    (step,) = (step for step in session.header.steps.values() if step.type == "AwaitTimer")
    assert session.skip_timer(step.id)
    assert json.loads(session.model_results()[0]) == {
        "status": "completed",
        "waited_seconds": 24 * 3_600,
        "reason": "the build",
    }
    before = stored_state(session)
    assert not session.skip_timer(step.id)
    assert stored_state(session) == before


def test_a_wait_accepted_under_a_longer_limit_completes_after_a_deploy_with_a_shorter_one() -> None:
    session = PlayedSession(waiting("c1", 3_600))
    shorter = PlayedSession(max_durable_wait=timedelta(seconds=60))
    shorter.store, shorter.now = session.store, session.now
    shorter.running.clear()
    shorter.advance(3_600)
    assert json.loads(shorter.model_results()[0])["status"] == "completed"


def test_waits_of_one_response_end_each_at_its_own_time() -> None:
    session = PlayedSession(waiting("c1", 3), waiting("c2", 1), waiting("c3", 2))
    session.advance(2)
    assert list(session.finished()) == ["c2", "c3"]
    session.advance(1)
    assert [json.loads(text)["waited_seconds"] for text in session.model_results()] == [3, 1, 2]


@pytest.mark.parametrize("seconds", [1, 60, 60.0, 31_536_000])
def test_durable_wait_takes_whole_seconds_up_to_the_longest_wait(seconds: float) -> None:
    read = read_durable_wait_arguments(json.dumps({"duration_seconds": seconds, "reason": "r"}), YEAR)
    assert read.duration_seconds == seconds
    assert isinstance(read.duration_seconds, int)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"reason": "r"}, "duration_seconds must be a whole number"),
        ({"duration_seconds": None, "reason": "r"}, "duration_seconds must be a whole number"),
        ({"duration_seconds": "60", "reason": "r"}, "duration_seconds must be a whole number"),
        ({"duration_seconds": True, "reason": "r"}, "duration_seconds must be a whole number"),
        ({"duration_seconds": 1.5, "reason": "r"}, "duration_seconds must be a whole number"),
        ({"duration_seconds": [60], "reason": "r"}, "duration_seconds must be a whole number"),
        ({"duration_seconds": 0, "reason": "r"}, "duration_seconds must be from 1 to 31536000"),
        ({"duration_seconds": 0.0, "reason": "r"}, "duration_seconds must be from 1 to 31536000"),
        ({"duration_seconds": -1, "reason": "r"}, "duration_seconds must be from 1 to 31536000"),
        ({"duration_seconds": 31_536_001, "reason": "r"}, "duration_seconds must be from 1 to 31536000"),
        ({"duration_seconds": 10**400, "reason": "r"}, "duration_seconds must be from 1 to 31536000"),
        ({"duration_seconds": 1e300, "reason": "r"}, "duration_seconds must be from 1 to 31536000"),
        ({"duration_seconds": 60}, "reason must be text that is not blank"),
        ({"duration_seconds": 60, "reason": None}, "reason must be text that is not blank"),
        ({"duration_seconds": 60, "reason": "\u2003"}, "reason must be text that is not blank"),
        ({"duration_seconds": 60, "reason": 7}, "reason must be text that is not blank"),
        ({"duration_seconds": 60, "reason": "r", "until": 1}, "there is no argument until"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_durable_wait_refuses_arguments_that_do_not_fit(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidBuiltInArgumentsError) as raised:
        read_durable_wait_arguments(json.dumps(arguments), YEAR)
    assert str(raised.value) == f"invalid durable_wait arguments: {reason}"


def test_the_longest_durable_wait_is_an_option() -> None:
    session = PlayedSession(waiting("c1", 61), waiting("c2", 60), max_durable_wait=timedelta(minutes=1))
    assert session.finished() == {"c1": "failed"}
    assert session.record("c1").error == "invalid durable_wait arguments: duration_seconds must be from 1 to 60"


@pytest.mark.parametrize("option", ["max_durable_wait", "interrupt_deadline"])
def test_a_time_beyond_the_calendar_is_no_option(option: str) -> None:
    def with_days(days: int) -> AgentSessionOptions:
        given: dict[str, Any] = {option: timedelta(days=days)}
        return AgentSessionOptions(**given)

    with pytest.raises(ValueError, match=option):
        with_days(3_000_000)
    with_days(36_500)
