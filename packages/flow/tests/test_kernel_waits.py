from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dex_flow import (
    ChannelCondition,
    Decision,
    DefinitionError,
    Timer,
    Wait,
    WaitResult,
    dead_end,
    go_to,
    go_to_many,
    move,
)
from dex_flow.kernel import SkipTimer, timestamp

from .kernel_driver import BEGIN, KEYED, SECOND, A, B, Driver, inline, note


def in_seconds(seconds: float) -> Timer:
    return Timer(timestamp(BEGIN + round(seconds * SECOND)))


def note_result(tx: Any, input: Any) -> Decision:
    result: WaitResult = tx.wait_result
    note(tx, f"{result.index}:{','.join('+'.join(group) for group in result.messages)}")
    return dead_end()


def note_and_repeat(tx: Any, input: Any) -> Decision:
    note(tx, tx.wait_result.received[0])
    return go_to("W")


def note_name(tx: Any, name: Any) -> Decision:
    note(tx, f"{name}:{tx.wait_result.received[0]}")
    return dead_end()


def waiting(*conditions: Any, mode: str = "any_of") -> Driver:
    """A started Flow whose only Step waits for the conditions and notes what ended the wait."""
    wait = getattr(Wait, mode)(*conditions)
    return Driver(inline("W", note_result, wait=lambda view, input: wait)).start()


def test_a_message_ends_the_wait() -> None:
    driver = waiting(A.receive())
    assert driver.step("W").status == "waiting"

    driver.send("hello")

    assert driver.log == ["0:hello"]
    assert driver.open_types == []
    assert driver.waiting_messages(A) == []


def test_any_of_takes_the_first_satisfied_condition_in_declared_order() -> None:
    driver = waiting(A.receive(), B.receive())

    driver.call(lambda tx: (tx.publish(B, "b1"), tx.publish(A, "a1")))

    assert driver.log == ["0:a1,"]
    assert driver.waiting_messages(B) == ["b1"], "an unsatisfied condition consumes nothing"


def test_any_of_takes_a_later_condition_when_it_is_the_only_one() -> None:
    driver = waiting(A.receive(), B.receive())
    driver.send("b1", to=B)
    assert driver.log == ["1:,b1"]


def test_any_of_prefers_an_earlier_timer_to_a_later_message() -> None:
    driver = waiting(in_seconds(5), A.receive())
    driver.now = BEGIN + 5 * SECOND

    driver.send("late")

    assert driver.log == ["0:,"], "the timer came due before the message was sent"
    assert driver.waiting_messages(A) == ["late"]


def test_any_of_prefers_a_message_declared_before_a_timer_that_is_due_at_registration() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: (tx.publish(A, "first"), go_to("W"))[1]),
        inline("W", note_result, wait=lambda view, _: Wait.any_of(A.receive(), Timer(view.now))),
    ).start()
    assert driver.log == ["0:first,"]


def test_any_of_needs_a_condition() -> None:
    with pytest.raises(DefinitionError, match="at least one condition"):
        Wait.any_of()


def test_all_of_waits_for_every_condition() -> None:
    driver = waiting(A.receive(), B.receive(2), in_seconds(10), mode="all_of")

    driver.send("a1", "a2")
    driver.send("b1", to=B)
    assert driver.waiting_messages(A) == ["a1", "a2"], "an unfinished all_of consumes nothing"
    driver.send("b2", "b3", to=B)
    assert driver.log == []

    driver.advance(10)

    assert driver.log == ["-1:a1,b1+b2,"]
    assert driver.waiting_messages(A) == ["a2"]
    assert driver.waiting_messages(B) == ["b3"]


def test_all_of_messages_may_come_after_its_timer() -> None:
    driver = waiting(A.receive(), in_seconds(10), mode="all_of")
    driver.advance(11)
    assert driver.store.next_due is None, "a timer that has come must not make the engine poll"

    driver.send("a1")

    assert driver.log == ["-1:a1,"]


def test_all_of_with_one_channel_twice_needs_messages_for_both() -> None:
    driver = waiting(A.receive(), A.receive(2), mode="all_of")

    driver.send("a1")
    driver.send("a2")
    assert driver.waiting_messages(A) == ["a1", "a2"], "nothing is consumed while the wait lasts"
    driver.send("a3")

    assert driver.log == ["-1:a1,a2+a3"]


def test_all_of_nothing_runs_at_once() -> None:
    assert waiting(mode="all_of").log == ["-1:"]


def test_received_joins_the_messages_of_an_all_of() -> None:
    assert WaitResult(-1, (("a", "b"), (), ("c",))).received == ("a", "b", "c")
    assert WaitResult(1, ((), ("c",))).received == ("c",)


def test_a_message_sent_before_the_wait_was_registered_is_not_missed() -> None:
    driver = Driver(
        inline("Gate", lambda tx, _: go_to("W"), wait=lambda view, _: Wait.any_of(B.receive())),
        inline("W", note_result, wait=lambda view, _: Wait.any_of(A.receive())),
    ).start()
    driver.send("early")
    assert driver.log == []

    driver.send("open", to=B)

    assert driver.log == ["0:early"]


def test_a_timer_that_passed_before_the_wait_was_registered_fires_at_once() -> None:
    assert waiting(Timer(datetime(1999, 1, 1, tzinfo=UTC))).log == ["0:"]


def test_a_timer_before_1970_fires_at_once() -> None:
    assert waiting(Timer(datetime(1900, 1, 1, tzinfo=UTC))).log == ["0:"]


def test_a_timer_fires_when_it_is_due_and_not_before() -> None:
    driver = waiting(in_seconds(5))
    assert driver.store.next_due == BEGIN + 5 * SECOND

    assert driver.advance(4.9).changes is None
    assert driver.log == []
    driver.advance(0.2)

    assert driver.log == ["0:"]
    assert driver.store.next_due is None


def test_a_timer_needs_an_aware_time() -> None:
    with pytest.raises(ValueError, match="aware"):
        Timer(datetime(2026, 1, 1))


def test_the_earliest_of_several_timers_is_next() -> None:
    driver = waiting(in_seconds(9), in_seconds(3))
    assert driver.store.next_due == BEGIN + 3 * SECOND
    driver.advance(4)
    assert driver.log == ["1:,"]


def test_messages_are_taken_oldest_first() -> None:
    driver = Driver(
        inline(
            "W",
            note_and_repeat,
            wait=lambda view, _: Wait.any_of(A.receive()),
        )
    ).start()
    driver.send("1", "2", "3")
    driver.send("4")
    assert driver.log == ["1", "2", "3", "4"]
    assert driver.header.next_step == 6, "every execution has an ID of its own"


def test_competing_waits_share_messages_by_lowest_step_id() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: go_to_many(*(move("W", f"w{number}") for number in range(3)))),
        inline("W", note_name, wait=lambda view, _: Wait.any_of(A.receive())),
    ).start()

    driver.send("x", "y")

    assert driver.log == ["w0:x", "w1:y"]
    assert driver.open_types == ["W"]


def test_a_count_needs_that_many_messages() -> None:
    driver = waiting(A.receive(3))
    driver.send("1")
    driver.send("2")
    assert driver.log == []
    driver.send("3", "4")
    assert driver.log == ["0:1+2+3"]
    assert driver.waiting_messages(A) == ["4"]


def test_a_count_of_zero_holds_without_messages_and_takes_none() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: (tx.publish(A, "kept"), go_to("W"))[1]),
        inline("W", note_result, wait=lambda view, _: Wait.any_of(A.receive(0))),
    ).start()
    assert driver.log == ["0:"]
    assert driver.waiting_messages(A) == ["kept"]


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more messages, not -1"):
        ChannelCondition("a", "", -1)


def test_a_message_deleted_before_the_count_was_reached_does_not_count() -> None:
    driver = waiting(A.receive(2))
    driver.send("1")
    driver.call(lambda tx: tx.delete_message(A, tx.list_messages(A)[0][0]))
    driver.send("2")
    assert driver.log == []
    driver.send("3")
    assert driver.log == ["0:2+3"]


def test_keys_of_a_channel_map_are_separate_queues() -> None:
    driver = waiting(KEYED.receive("call-1"))
    driver.call(lambda tx: tx.publish_instance(KEYED, "call-2", "no"))
    assert driver.log == []
    driver.call(lambda tx: tx.publish_instance(KEYED, "call-1", "yes"))
    assert driver.log == ["0:yes"]
    assert driver.waiting_messages(KEYED, "call-2") == ["no"]


def test_the_wait_is_evaluated_once() -> None:
    evaluations: list[int] = []

    def wait(view: Any, input: Any) -> Wait:
        evaluations.append(view.count_messages(A))
        return Wait.any_of(A.receive(3))

    driver = Driver(inline("W", wait=wait)).start()
    driver.send("1")
    driver.send("2")
    driver.send("3")
    assert driver.log == ["W"]
    assert evaluations == [0]


def test_a_message_published_by_a_step_wakes_another_in_the_same_command() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: (tx.start_step("W"), go_to("Publish"))[1]),
        inline("Publish", lambda tx, _: (tx.publish(A, "now"), dead_end())[1]),
        inline("W", note_result, wait=lambda view, _: Wait.any_of(A.receive())),
    ).start()
    assert driver.log == ["0:now"]
    assert driver.store.channels == {}


def test_a_count_reached_by_several_steps_of_one_command() -> None:
    def publish(tx: Any, left: Any) -> Decision:
        tx.publish(A, f"{left}")
        return go_to("Publish", left - 1) if left > 1 else dead_end()

    driver = Driver(
        inline("Start", lambda tx, _: go_to_many(move("W"), move("Publish", 3))),
        inline("Publish", publish),
        inline("W", note_result, wait=lambda view, _: Wait.any_of(A.receive(3))),
    ).start()
    assert driver.log == ["0:3+2+1"]


def test_a_wait_registered_after_others_were_woken_in_the_same_command() -> None:
    def publish(tx: Any, left: Any) -> Decision:
        tx.publish(A, f"{left}")
        return go_to_many(move("W"), move("Publish", left - 1)) if left > 0 else dead_end()

    driver = Driver(
        inline("Start", lambda tx, _: go_to("Publish", 2)),
        inline("Publish", publish),
        inline("W", note_result, wait=lambda view, _: Wait.any_of(A.receive(2))),
    ).start()
    assert driver.log == ["0:2+1"]
    assert driver.waiting_messages(A) == ["0"]


def test_skip_timer_ends_a_timer_wait_now() -> None:
    driver = waiting(A.receive(), in_seconds(3_600))
    step_id = driver.step("W").id

    assert driver.apply(SkipTimer(step_id)).output is True
    assert driver.log == ["1:,"]

    result = driver.apply(SkipTimer(step_id))
    assert (result.output, result.changes) == (False, None)


def test_skip_timer_of_an_all_of_leaves_its_messages_to_wait_for() -> None:
    driver = waiting(A.receive(), in_seconds(3_600), mode="all_of")
    assert driver.apply(SkipTimer(driver.step("W").id)).output is True
    assert driver.log == []
    assert driver.store.next_due is None
    driver.send("a1")
    assert driver.log == ["-1:a1,"]


def test_skip_timer_refuses_a_step_without_a_timer() -> None:
    driver = waiting(A.receive())
    assert driver.apply(SkipTimer(driver.step("W").id)).output is False
    assert driver.apply(SkipTimer(999)).output is False


def test_a_timer_wait_result_has_one_empty_group_per_condition() -> None:
    driver = waiting(in_seconds(1), in_seconds(2), mode="all_of")
    driver.advance(3)
    assert driver.log == ["-1:,"]


def test_a_wait_for_is_told_the_time_of_the_command() -> None:
    driver = Driver(inline("W", note_result, wait=lambda view, _: Wait.any_of(Timer(view.now + timedelta(seconds=2)))))
    driver.start()
    assert driver.store.next_due == driver.now + 2 * SECOND
