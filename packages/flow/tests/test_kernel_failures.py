"""Pure code that raises: its own writes are undone, its Step backs off, everything else of the command commits."""

from __future__ import annotations

import asyncio
import copy
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from dex_flow import Channel, Decision, Proceed, Retry, Rpc, StepOptions, Wait, dead_end, go_to
from dex_flow.kernel import AttemptsLost, InvokeRpc, SkipTimer

from .kernel_driver import (
    COUNT,
    EVENTS,
    KEYED,
    NUMBERS,
    SECOND,
    TEXT,
    A,
    B,
    Driver,
    activity,
    attempts,
    end_with,
    inline,
    note,
    spread,
)


class Switch:
    """Code that raises until it is repaired."""

    def __init__(self, error: Exception | None = None) -> None:
        self.is_broken = True
        self.calls = 0
        self.error = error or RuntimeError("broken")

    def check(self) -> None:
        self.calls += 1
        if self.is_broken:
            raise self.error

    def execute(self, tx: Any, input: Any) -> Decision:
        """The code of a Step."""
        self.check()
        note(tx, "repaired")
        return dead_end()


def raising(tx: Any, input: Any, outcome: Any = None) -> Decision:
    """The code of a Step that is never repaired."""
    raise RuntimeError("broken")


def write_everything(tx: Any) -> None:
    """Everything that an exception must undo."""
    tx.set(COUNT, 99)
    tx.delete(TEXT)
    tx.set_instance(NUMBERS, "new", 1)
    tx.delete_instance(NUMBERS, "old")
    tx.publish(B, "undone")
    tx.receive(A)
    tx.purge_messages(KEYED, "k")
    tx.emit(EVENTS, "undone")
    tx.cancel_steps("Bystander")
    tx.start_step("Other")


def prepare(tx: Any) -> None:
    tx.set(TEXT, "kept")
    tx.set_instance(NUMBERS, "old", 7)
    tx.publish(A, "kept")
    tx.publish_instance(KEYED, "k", "kept")
    tx.start_step("Bystander")


BYSTANDERS = (
    activity("Bystander", options=StepOptions(retry=Retry(attempts=1))),
    inline("Other"),
)


def undo_state(driver: Driver) -> list[Any]:
    store = driver.store
    return [
        dict(store.attributes),
        {slot: dict(rows) for slot, rows in store.channels.items()},
        {stream: list(events) for stream, events in store.events.items()},
        driver.header.next_message,
        driver.header.next_step,
        driver.step("Bystander"),
    ]


def check_everything_was_undone(driver: Driver, step_type: str, before: list[Any], error: str, phase: str) -> None:
    assert undo_state(driver) == before
    assert driver.header.status == "open"
    assert driver.header.result is None
    assert driver.header.failure is None
    step = driver.step(step_type)
    assert (step.status, step.phase, step.error) == ("backoff", phase, error)


def test_a_raising_execute_is_undone_alone() -> None:
    switch = Switch()

    def execute(tx: Any, input: Any) -> Decision:
        write_everything(tx)
        switch.check()
        return dead_end()

    driver = Driver(inline("W", execute, wait=lambda view, _: Wait.any_of(B.receive())), *BYSTANDERS).start()
    driver.call(prepare)
    before = undo_state(driver)
    before[3] += 1  # the message that wakes the Step

    driver.send("go", to=B)

    check_everything_was_undone(driver, "W", before, "RuntimeError: broken", "execute")
    assert driver.history == [("W", "execute", 1, "failed")]

    switch.is_broken = False
    driver.advance(0.1)
    assert driver.get(COUNT) == 99
    assert driver.waiting_messages(B) == ["undone"]
    assert driver.open_types == []


def test_a_raising_before_run_is_undone_alone() -> None:
    switch = Switch()

    def before_run(tx: Any, input: Any) -> Proceed:
        write_everything(tx)
        switch.check()
        return Proceed()

    driver = Driver(activity("W", before_run=before_run), *BYSTANDERS).start()
    driver.call(prepare)
    before = undo_state(driver)

    assert driver.claims(1) != [], "the next Step may be claimed instead"

    before[-1] = driver.step("Bystander")
    check_everything_was_undone(driver, "W", before, "RuntimeError: broken", "begin")
    assert driver.step("W").attempt == 0
    assert driver.history == [("W", "before_run", 0, "failed")]

    switch.is_broken = False
    claim = driver.advance(0.1, slots=1).changes
    assert claim is not None
    assert [(c.step_type, c.attempt) for c in claim.claimed] == [("W", 1)]


def test_a_raising_before_run_of_a_started_marker_is_claimed_again() -> None:
    switch = Switch()

    def before_run(tx: Any, input: Any) -> Proceed:
        switch.check()
        return Proceed()

    driver = Driver(activity("W", before_run=before_run, options=StepOptions(retry=Retry(attempts=1)))).start()
    claim = driver.claim()
    with pytest.raises(ValueError, match="not enough values"):
        driver.mark_started(claim)
    assert driver.step("W").phase == "begin"
    switch.is_broken = False
    driver.advance(0.1)
    assert driver.mark_started(driver.claim()).attempt == 1


def test_a_raising_commit_is_undone_alone_and_retried_with_the_stored_outcome() -> None:
    switch = Switch()
    outcomes: list[Any] = []

    def commit(tx: Any, input: Any, outcome: Any) -> Decision:
        outcomes.append((input, outcome))
        write_everything(tx)
        switch.check()
        return go_to("Other")

    driver = Driver(activity("W", commit), *BYSTANDERS).start("in")
    driver.call(prepare)
    claim = driver.claim()
    before = undo_state(driver)

    driver.succeed(claim, {"paid": True})

    check_everything_was_undone(driver, "W", before, "RuntimeError: broken", "commit")
    assert [c.step_type for c in driver.claims()] == ["Bystander"], "run is never repeated"
    driver.advance(5)
    driver.advance(5)
    assert len(outcomes) == 3

    switch.is_broken = False
    driver.advance(5)

    assert outcomes == [("in", {"paid": True})] * 4
    assert driver.log == ["Other", "Other"]
    assert [row for row in driver.history if row[0] == "W"] == [
        ("W", "commit", 1, "failed"),
        ("W", "run", 1, "succeeded"),
    ]


def test_a_stored_outcome_survives_the_loss_of_the_worker() -> None:
    switch = Switch()

    def commit(tx: Any, input: Any, outcome: Any) -> Decision:
        switch.check()
        return end_with(f"committed {outcome}")(tx, input)

    driver = Driver(activity("W", commit, options=attempts(1)), inline("Failed")).start()
    driver.succeed(driver.mark_started(driver.claim()), "once")
    driver.apply(AttemptsLost())
    assert driver.step("W").phase == "commit"
    switch.is_broken = False
    driver.advance(0.1)
    assert driver.log == ["committed once"]


def test_the_retry_of_a_commit_claims_its_successor() -> None:
    switch = Switch()

    def commit(tx: Any, input: Any, outcome: Any) -> Decision:
        switch.check()
        return go_to("Next")

    driver = Driver(activity("W", commit), activity("Next")).start()
    driver.succeed(driver.claim())
    switch.is_broken = False
    changes = driver.advance(0.1, slots=1).changes
    assert changes is not None
    assert [claim.step_type for claim in changes.claimed] == ["Next"]


def test_a_raising_on_attempt_failed_is_undone_alone_and_the_retry_goes_on() -> None:
    def on_attempt_failed(tx: Any, input: Any, failure: Any) -> None:
        write_everything(tx)
        raise KeyError("lost")

    driver = Driver(activity("W", on_attempt_failed=on_attempt_failed), *BYSTANDERS).start()
    driver.call(prepare)
    claim = driver.claim()
    before = undo_state(driver)

    driver.fail(claim)

    error = "OSError: unreachable; on_attempt_failed raised KeyError: 'lost'"
    check_everything_was_undone(driver, "W", before, error, "attempt")
    assert driver.history == [("W", "run", 1, "failed"), ("W", "on_attempt_failed", 1, "failed")]
    driver.advance(0.1)
    assert driver.claim().attempt == 2


def test_an_undone_cancellation_leaves_no_trace() -> None:
    switch = Switch()

    def cancel_and_raise(tx: Any, input: Any) -> Decision:
        assert tx.cancel_steps("Running", "Claimed", "Waiting") == 3
        switch.check()
        return dead_end()

    def wake_both(tx: Any, input: Any) -> None:
        tx.publish(B, "go")
        tx.publish(A, "wakes")

    driver = Driver(
        spread("Running", "Claimed", "Bad", "Waiting"),
        activity("Running"),
        activity("Claimed", options=StepOptions(retry=Retry(attempts=1))),
        inline("Waiting", wait=lambda view, _: Wait.any_of(A.receive())),
        inline("Bad", cancel_and_raise, wait=lambda view, _: Wait.any_of(B.receive())),
    ).start()
    running, claimed = driver.claims()
    driver.flow.rpcs["go"] = Rpc("go", wake_both, Any, Any)
    result = driver.apply(InvokeRpc("go", b"null"))
    assert result.changes is not None
    assert driver.step("Bad").error == "RuntimeError: broken"
    assert result.changes.cancelled == []
    assert [row for row in driver.history if row[3] == "cancelled"] == []
    assert driver.log == ["Waiting"], "it was woken by a message of the same command"
    driver.mark_started(claimed)
    driver.succeed(running, "done")
    assert driver.log == ["Waiting", "Running=done"]


def test_a_raising_wait_for_backs_off_and_is_evaluated_again() -> None:
    switch = Switch()

    def wait(view: Any, input: Any) -> Wait:
        switch.check()
        return Wait.any_of(A.receive())

    driver = Driver(spread("W", "Other"), inline("W", wait=wait), inline("Other")).start()
    step = driver.step("W")
    assert (step.status, step.phase, step.error) == ("backoff", "wait_for", "RuntimeError: broken")
    assert driver.log == ["Other"], "the rest of the command commits"
    assert ("W", "wait_for", 0, "failed") in driver.history

    driver.send("early")
    switch.is_broken = False
    driver.advance(0.1)

    assert driver.log == ["Other", "W"]
    assert driver.waiting_messages(A) == []


def test_a_wait_for_that_recovered_shows_no_error() -> None:
    switch = Switch()

    def wait(view: Any, input: Any) -> Wait:
        switch.check()
        return Wait.any_of(A.receive())

    driver = Driver(inline("W", wait=wait)).start()
    switch.is_broken = False
    driver.advance(0.1)
    step = driver.step("W")
    assert (step.status, step.error, step.failures) == ("waiting", None, 0)


@pytest.mark.parametrize("wait", [lambda view, _: None, lambda view, _: Wait.any_of(_undeclared())])
def test_a_wrong_wait_backs_off(wait: Any) -> None:
    driver = Driver(inline("W", wait=wait)).start()
    assert driver.step("W").phase == "wait_for"


def _undeclared() -> Any:
    return Channel[str]("nowhere", str).receive()


def test_the_backoff_of_pure_code_grows_to_five_seconds_and_stays() -> None:
    driver = Driver(inline("W", raising)).start()
    delays = []
    for _ in range(10):
        assert driver.store.next_due is not None
        delays.append((driver.store.next_due - driver.now) / SECOND)
        driver.advance(delays[-1])
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5]
    assert [row.method for row in driver.store.history] == ["execute"], "one row per kind of error"


def test_another_error_is_another_history_row() -> None:
    switch = Switch()
    driver = Driver(inline("W", switch.execute)).start()
    driver.advance(1)
    switch.error = RuntimeError("something else")
    driver.advance(1)
    assert [row.detail for row in driver.store.history] == ["RuntimeError: broken", "RuntimeError: something else"]


def test_skip_timer_tries_pure_code_again_now() -> None:
    switch = Switch()
    driver = Driver(inline("W", switch.execute)).start()
    switch.is_broken = False
    assert driver.apply(SkipTimer(1)).output is True
    assert driver.log == ["repaired"]


def test_an_inline_step_with_bounded_attempts_takes_its_failure_route() -> None:
    driver = Driver(inline("W", raising, options=attempts(2)), inline("Failed")).start()
    assert driver.log == []
    driver.advance(0.1)
    assert driver.log == ["Failed"]


def test_an_inline_step_without_a_route_fails_the_flow() -> None:
    options = StepOptions(retry=Retry(attempts=1))
    driver = Driver(inline("W", raising, options=options)).start()
    assert driver.header.status == "failed"
    assert driver.header.failure == "step W failed: RuntimeError: broken"


def test_consumed_messages_survive_the_retries_of_an_inline_step() -> None:
    switch = Switch()

    def execute(tx: Any, input: Any) -> Decision:
        switch.check()
        return end_with(",".join(tx.wait_result.received))(tx, input)

    driver = Driver(inline("W", execute, wait=lambda view, _: Wait.any_of(A.receive(2)))).start()
    driver.send("1", "2", "3")
    driver.advance(0.1)
    assert driver.waiting_messages(A) == ["3"]
    switch.is_broken = False
    driver.advance(1)
    assert driver.log == ["1,2"]


def test_a_step_that_raises_does_not_stop_its_neighbours() -> None:
    driver = Driver(spread("Good", "Bad", "Good"), inline("Good"), inline("Bad", raising)).start()
    assert driver.log == ["Good", "Good"]
    assert driver.open_types == ["Bad"]


def test_a_message_published_by_code_that_raised_wakes_nobody() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        tx.publish(A, "undone")
        raise RuntimeError("broken")

    driver = Driver(
        spread("Listener", "Bad"),
        inline("Listener", wait=lambda view, _: Wait.any_of(A.receive())),
        inline("Bad", execute),
    ).start()
    assert driver.open_types == ["Listener", "Bad"]
    driver.send("real")
    assert driver.log == ["Listener"]
    assert driver.waiting_messages(A) == []


def test_a_step_begun_by_code_that_raised_is_not_woken_later() -> None:
    switch = Switch()

    def execute(tx: Any, input: Any) -> Decision:
        tx.start_step("Listener")
        switch.check()
        return dead_end()

    driver = Driver(
        spread("Bad", "Publisher"),
        inline("Bad", execute),
        inline("Publisher", lambda tx, _: (tx.publish(A, "kept"), dead_end())[1]),
        inline("Listener", wait=lambda view, _: Wait.any_of(A.receive())),
    ).start()
    assert driver.open_types == ["Bad"]
    assert driver.waiting_messages(A) == ["kept"]
    switch.is_broken = False
    driver.advance(0.1)
    assert driver.log == ["Listener"]


def test_the_error_is_cleared_once_the_attempt_begins() -> None:
    switch = Switch()

    def before_run(tx: Any, input: Any) -> Proceed:
        switch.check()
        return Proceed()

    driver = Driver(
        activity("W", before_run=before_run, options=StepOptions(retry=Retry(backoff=timedelta(0))))
    ).start()
    assert driver.claims() == []
    switch.is_broken = False
    driver.advance(1)
    driver.claim()
    assert driver.step("W").error is None
    assert driver.step("W").failures == 0


def test_writes_of_earlier_code_of_the_command_stay_when_later_code_raises() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        tx.set(TEXT, "from the first")
        note(tx, "first")
        return go_to("Second")

    def second(tx: Any, input: Any) -> Decision:
        tx.set(TEXT, "from the second")
        tx.delete_instance(NUMBERS, "k")
        raise RuntimeError("broken")

    driver = Driver(inline("First", execute), inline("Second", second)).start()
    assert driver.get(TEXT) == "from the first"
    assert driver.log == ["first"]


# What is no Exception


class OutOfPatience(BaseException):
    """Like the outcome exceptions of test tools."""


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError(), OutOfPatience("now")])
@pytest.mark.parametrize("piece", ["wait_for", "execute", "before_run", "commit", "on_attempt_failed"])
def test_what_is_no_exception_fails_its_piece_alone(piece: str, error: BaseException) -> None:
    def check(name: str, result: Any) -> Any:
        if name == piece:
            raise error
        return result

    inline_step = inline(
        "Inline",
        lambda tx, _: check("execute", dead_end()),
        wait=lambda view, _: check("wait_for", Wait.nothing),
    )
    activity_step = activity(
        "Work",
        lambda tx, _, outcome: check("commit", dead_end()),
        before_run=lambda tx, _: check("before_run", Proceed()),
        on_attempt_failed=lambda tx, _, failure: check("on_attempt_failed", None),
    )
    driver = Driver(spread("Inline", "Work", "Other"), inline_step, activity_step, inline("Other")).start()
    for claim in driver.claims():
        if piece == "on_attempt_failed":
            driver.fail(claim)
        else:
            driver.succeed(claim)
    assert driver.log == ["Other"]
    (step,) = driver.header.steps.values()
    assert step.status == "backoff"
    assert step.error is not None
    assert type(error).__name__ in step.error


def test_a_keyboard_interrupt_ends_the_command_and_changes_nothing() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        note(tx, "half")
        raise KeyboardInterrupt

    def wait(view: Any, input: Any) -> Wait:
        raise KeyboardInterrupt

    driver = Driver(inline("Start"), inline("Work", execute), inline("Listen", wait=wait)).start()

    def start_step(name: str, tx: Any) -> None:
        tx.start_step(name)

    before = copy.deepcopy(vars(driver.store))
    for step_type in ("Work", "Listen"):
        with pytest.raises(KeyboardInterrupt):
            driver.call(partial(start_step, step_type))
        assert vars(driver.store) == before
