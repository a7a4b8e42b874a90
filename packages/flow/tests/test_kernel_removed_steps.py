"""A stored execution outlives the Steps and channels that its definition loses: only what needs them stands still."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dex_flow import Decision, Proceed, Retry, Step, StepOptions, Timer, UndeclaredNameError, Wait, dead_end, go_to
from dex_flow.kernel import AttemptsLost, AttemptSucceeded, OpenStep, SkipTimer, StopFlow

from .kernel_driver import SECOND, A, B, Driver, activity, attempts, inline, note, note_recovery, spread

REASON = "flow 'Test' no longer defines the step 'Old' as it was begun"
MINUTE = 60


def receive_and_note(tx: Any, input: Any) -> Decision:
    note(tx, f"Old received {tx.wait_result.received}")
    return dead_end()


def driver_with(old: Step[Any], *more: Step[Any]) -> Driver:
    """A started Flow with an open `Old` and a `Listen` that notes one message of B."""
    listen = inline("Listen", wait=lambda view, _: Wait.any_of(B.receive()))
    return Driver(spread("Old", "Listen"), old, listen, inline("Other"), *more).start()


def remove(driver: Driver) -> Step[Any]:
    return driver.flow.steps.pop("Old")


def put_back(driver: Driver, step: Step[Any]) -> None:
    driver.flow.steps["Old"] = step


def check_that_the_rest_works(driver: Driver) -> None:
    """Reads, calls, messages, and other Steps; then that `Old` is still there."""
    before = len(driver.log)
    driver.send("news", to=B)
    driver.call(lambda tx: tx.start_step("Other"))
    assert driver.log[before:] == ["Listen", "Other"]
    driver.advance(1, slots=5)
    assert driver.open_types == ["Old"]


def check_held(driver: Driver) -> OpenStep:
    step = driver.step("Old")
    assert step.status == "backoff"
    assert step.error is not None
    assert step.error.endswith(REASON)
    assert driver.store.has_ready is False
    assert driver.store.next_due == step.due
    return step


def test_a_removed_step_that_waits_keeps_waiting_and_is_held_when_its_wait_ends() -> None:
    driver = driver_with(inline("Old", receive_and_note, wait=lambda view, _: Wait.any_of(A.receive())))
    old = remove(driver)
    check_that_the_rest_works(driver)
    assert driver.step("Old").status == "waiting"
    driver.send("for old", "for others")
    assert driver.waiting_messages(A) == ["for others"], "the wait has ended as it would have"
    check_held(driver)

    put_back(driver, old)
    driver.advance(MINUTE)
    assert driver.log[-1] == "Old received ('for old',)"
    assert driver.open_types == []


def test_a_timer_of_a_removed_step_ends_its_wait() -> None:
    def wait(view: Any, input: Any) -> Wait:
        return Wait.any_of(A.receive(), Timer(view.now + timedelta(seconds=10)))

    driver = driver_with(inline("Old", receive_and_note, wait=wait))
    old = remove(driver)
    driver.advance(11)
    driver.send("too late")
    check_held(driver)
    check_that_the_rest_works(driver)
    put_back(driver, old)
    assert driver.apply(SkipTimer(driver.step("Old").id)).output is True
    assert driver.log[-1] == "Old received ()"


def test_a_removed_step_that_is_ready_is_held_and_not_offered_to_workers() -> None:
    driver = driver_with(activity("Old"))
    assert driver.store.has_ready is True
    old = remove(driver)
    assert driver.claims() == []
    check_held(driver)
    assert driver.history[-1] == ("Old", "definition", 0, "held")
    check_that_the_rest_works(driver)

    put_back(driver, old)
    driver.advance(MINUTE)
    assert driver.claim().attempt == 1


def test_a_held_step_looks_again_every_minute_and_says_so_once() -> None:
    driver = driver_with(activity("Old"))
    remove(driver)
    for _ in range(5):
        driver.advance(MINUTE)
        assert check_held(driver).due == driver.now + MINUTE * SECOND
    assert [outcome for *_, outcome in driver.history].count("held") == 1


def test_a_removed_repeatable_step_whose_worker_is_lost_is_tried_again_when_it_is_back() -> None:
    driver = driver_with(activity("Old"))
    driver.claim()
    old = remove(driver)
    check_that_the_rest_works(driver)
    driver.apply(AttemptsLost())
    assert check_held(driver).error == f"WorkerLost: the worker process ended during the attempt; {REASON}"
    put_back(driver, old)
    driver.advance(MINUTE)
    assert driver.claim().attempt == 2


def test_a_removed_single_attempt_step_whose_worker_is_lost_is_never_run_again() -> None:
    driver = driver_with(activity("Old", options=attempts(1)), inline("Failed", note_recovery))
    driver.mark_started(driver.claim())
    old = remove(driver)
    driver.apply(AttemptsLost())
    check_held(driver)
    put_back(driver, old)
    driver.advance(MINUTE)
    assert driver.claims() == []
    assert driver.log == [f"None: WorkerLost: the worker process ended during the attempt; {REASON} (NOT_COMPLETED, 1)"]


def test_a_removed_single_attempt_step_that_was_only_claimed_runs_when_it_is_back() -> None:
    driver = driver_with(activity("Old", options=attempts(1)), inline("Failed", note_recovery))
    driver.claim()
    old = remove(driver)
    driver.apply(AttemptsLost())
    check_held(driver)
    put_back(driver, old)
    driver.advance(MINUTE)
    driver.succeed(driver.mark_started(driver.claim()), "done")
    assert driver.log == ["Old=done"]


def test_an_outcome_of_a_removed_step_is_kept_for_its_commit() -> None:
    driver = driver_with(activity("Old"))
    claim = driver.claim()
    old = remove(driver)
    driver.apply(AttemptSucceeded(claim.step_execution_id, claim.attempt, {"paid": 7}))
    assert check_held(driver).phase == "commit"
    check_that_the_rest_works(driver)
    put_back(driver, old)
    driver.advance(MINUTE)
    assert driver.log[-1] == "Old={'paid': 7}"


def test_a_failure_of_a_removed_step_is_kept_for_its_next_attempt() -> None:
    driver = driver_with(activity("Old"))
    claim = driver.claim()
    old = remove(driver)
    driver.fail(claim)
    assert check_held(driver).error == f"OSError: unreachable; {REASON}"
    put_back(driver, old)
    driver.advance(MINUTE)
    assert driver.claim().attempt == 2


@pytest.mark.parametrize("piece", ["wait_for", "before_run", "commit", "execute"])
def test_a_removed_step_in_backoff_goes_on_where_it_was(piece: str) -> None:
    is_broken = True

    def check(name: str) -> None:
        if is_broken and name == piece:
            raise RuntimeError("broken")

    def wait(view: Any, input: Any) -> Wait:
        check("wait_for")
        return Wait.nothing

    def execute(tx: Any, input: Any) -> Decision:
        check("execute")
        note(tx, "Old=done")
        return dead_end()

    def begin(tx: Any, input: Any) -> Any:
        check("before_run")
        return Proceed()

    def commit(tx: Any, input: Any, outcome: Any) -> Decision:
        check("commit")
        note(tx, f"Old={outcome}")
        return dead_end()

    if piece == "execute":
        driver = driver_with(inline("Old", execute, wait=wait))
    else:
        driver = driver_with(activity("Old", commit, wait=wait, before_run=begin))
        for claim in driver.claims():
            driver.succeed(claim, "done")
    assert driver.step("Old").error == "RuntimeError: broken"
    old = remove(driver)
    driver.advance(10)
    check_held(driver)
    check_that_the_rest_works(driver)

    is_broken = False
    put_back(driver, old)
    driver.advance(MINUTE)
    for claim in driver.claims():
        driver.succeed(claim, "done")
    assert driver.log[-1] == "Old=done"


def test_a_removed_failure_route_is_held_with_what_it_is_for() -> None:
    options = StepOptions(retry=Retry(attempts=1), failure_route="Old")
    driver = Driver(
        spread("Work", "Listen"),
        activity("Work", options=options),
        inline("Old", note_recovery),
        inline("Listen", wait=lambda view, _: Wait.any_of(B.receive())),
        inline("Other"),
    ).start()
    started = driver.mark_started(driver.claim())
    old = remove(driver)
    driver.fail(started)
    check_held(driver)
    check_that_the_rest_works(driver)
    put_back(driver, old)
    driver.advance(MINUTE)
    assert driver.log[-1] == "None: OSError: unreachable (NOT_COMPLETED, 1)"


@pytest.mark.parametrize("selector", ["Old", 2])
def test_a_removed_step_can_be_cancelled(selector: Any) -> None:
    driver = driver_with(activity("Old"))
    assert driver.step("Old").id == 2
    driver.claim()
    remove(driver)
    assert driver.call(lambda tx: tx.cancel_steps(selector)) == 1
    assert driver.open_types == ["Listen"]
    with pytest.raises(UndeclaredNameError, match="no step 'Old'"):
        driver.call(lambda tx: tx.cancel_steps("Old"))


def test_no_step_can_go_to_a_removed_one() -> None:
    driver = driver_with(activity("Old"), inline("Next", lambda tx, _: go_to("Old")))
    remove(driver)
    driver.call(lambda tx: tx.start_step("Next"))
    assert driver.step("Next").error == "UndeclaredNameError: flow 'Test' has no step 'Old'"


def test_a_flow_with_a_removed_step_can_be_stopped() -> None:
    driver = driver_with(activity("Old"))
    driver.claim()
    remove(driver)
    driver.apply(StopFlow("enough"))
    assert driver.header.status == "stopped"


def test_an_activity_step_that_became_an_inline_step_is_not_taken_for_one() -> None:
    driver = driver_with(activity("Old"))
    claim = driver.claim()
    put_back(driver, inline("Old", lambda tx, _: note(tx, "now inline") or dead_end()))  # type: ignore[func-returns-value]
    driver.succeed(claim, "done")
    assert check_held(driver).phase == "commit"
    check_that_the_rest_works(driver)


def test_a_wait_on_a_removed_channel_holds_nothing_else_up() -> None:
    def wait(view: Any, input: Any) -> Wait:
        return Wait.any_of(A.receive(), Timer(view.now + timedelta(seconds=10)))

    driver = driver_with(inline("Old", receive_and_note, wait=wait))
    channel = driver.flow.declarations.pop("a")
    check_that_the_rest_works(driver)
    driver.advance(11)
    assert driver.log[-1] == "Old received ()"
    with pytest.raises(UndeclaredNameError, match="declares no 'a'"):
        driver.call(lambda tx: tx.count_messages(channel))
    with pytest.raises(UndeclaredNameError, match="declares no 'a'"):
        driver.call(lambda tx: tx.purge_messages(channel))
    with pytest.raises(UndeclaredNameError, match="declares no 'a'"):
        driver.call(lambda tx: tx.receive(channel))
