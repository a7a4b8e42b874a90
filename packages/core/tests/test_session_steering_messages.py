"""Queued and steered messages: which turn takes them, in which order, and what the RPCs answer."""

from __future__ import annotations

import pytest

from dex_agents.session.outcomes import ModelStepContinued, ModelStepRefused, UnfinishedTurnOutcome
from dex_agents.session.rpc_values import SteerUserMessageInput
from dex_agents.session.rpcs import STEER_USER_MESSAGE
from dex_agents.session.values import AgentUsage
from dex_flow import ValueTooLargeError

from .played_session import PlayedSession, wanted


def user_texts(session: PlayedSession) -> list[tuple[str, str]]:
    return [(turn, text) for turn, role, text in session.texts() if role == "user"]


def queued_ids(session: PlayedSession) -> list[int]:
    return [message.message_id for message in session.snapshot().queued_messages]


def test_a_queued_message_waits_until_the_running_turn_ends() -> None:
    session = PlayedSession(wanted("c1"))
    assert session.send("And order 8?")
    assert user_texts(session) == [("turn-1", "Hello")]
    session.return_from_tool()
    assert user_texts(session) == [("turn-1", "Hello")]
    session.answer_turn()
    assert user_texts(session) == [("turn-1", "Hello"), ("turn-2", "And order 8?")]


def test_queued_messages_are_consumed_one_per_turn() -> None:
    session = PlayedSession()
    for text in ("a", "b", "c"):
        assert session.send(text)
    for remaining in (2, 1, 0):
        session.answer_turn()
        assert session.snapshot().queued_message_count == remaining
    assert [turn for turn, _ in user_texts(session)] == ["turn-1", "turn-2", "turn-3", "turn-4"]


def test_a_queued_message_can_still_be_deleted_or_steered() -> None:
    session = PlayedSession(wanted("c1"))
    for text in ("a", "b", "c"):
        session.send(text)
    a, b, _ = queued_ids(session)
    assert session.delete_queued(a)
    assert session.steer(message_id=b)
    snapshot = session.snapshot()
    assert [message.text for message in snapshot.queued_messages] == ["c"]
    assert [message.text for message in snapshot.steered_messages] == ["b"]
    assert snapshot.queued_message_count == 1
    session.return_from_tool()
    assert user_texts(session)[-1] == ("turn-2", "b")
    session.answer_turn()
    assert user_texts(session)[-1] == ("turn-3", "c")


def test_steering_takes_new_text_or_a_queued_message() -> None:
    session = PlayedSession(wanted("c1"))
    session.send("queued")
    sent_at = session.snapshot().queued_messages[0].sent_at
    session.now += 60_000_000
    assert session.steer("new")
    assert session.steer(message_id=queued_ids(session)[0])
    steered = session.snapshot().steered_messages
    assert [message.text for message in steered] == ["new", "queued"]
    assert steered[1].sent_at == sent_at < steered[0].sent_at


def test_every_steered_message_starts_one_new_turn_in_the_order_they_were_steered() -> None:
    session = PlayedSession(wanted("c1"))
    session.send("first sent, last steered")
    assert session.steer("m2")
    assert session.steer("m3")
    assert session.steer(message_id=queued_ids(session)[0])
    session.return_from_tool()
    expected = ["m2", "m3", "first sent, last steered"]
    assert [text for turn, text in user_texts(session) if turn == "turn-2"][-3:] == expected
    assert session.state.turn_count == 2
    assert session.payloads("turn_steered") == [{"steered_message_count": 3, "message_count": 1}]
    session.answer_turn()
    session.assert_idle()


def test_a_message_steered_while_the_turn_ends_joins_the_others() -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    session.steer("m1")
    session.ask_for(wanted("c1", gated=True))
    session.attempt_of("ApplyTurnControl")
    assert session.steer("m2")
    session.lose_worker()
    assert session.steer("m3")
    session.succeed(session.attempt_of("ApplyTurnControl"), UnfinishedTurnOutcome())
    assert [text for turn, text in user_texts(session) if turn == "turn-2"] == ["m1", "m2", "m3"]


def test_steered_messages_go_before_queued_ones() -> None:
    session = PlayedSession()
    session.send("queued")
    session.steer("steered")
    session.answer_turn()
    session.answer_turn()
    session.answer_turn()
    assert user_texts(session) == [("turn-1", "Hello"), ("turn-2", "steered"), ("turn-3", "queued")]


def test_text_steered_while_no_turn_is_active_is_queued_and_starts_the_next_turn_at_once() -> None:
    session = PlayedSession()
    session.answer_turn()
    session.assert_idle()
    assert session.steer("Use staging")
    assert user_texts(session)[-1] == ("turn-2", "Use staging")
    assert "turn_steered" not in session.event_types()


def test_a_message_that_is_no_longer_queued_is_neither_steered_nor_deleted() -> None:
    session = PlayedSession()
    session.send("a")
    session.send("b")
    a, b = queued_ids(session)
    session.answer_turn()  # consumes a
    assert session.delete_queued(b)
    for gone in (a, b, 0, -1, 10**12):
        assert not session.steer(message_id=gone)
        assert not session.delete_queued(gone)
    assert session.snapshot().steered_messages == ()
    session.answer_turn()
    session.assert_idle()
    # Between turns there is nothing to steer, and nothing is queued.
    assert not session.steer(message_id=a)


def test_a_steered_message_can_neither_be_deleted_nor_steered_again() -> None:
    session = PlayedSession(wanted("c1"))
    session.send("a")
    (queued,) = queued_ids(session)
    assert session.steer(message_id=queued)
    (steered,) = session.snapshot().steered_messages
    for message_id in (queued, steered.message_id):
        assert not session.delete_queued(message_id)
        assert not session.steer(message_id=message_id)
    assert len(session.snapshot().steered_messages) == 1


def test_a_queued_message_cannot_be_steered_between_two_turns_and_stays_queued() -> None:
    session = PlayedSession(driver={"builds_unfinished_turns": True})
    session.send("queued")
    session.steer("steered")
    session.has_worker = False
    session.answer_turn()
    # No turn is active until a worker comes to start the steered one.
    assert session.state.active_turn_id is None
    (queued,) = queued_ids(session)
    assert not session.steer(message_id=queued)
    assert session.steer("late")
    session.take_work()
    session.answer_turn()
    session.answer_turn()
    session.answer_turn()
    texts = [text for _, text in user_texts(session)]
    assert texts == ["Hello", "steered", "queued", "late"]


@pytest.mark.parametrize("is_active", [True, False], ids=["active", "idle"])
@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
def test_blank_text_steers_nothing(text: str, is_active: bool) -> None:
    session = PlayedSession()
    if not is_active:
        session.answer_turn()
    assert not session.steer(text)
    assert session.snapshot().steered_messages == ()
    if is_active:
        session.answer_turn()
    session.assert_idle()


def test_steering_needs_exactly_one_of_text_and_message() -> None:
    session = PlayedSession(wanted("c1"))
    session.send("a")
    (queued,) = queued_ids(session)
    for both_or_neither in (
        SteerUserMessageInput(),
        SteerUserMessageInput(text="b", message_id=queued),
        SteerUserMessageInput(text="", message_id=queued),
    ):
        assert not session.call(STEER_USER_MESSAGE, both_or_neither)
    assert session.snapshot().steered_messages == ()
    assert queued_ids(session) == [queued]


def test_steered_text_is_repaired_and_limited() -> None:
    session = PlayedSession(wanted("c1"))
    with pytest.raises(ValueTooLargeError, match="the user message has 1048577 bytes"):
        session.steer("x" * (1024 * 1024 + 1))
    assert session.steer("no\0")
    assert [message.text for message in session.snapshot().steered_messages] == ["no\ufffd"]


def test_a_steer_that_comes_before_the_final_answer_commits_starts_a_new_turn_after_it() -> None:
    session = PlayedSession()
    session.steer("Also order 8")
    session.answer_turn("order 7 is paid")
    assert session.event_types()[:3] == ["turn_started", "usage_recorded", "turn_completed"]
    assert session.texts() == [
        ("turn-1", "user", "Hello"),
        ("turn-1", "assistant", "order 7 is paid"),
        ("turn-2", "user", "Also order 8"),
    ]
    assert "turn_steered" not in session.event_types()
    session.answer_turn()
    session.assert_idle()


def test_a_steer_of_a_turn_that_fails_starts_a_new_turn_after_it() -> None:
    session = PlayedSession()
    session.steer("Try staging")
    refused = ModelStepRefused(error_type="TurnRefusedError", message="no")
    session.succeed(session.attempt_of("RunModel"), refused)
    assert session.event_types().count("turn_failed") == 1
    assert user_texts(session)[-1] == ("turn-2", "Try staging")


def test_a_model_step_that_continues_under_a_steer_ends_the_turn_like_a_boundary() -> None:
    session = PlayedSession(max_model_step_continuations=0)
    session.steer("Stop")
    outcome = ModelStepContinued(framework_run_state="again", usage=AgentUsage(model_calls=1))
    session.succeed(session.attempt_of("RunModel"), outcome)
    assert "turn_limit_reached" not in session.event_types()
    assert session.payloads("turn_steered") == [{"steered_message_count": 1, "message_count": 0}]
    assert session.state.last_turn_error is None
    assert user_texts(session)[-1] == ("turn-2", "Stop")


@pytest.mark.parametrize("dies_after", ["steer", "tool", "both"])
def test_no_steered_message_is_lost_or_doubled_when_workers_die(dies_after: str) -> None:
    session = PlayedSession(wanted("c1"))
    session.steer("m1")
    if dies_after in ("steer", "both"):
        session.lose_worker()  # the read is not repeated: the turn ends
    else:
        session.return_from_tool()
    session.lose_worker()
    session.steer("m2")
    # The lost model call of turn 2 is not made again: the turn has a newer message to make room for.
    session.lose_worker()
    session.answer_turn()
    assert [text for _, text in user_texts(session) if not text.startswith("[Dex]")] == ["Hello", "m1", "m2"]
    session.assert_idle()
