"""What is stored of a turn that ends without an answer, and what the next model call is given (F01, F26, F27)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dex_agents.session.outcomes import (
    ModelStepRefused,
    RequestedToolCall,
    ToolCallSucceeded,
    ToolTaskCancelled,
    UnfinishedTurnOutcome,
)
from dex_agents.session.texts import (
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
    TOOL_CALL_REJECTED_RESULT,
    TURN_CANCELLED_NOTE_HEADER,
    TURN_FAILURE_NOTE_FOOTER,
    TURN_FAILURE_NOTE_HEADER,
    TURN_STEERED_NOTE_HEADER,
)
from dex_flow import AttemptFailure
from dex_flow.kernel import AttemptFailed

from .played_session import NON_IDEMPOTENT_WRITE, PlayedSession, asking, question, waiting, wanted
from .played_transcript import PlayedTranscript, check_transcript

HEADERS = {"steer": TURN_STEERED_NOTE_HEADER, "cancel": TURN_CANCELLED_NOTE_HEADER, "fail": TURN_FAILURE_NOTE_HEADER}
NOT_RUN = {
    "steer": TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    "cancel": TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
}
SLOW_AND_GATED = (wanted("c1"), wanted("c2", NON_IDEMPOTENT_WRITE, gated=True))

#: Where F01 stops the turn, and the results of c1 and c2 that the model sees then; None is "not run".
POINTS: dict[str, tuple[str | None, ...]] = {
    "during the first model call": (),
    "after its commit": (None, None),
    "while c1 runs": ("slow", None),
    "while c2 waits": ("slow", None),
    "when both are done": ("slow", "refunded"),
}


def stop(session: PlayedSession, how: str) -> None:
    if how == "steer":
        assert session.steer("hi")
    elif how == "cancel":
        assert session.cancel_turn()
    else:
        error = ModelStepRefused(error_type="TurnRefusedError", message="no credit")
        session.succeed(session.attempt_of("RunModel"), error)


def play_until(session: PlayedSession, transcript: PlayedTranscript, point: str, how: str) -> None:
    """Run R1 and its calls c1 (slow) and c2 (gated), stop the turn at the point, and let what runs end."""
    if point == "during the first model call":
        stop(session, how)
        if how == "steer":
            transcript.ask_for(*SLOW_AND_GATED)
        return
    if point == "after its commit":
        session.has_worker = False
        transcript.ask_for(*SLOW_AND_GATED)
        stop(session, how)
        session.take_work()
        return
    transcript.ask_for(*SLOW_AND_GATED)
    if point == "while c1 runs":
        stop(session, how)
        session.return_from_tool("c1", "slow")
        return
    session.return_from_tool("c1", "slow")
    if point == "when both are done":
        assert session.resolve("turn-1.c2", True)
        session.return_from_tool("c2", "refunded")
    stop(session, how)
    if (how, point) == ("steer", "when both are done"):
        transcript.answer()  # a steer lets the model call that runs finish


F01_CASES = [(how, point) for how in ("cancel", "steer") for point in POINTS] + [
    ("fail", "during the first model call"),
    ("fail", "when both are done"),
]


@pytest.mark.parametrize(("how", "point"), F01_CASES)
def test_f01_no_stored_call_is_ever_without_its_result(how: str, point: str) -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    play_until(session, transcript, point, how)
    transcript.end_turn()
    if how != "steer":
        assert session.send("hi")
    results = POINTS[point]
    if how == "steer" and not results:
        results = (None, None)  # a steer lets the model call finish
    items = transcript.model_input()
    expected: list[Any] = [("user", "Hello")]
    if results:
        expected.append(("assistant", ["c1", "c2"]))
        expected += [
            ("tool", call_id, NOT_RUN[how] if result is None else result)
            for call_id, result in zip(("c1", "c2"), results, strict=True)
        ]
        if how == "fail":
            expected.append(("user", note(how, ("c1", "succeeded"), ("c2", "succeeded"))))
        if (how, point) == ("steer", "when both are done"):
            expected.append(("assistant", []))
    assert [summary(item) for item in items] == [*expected, ("user", "hi")]
    transcript.answer()
    session.assert_idle()


def summary(item: dict[str, Any]) -> tuple[Any, ...]:
    if item["role"] == "assistant":
        return "assistant", [call["id"] for call in item["calls"]]
    if item["role"] == "tool":
        return "tool", item["id"], item["text"]
    return "user", item["text"]


def note(how: str, *calls: tuple[str, str]) -> str:
    lines = [f'- tool {{"n":1}}: {status}' for _, status in calls]
    return "\n".join([HEADERS[how], *lines, TURN_FAILURE_NOTE_FOOTER])


@pytest.mark.parametrize(("how", "point"), F01_CASES)
def test_f01_a_runner_without_unfinished_messages_gets_a_note_of_what_ran(how: str, point: str) -> None:
    session = PlayedSession()
    play_until(session, RunnerThatStoresAtTheEnd(session), point, how)
    if how != "steer":
        assert session.send("hi")
    texts = session.texts()
    assert texts[0] == ("turn-1", "user", "Hello")
    assert texts[-1] == ("turn-2", "user", "hi")
    ran = [("c1", "succeeded")] if "slow" in POINTS[point] else []
    ran += [("c2", "succeeded")] if "refunded" in POINTS[point] else []
    if (how, point) == ("steer", "when both are done"):
        assert texts[1:-1] == [("turn-1", "assistant", "done")]
    else:
        assert texts[1:-1] == ([("turn-1", "user", note(how, *ran))] if ran else [])
    items = [json.loads(message.framework_item) for message in session.snapshot().messages]
    check_transcript(items)
    session.answer_turn()
    session.assert_idle()


class RunnerThatStoresAtTheEnd(PlayedTranscript):
    """A runner that stores a turn's messages with its answer and builds none for an unfinished turn."""

    def ask_for(self, *calls: RequestedToolCall) -> None:
        self.session.ask_for(*calls)

    def answer(self, text: str = "done") -> None:
        self.session.answer_turn(text)


@pytest.mark.parametrize("how", ["cancel", "steer"])
def test_f01_a_second_model_step_keeps_the_results_of_the_first_one(how: str) -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    transcript.ask_for(wanted("a1"), wanted("a2"))
    session.return_from_tool("a2", "two")
    session.return_from_tool("a1", "one")
    transcript.ask_for(wanted("b1"), asking("b2"), waiting("b3"))
    stop(session, how)
    session.lose_worker()
    transcript.end_turn()
    if how == "cancel":
        session.send("hi")
    items = transcript.model_input()
    assert [summary(item)[:2] for item in items] == [
        ("user", "Hello"),
        ("assistant", ["a1", "a2"]),
        ("tool", "a1"),
        ("tool", "a2"),
        ("assistant", ["b1", "b2", "b3"]),
        ("tool", "b1"),
        ("tool", "b2"),
        ("tool", "b3"),
        ("user", "hi"),
    ]
    assert items[5]["text"].startswith("WorkerLost: ")
    assert [items[6]["text"], items[7]["text"]] == [NOT_RUN[how]] * 2


def test_f01_a_cancel_during_the_second_model_call_keeps_the_results_that_were_not_stored_yet() -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    transcript.ask_for(wanted("c1"))
    session.return_from_tool("c1", "one")
    assert [message.role for message in session.snapshot().messages] == ["user", "assistant"]
    session.cancel_turn()
    transcript.end_turn()
    assert [message.role for message in session.snapshot().messages] == ["user", "assistant", "tool"]
    session.send("hi")
    transcript.answer()


@pytest.mark.parametrize("how", ["cancel", "steer"])
def test_f01_a_task_and_a_tools_question_leave_one_result_each(how: str) -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    transcript.ask_for(wanted("c1"), wanted("c2"))
    session.start_task("c1")
    session.succeed(session.tool_attempt("c2"), question())
    stop(session, how)
    if how == "cancel":
        session.succeed(session.attempt_of("CancelToolTask"), ToolTaskCancelled())
    else:
        session.advance(5)
        session.succeed(session.poll("c1"), ToolCallSucceeded(output="report"))
    transcript.end_turn()
    if how == "cancel":
        session.send("hi")
    transcript.answer()
    session.assert_idle()


# The end of a turn


@pytest.mark.parametrize("how", ["cancel", "steer"])
def test_a_runner_that_builds_messages_stores_the_exact_transcript_and_no_note(how: str) -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    transcript.ask_for(wanted("c1"), wanted("c2", gated=True))
    stop(session, how)
    session.return_from_tool("c1", "one")
    transcript.end_turn()
    of_the_turn = [message for message in session.snapshot().messages if message.turn_id == "turn-1"]
    assert [(message.role, message.tool_call_id) for message in of_the_turn] == [
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("tool", "c2"),
    ]
    ended = {"cancel": "turn_cancelled", "steer": "turn_steered"}[how]
    assert session.payloads(ended)[0]["message_count"] == 3


@pytest.mark.parametrize("how", ["cancel", "steer"])
@pytest.mark.parametrize("why", ["it raised", "its worker died three times"])
def test_a_builder_that_fails_leaves_the_note_and_the_turn_ends(how: str, why: str) -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    session.ask_for(wanted("c1"))
    stop(session, how)
    session.return_from_tool("c1")
    if why == "it raised":
        session.succeed(session.attempt_of("ApplyTurnControl"), UnfinishedTurnOutcome(error="ValueError: broken"))
    else:
        for _ in range(3):
            session.lose_worker()
    assert ("turn-1", "user", note(how, ("c1", "succeeded"))) in session.texts()
    assert session.state.active_turn_id == ("turn-2" if how == "steer" else None)


def test_the_note_lists_the_calls_that_ran_in_call_order_and_asks_not_to_repeat_them() -> None:
    session = PlayedSession(
        wanted("c1", NON_IDEMPOTENT_WRITE, tool_name="refund", arguments='{"order":7}'),
        wanted("c2", gated=True, tool_name="mail"),
        wanted("c3", tool_name="lookup", arguments=json.dumps({"q": "x" * 300})),
        wanted("c4", tool_name="report"),
        asking("c5", question=" "),
    )
    session.start_task("c4")
    session.cancel_turn()
    session.succeed(session.attempt_of("CancelToolTask"), ToolTaskCancelled())
    claim = session.tool_attempt("c1")
    failure = AttemptFailure(error_type="ConnectionError", message="reset")
    session.running.pop(claim.step_execution_id)
    session.apply(AttemptFailed(claim.step_execution_id, claim.attempt, failure))
    session.return_from_tool("c3")
    (_, _, text) = session.texts()[-1]
    shown = json.dumps({"q": "x" * 300})[:200]
    assert text.split("\n") == [
        TURN_CANCELLED_NOTE_HEADER,
        '- refund {"order":7}: outcome_unknown',
        f"- lookup {shown}...: succeeded",
        '- report {"n":1}: outcome_unknown',
        '- ask_user {"question": " "}: failed',
        TURN_FAILURE_NOTE_FOOTER,
    ]


@pytest.mark.parametrize("how", ["cancel", "steer"])
def test_a_turn_in_which_no_call_ran_leaves_no_note(how: str) -> None:
    session = PlayedSession(wanted("c1", gated=True), waiting("c2"))
    stop(session, how)
    assert [text for turn, _, text in session.texts() if turn == "turn-1"] == ["Hello"]


# F26: the user types instead of deciding


def test_f26_a_message_that_is_sent_instead_of_a_decision_starts_the_next_turn() -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    transcript.ask_for(wanted("c1", NON_IDEMPOTENT_WRITE, gated=True))
    assert session.send("never mind")
    assert session.interrupt_ids() == ["turn-1.c1"]
    assert session.resolve("turn-1.c1", True)
    session.return_from_tool("c1", "refunded")
    transcript.answer("refunded")
    assert [summary(item) for item in transcript.model_input()] == [
        ("user", "Hello"),
        ("assistant", ["c1"]),
        ("tool", "c1", "refunded"),
        ("assistant", []),
        ("user", "never mind"),
    ]


def test_f26_a_message_that_steers_instead_of_a_decision_rejects_the_call_and_starts_a_new_turn() -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    transcript.ask_for(wanted("c1", NON_IDEMPOTENT_WRITE, gated=True))
    assert session.steer("never mind")
    assert not session.resolve("turn-1.c1", True)
    transcript.end_turn()
    assert [summary(item) for item in transcript.model_input()] == [
        ("user", "Hello"),
        ("assistant", ["c1"]),
        ("tool", "c1", TOOL_CALL_CANCELLED_BY_STEERING_RESULT),
        ("user", "never mind"),
    ]
    assert "tool_call_started" not in session.event_types()


# F27: a rejection with its reason


@pytest.mark.parametrize("loses_worker", [False, True], ids=["", "worker dies"])
@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ("no: use b@x", "no: use b@x"),
        (None, TOOL_CALL_REJECTED_RESULT),
        ("x" * 10_000, "x" * 10_000),
        ("nein 日本 \U0001f600\n", "nein 日本 \U0001f600\n"),
    ],
    ids=["reason", "none", "10 kB", "unicode"],
)
def test_f27_the_model_sees_exactly_the_words_of_a_rejection_once_and_siblings_run_once(
    message: str | None, seen: str, loses_worker: bool
) -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    transcript = PlayedTranscript(session)
    transcript.ask_for(wanted("c1", NON_IDEMPOTENT_WRITE, gated=True), wanted("c2", NON_IDEMPOTENT_WRITE))
    session.return_from_tool("c2", "free")
    assert session.resolve("turn-1.c1", False, message)
    if loses_worker:
        session.lose_worker()
    items = transcript.model_input()
    assert [summary(item) for item in items][1:] == [
        ("assistant", ["c1", "c2"]),
        ("tool", "c1", seen),
        ("tool", "c2", "free"),
    ]
    transcript.answer()
    session.send("and now?")
    assert sum(item.get("text") == seen for item in transcript.model_input()) == 1
    assert session.payloads("tool_call_started") == [{"tool_call_id": "c2", "tool_name": "tool"}]
