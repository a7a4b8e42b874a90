"""The texts the model sees of calls that a person, a deadline, a steer or a stop ended: plain and in one module."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest

from dex_agents.session import texts
from dex_agents.session.outcomes import RequestedToolCall, ToolTaskCancelled

from .played_session import NON_IDEMPOTENT_WRITE, PlayedSession, asking, question, waiting, wanted
from .played_transcript import PlayedTranscript

CONSTANTS = {name: getattr(texts, name) for name in texts.__all__ if name.isupper()}
FUNCTIONS = {name: getattr(texts, name) for name in texts.__all__ if not name.isupper()}
#: Parts that stand inside or in front of other words.
PARTS = {"NOTE_PREFIX", "ARGUMENTS_CHANGED_BY_USER", "TOOL_CALL_NOT_RUN_ERROR_PREFIX"}


def every_text() -> dict[str, str]:
    made = {
        name: function(*(f"{{{parameter}}}" for parameter in inspect.signature(function).parameters))
        for name, function in FUNCTIONS.items()
    }
    return {**CONSTANTS, **made}


@pytest.mark.parametrize("name", sorted(every_text()))
def test_a_text_is_a_sentence_or_a_short_remark(name: str) -> None:
    text = every_text()[name].strip()
    assert text.isascii()
    assert "  " not in text
    assert re.search(r"\b(\w+) \1\b", text) is None, "a word stands twice"
    # A sentence begins with a capital and ends with a stop (or a colon before a list); a remark has neither.
    is_sentence = text[0].isupper() or text.startswith("[Dex] ")
    if name in PARTS:
        assert not text.endswith(".")
    elif is_sentence and not text.endswith("}"):
        assert text[-1] in ".:"
    elif not is_sentence:
        assert text[-1] not in ".:"


def test_no_two_texts_are_the_same() -> None:
    assert len(set(every_text().values())) == len(every_text())


def assert_results(session: PlayedSession, *expected: str) -> None:
    """The next model input has these results in its latest turn with calls."""
    transcript = PlayedTranscript(session)
    transcript.end_turn()
    if session.state.active_turn_id is None:
        session.send("hi")
    results = [item["text"] for item in transcript.model_input() if item["role"] == "tool"]
    assert results == list(expected)


def play(*calls: RequestedToolCall, **options: Any) -> PlayedSession:
    session = PlayedSession(driver={"builds_unfinished_turns": True}, **options)
    PlayedTranscript(session).ask_for(*calls)
    return session


def test_every_end_of_a_call_that_did_not_run_reads_as_its_text() -> None:
    for stop, text in (
        ("steer", texts.TOOL_CALL_CANCELLED_BY_STEERING_RESULT),
        ("cancel", texts.TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT),
    ):
        session = play(wanted("c1", gated=True), asking("c2"), waiting("c3"))
        assert session.steer("hi") if stop == "steer" else session.cancel_turn()
        assert_results(session, text, text, text)


def test_every_end_of_a_decision_reads_as_its_text() -> None:
    session = play(
        wanted("c1", gated=True), wanted("c2", gated=True), asking("c3"), asking("c4"), interrupt_deadline=timedelta(1)
    )
    session.resolve("turn-1.c1", False)
    session.resolve("turn-1.c3", False)
    session.advance(24 * 3_600)
    assert_results(
        session,
        texts.TOOL_CALL_REJECTED_RESULT,
        texts.APPROVAL_DEADLINE_PASSED,
        texts.QUESTION_DECLINED,
        texts.QUESTION_DEADLINE_PASSED,
    )


def test_every_end_of_a_call_that_ran_and_was_stopped_reads_as_its_text() -> None:
    session = play(wanted("c1"), wanted("c2", NON_IDEMPOTENT_WRITE), wanted("c3"))
    session.start_task("c3")
    session.cancel_turn()
    session.succeed(session.attempt_of("CancelToolTask"), ToolTaskCancelled())
    session.fail(session.tool_attempt("c1"), "TimeoutError", "slow")
    session.fail(session.tool_attempt("c2"), "TimeoutError", "slow")
    assert_results(
        session,
        f"TimeoutError: slow; {texts.NO_FURTHER_ATTEMPT_TURN_CANCELLED}",
        texts.OUTCOME_UNKNOWN_TOOL_RESULT,
        texts.OUTCOME_UNKNOWN_TOOL_RESULT,
    )


def test_a_tool_that_asked_while_the_turn_was_stopped_reads_as_not_run() -> None:
    session = play(wanted("c1"))
    session.steer("hi")
    session.succeed(session.tool_attempt(), question())
    assert_results(session, texts.TOOL_CALL_CANCELLED_BY_STEERING_RESULT)
