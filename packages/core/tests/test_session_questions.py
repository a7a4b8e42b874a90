"""Questions a tool asks before it takes effect, and what may answer a question at all (F53)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dex_agents.runner_outcomes import ToolInputRequested
from dex_agents.session.arguments import check_arguments
from dex_agents.session.ingress import RunnerContractError, tool_outcome
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ToolCallFailed, ToolCallInputRequested
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.rpc_values import AnswerQuestionInput
from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED
from dex_agents.session.tool_values import QuestionAnswer, ToolEffect
from dex_flow import ValueTooLargeError

from .played_session import NON_IDEMPOTENT_WRITE, READ, PlayedSession, asking, question, stored_state, waiting, wanted

every_effect = pytest.mark.parametrize("effect", list(ToolEffect), ids=lambda effect: effect.value)


def asked(effect: ToolEffect = READ, *, asks: ToolCallInputRequested | None = None, **options: Any) -> PlayedSession:
    """A session whose tool asked."""
    session = PlayedSession(wanted("c1", effect), **options)
    session.succeed(session.tool_attempt("c1"), asks or question(continuation="step 2"))
    return session


# A tool's question


@every_effect
def test_a_tool_asks_and_the_same_step_type_runs_it_again_with_the_answer(effect: ToolEffect) -> None:
    session = asked(effect, asks=question("Which account?", choices=("A", "B"), continuation="step 2"))
    (interrupt,) = session.snapshot().pending_interrupts
    assert (interrupt.interrupt_id, interrupt.kind, interrupt.tool_call_id) == ("turn-1.c1-input-1", "question", "c1")
    assert (interrupt.question, interrupt.choices, interrupt.tool_name) == ("Which account?", ("A", "B"), "tool")
    record = session.record()
    assert (record.status, record.is_running) == ("awaiting_answer", False)
    assert session.running == {}
    assert session.answer("turn-1.c1-input-1", "B")
    again = session.tool_attempt("c1")
    assert again.step_type == ("CallTool" if EFFECT_RULES[effect].may_repeat else "CallSingleAttemptTool")
    record = session.snapshot_of(again).record
    assert record.input_continuation == "step 2"
    assert record.input_answers == (QuestionAnswer(question="Which account?", answer="B"),)
    assert (record.input_question, record.input_choices, record.task_answer_pending) == (None, (), False)
    session.return_from_tool("c1", "paid from B")
    assert session.model_results() == ["paid from B"]
    assert session.payloads("tool_call_started") == [{"tool_call_id": "c1", "tool_name": "tool"}] * 2
    assert len(session.payloads("tool_call_finished")) == 1


def test_every_run_of_a_call_has_the_same_idempotency_key() -> None:
    session = PlayedSession(wanted("c1"))
    first = session.snapshot_of(session.tool_attempt()).idempotency_key
    session.succeed(session.tool_attempt(), question())
    session.answer("turn-1.c1-input-1", "A")
    assert session.snapshot_of(session.tool_attempt()).idempotency_key == first == "session/turn-1/c1"


def test_a_tool_may_ask_several_questions_one_after_the_other() -> None:
    session = asked()
    for number in (1, 2, 3):
        assert session.interrupt_ids() == [f"turn-1.c1-input-{number}"]
        assert session.answer(f"turn-1.c1-input-{number}", f"answer {number}")
        if number < 3:
            session.succeed(session.tool_attempt(), question(f"Question {number + 1}?", continuation=str(number)))
    record = session.snapshot_of(session.tool_attempt()).record
    assert [answer.answer for answer in record.input_answers] == ["answer 1", "answer 2", "answer 3"]
    assert record.input_continuation == "2"
    session.return_from_tool()
    session.answer_turn()
    session.assert_idle()


def test_a_question_without_a_continuation_leaves_none_of_an_earlier_one() -> None:
    session = asked()
    session.answer("turn-1.c1-input-1", "A")
    session.succeed(session.tool_attempt(), question("And?"))
    session.answer("turn-1.c1-input-2", "B")
    assert session.snapshot_of(session.tool_attempt()).record.input_continuation is None


def test_two_tools_ask_at_once_and_both_questions_are_answerable_in_any_order() -> None:
    session = PlayedSession(wanted("c1"), wanted("c2", NON_IDEMPOTENT_WRITE), asking("c3"))
    session.succeed(session.tool_attempt("c2"), question("Second?"))
    session.succeed(session.tool_attempt("c1"), question("First?"))
    assert session.interrupt_ids() == ["turn-1.c3", "turn-1.c2-input-1", "turn-1.c1-input-1"]
    assert session.answer("turn-1.c1-input-1", "one")
    assert session.answer("turn-1.c3", "three")
    assert session.answer("turn-1.c2-input-1", "two")
    for call_id, answer in (("c1", "one"), ("c2", "two")):
        assert session.snapshot_of(session.tool_attempt(call_id)).record.input_answers[-1].answer == answer
    session.return_from_tool("c1", "r1")
    session.return_from_tool("c2", "r2")
    assert session.model_results() == ["r1", "r2", '{"status": "answered", "answer": "three"}']


@every_effect
@pytest.mark.parametrize(
    ("message", "seen"), [(None, QUESTION_DECLINED), ("\t", QUESTION_DECLINED), ("not now", "not now")]
)
def test_a_declined_question_of_a_tool_rejects_the_call(effect: ToolEffect, message: str | None, seen: str) -> None:
    session = asked(effect)
    assert session.resolve("turn-1.c1-input-1", False, message)
    assert session.finished() == {"c1": "rejected"}
    assert session.model_results() == [seen]
    assert len(session.payloads("tool_call_started")) == 1


@every_effect
def test_a_tools_question_whose_deadline_passes_rejects_the_call(effect: ToolEffect) -> None:
    session = asked(effect, interrupt_deadline=timedelta(minutes=1))
    assert session.payloads("interrupt_raised")[0]["deadline"] == "2026-01-01T00:01:00Z"
    session.advance(60)
    assert session.finished() == {"c1": "rejected"}
    assert session.model_results() == [QUESTION_DEADLINE_PASSED]
    assert session.payloads("interrupt_resolved")[0]["rejection_message"] == QUESTION_DEADLINE_PASSED


def test_an_approved_call_may_still_ask() -> None:
    session = PlayedSession(wanted("c1", NON_IDEMPOTENT_WRITE, gated=True))
    session.resolve("turn-1.c1", True)
    session.succeed(session.tool_attempt(), question())
    assert session.interrupt_ids() == ["turn-1.c1-input-1"]
    # The approval is spent: it does not answer the question.
    assert not session.resolve("turn-1.c1", True)
    assert session.answer("turn-1.c1-input-1", "A")
    session.return_from_tool("c1", "paid")
    assert session.model_results() == ["paid"]


@every_effect
def test_a_run_that_is_lost_after_the_answer_goes_by_effect(effect: ToolEffect) -> None:
    session = asked(effect)
    session.answer("turn-1.c1-input-1", "A")
    attempts = 3 if EFFECT_RULES[effect].may_repeat else 1
    for _ in range(attempts):
        assert session.snapshot_of(session.tool_attempt()).record.input_answers[-1].answer == "A"
        session.lose_worker()
    assert session.finished() == {"c1": EFFECT_RULES[effect].status_when_lost.value}


def test_a_tool_that_fails_after_the_answer_fails_the_call() -> None:
    session = asked()
    session.answer("turn-1.c1-input-1", "A")
    session.succeed(session.tool_attempt(), ToolCallFailed(message="account A is closed"))
    assert session.model_results() == ["account A is closed"]


def test_a_question_waits_through_workers_that_die() -> None:
    session = asked()
    session.stop_worker()
    session.advance(7 * 24 * 3_600)
    assert session.answer("turn-1.c1-input-1", "A")
    session.take_work()
    assert session.snapshot_of(session.tool_attempt()).record.input_answers[-1].answer == "A"


@pytest.mark.parametrize("provider_id", ["c1-input-1", "c1-input-2", "turn-1.c1-input-1"])
def test_a_provider_id_that_looks_like_a_question_id_is_renamed(provider_id: str) -> None:
    session = PlayedSession(wanted("c1"), asking(provider_id), wanted(provider_id, gated=True))
    session.succeed(session.tool_attempt("c1"), question("First?"))
    expected = [f"turn-1.{provider_id}~2", f"turn-1.{provider_id}~3", "turn-1.c1-input-1"]
    assert session.interrupt_ids() == expected
    records = session.snapshot().tool_calls
    assert [record.provider_tool_call_id for record in records] == ["c1", provider_id, provider_id]
    assert session.answer("turn-1.c1-input-1", "A")
    assert session.interrupt_ids() == expected[:2]


# What a tool may ask


@pytest.mark.parametrize(
    ("asks", "problem"),
    [
        ({"question": " "}, "question must not be blank"),
        ({"question": 7}, "question must be text, not int"),
        ({"question": "Q", "allows_free_text": False}, "without choices must allow free text"),
        ({"question": "Q", "choices": ("A", 7)}, "choices must be text, not int"),
        ({"question": "Q", "choices": ("A", " ")}, "choices must not be blank"),
        ({"question": "Q", "choices": "AB"}, "choices must be a sequence of texts, not str"),
        ({"question": "Q", "continuation": b"x"}, "continuation must be text, not bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value)[:40],
)
def test_a_question_that_nothing_can_answer_breaks_the_runners_contract(asks: dict[str, Any], problem: str) -> None:
    with pytest.raises(RunnerContractError, match=f"ToolInputRequested.*{problem}"):
        tool_outcome(ToolInputRequested(**asks), "tool", AgentSessionOptions())


def test_texts_of_a_tools_question_are_repaired() -> None:
    asks = ToolInputRequested(question="Q\0", choices=("A\ud800", "B"), continuation="\udfffc")
    outcome = tool_outcome(asks, "tool", AgentSessionOptions())
    assert outcome == question("Q\ufffd", choices=("A\ufffd", "B"), continuation="\ufffdc")


# F53: what may answer a question


CHOICES = {"choices": ["Oslo", "Bergen"], "allows_free_text": False}


@pytest.mark.parametrize("answer", ["", " ", "\n", "\u3000", "oslo", "Oslo ", "Oslo\0", "Oslo, Bergen", "Paris"])
def test_f53_an_answer_that_is_blank_or_outside_the_choices_is_false(answer: str) -> None:
    session = PlayedSession(asking("c1", **CHOICES))
    before = stored_state(session)
    assert not session.answer("turn-1.c1", answer)
    assert stored_state(session) == before
    assert session.answer("turn-1.c1", "Bergen")


@pytest.mark.parametrize("allows_free_text", [True, None])
def test_f53_free_text_is_taken_beside_choices_unless_it_is_forbidden(allows_free_text: bool | None) -> None:
    session = PlayedSession(asking("c1", choices=["Oslo"], allows_free_text=allows_free_text))
    assert not session.answer("turn-1.c1", "  ")
    assert session.answer("turn-1.c1", "  Paris ")
    assert session.model_results() == ['{"status": "answered", "answer": "  Paris "}']


def test_f53_an_approval_cannot_be_answered_and_a_question_cannot_be_approved() -> None:
    session = PlayedSession(wanted("c1", gated=True), asking("c2"), wanted("c3"))
    session.succeed(session.tool_attempt("c3"), question())
    before = stored_state(session)
    assert not session.answer("turn-1.c1", "yes")
    assert not session.resolve("turn-1.c2", True)
    assert not session.resolve("turn-1.c3-input-1", True, "sure")
    assert stored_state(session) == before
    assert session.resolve("turn-1.c1", True)
    assert session.answer("turn-1.c2", "yes")
    assert session.answer("turn-1.c3-input-1", "yes")


def test_f53_the_first_valid_answer_wins() -> None:
    session = PlayedSession(asking("c1"), wanted("c2"))
    assert session.answer("turn-1.c1", "Oslo")
    before = stored_state(session)
    assert not session.answer("turn-1.c1", "Bergen")
    assert not session.answer("turn-1.c1", "Oslo")
    assert not session.resolve("turn-1.c1", False, "no")
    assert stored_state(session) == before
    assert session.record("c1").output == '{"status": "answered", "answer": "Oslo"}'


def test_f53_an_unknown_stale_or_forged_question_is_false() -> None:
    session = asked()
    for interrupt_id in ("turn-1.c1", "c1-input-1", "turn-1.c1-input-2", "turn-2.c1-input-1", "turn-1.c1-input-1 ", ""):
        assert not session.answer(interrupt_id, "A")
        assert not session.resolve(interrupt_id, False)
    assert session.answer("turn-1.c1-input-1", "A")
    session.succeed(session.tool_attempt(), question("Again?"))
    # A page that still shows the first question cannot answer the second one.
    assert not session.answer("turn-1.c1-input-1", "B")
    assert session.interrupt_ids() == ["turn-1.c1-input-2"]


def test_f53_a_question_of_an_earlier_turn_never_answers_a_later_one_with_the_same_provider_id() -> None:
    session = PlayedSession(asking("c1"))
    session.answer("turn-1.c1", "Oslo")
    session.answer_turn()
    session.send("again")
    session.ask_for(asking("c1"))
    assert not session.answer("turn-1.c1", "Bergen")
    assert session.interrupt_ids() == ["turn-2.c1"]


@pytest.mark.parametrize("stop", ["steer", "cancel", "deadline"])
def test_f53_a_question_that_is_over_is_false(stop: str) -> None:
    session = PlayedSession(asking("c1"), wanted("c2"), interrupt_deadline=timedelta(hours=1))
    if stop == "deadline":
        session.advance(3_600)
    else:
        assert session.steer("Never mind") if stop == "steer" else session.cancel_turn()
    before = stored_state(session)
    assert not session.answer("turn-1.c1", "Oslo")
    assert not session.resolve("turn-1.c1", False)
    assert stored_state(session) == before
    assert session.finished() == {"c1": "rejected"}


@pytest.mark.parametrize("choice", ["A\\ud800", "A\\u0000", "A\\ud83d\\ude00", "\u00e9", "e\u0301"])
def test_f53_odd_characters_in_a_choice_can_be_chosen(choice: str) -> None:
    text = f'{{"question":"Which?","choices":["{choice}","B"],"allows_free_text":false}}'
    checked = check_arguments("ask_user", text)
    assert checked.error is None
    session = PlayedSession(wanted("c1", tool_name="ask_user", arguments=checked.text))
    (shown, _) = session.snapshot().pending_interrupts[0].choices
    shown.encode()
    assert "\0" not in shown
    assert session.answer("turn-1.c1", shown)
    assert session.finished() == {"c1": "succeeded"}


def test_f53_an_answer_is_repaired_and_limited() -> None:
    session = PlayedSession(asking("c1"))
    with pytest.raises(ValueTooLargeError, match="the answer"):
        session.answer("turn-1.c1", "x" * (1024 * 1024 + 1))
    assert session.answer("turn-1.c1", "Os\0lo")
    assert session.model_results() == ['{"status": "answered", "answer": "Os\ufffdlo"}']


def test_f53_an_unknown_field_of_an_answer_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"interrupt_id": "turn-1.c1", "answer": "A", "approved": True}, AnswerQuestionInput)


def test_a_durable_wait_can_be_neither_answered_nor_decided() -> None:
    session = PlayedSession(waiting("c1"))
    assert not session.answer("turn-1.c1", "done")
    assert not session.resolve("turn-1.c1", True)
    assert not session.resolve("turn-1.c1", False)
    assert session.record().status == "waiting_for_timer"
