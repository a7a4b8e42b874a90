from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dex_flow import (
    AttemptFailure,
    Decision,
    Proceed,
    Retry,
    StepOptions,
    Wait,
    dead_end,
    go_to,
)
from dex_flow.kernel import (
    AttemptDiscardedError,
    AttemptsLost,
    SaveCheckpoint,
    SkipTimer,
    microseconds,
)

from .kernel_driver import SECOND, A, B, Driver, activity, attempts, failing, inline, note, note_recovery, spread


def test_a_failed_attempt_is_tried_again_after_its_backoff() -> None:
    driver = failing(attempts(3, backoff=timedelta(seconds=1)))
    driver.fail(driver.claim())
    step = driver.step("Work")
    assert (step.status, step.attempt, step.error) == ("backoff", 1, "OSError: unreachable")
    assert driver.store.next_due == driver.now + 1 * SECOND
    assert driver.claims() == []

    driver.advance(1)

    assert driver.claim().attempt == 2


def test_backoff_doubles_up_to_its_cap() -> None:
    driver = failing(attempts(None, backoff=timedelta(seconds=1), backoff_cap=timedelta(seconds=5)))
    delays = []
    for _ in range(5):
        driver.fail(driver.claim())
        assert driver.store.next_due is not None
        delays.append((driver.store.next_due - driver.now) / SECOND)
        driver.advance(delays[-1])
    assert delays == [1, 2, 4, 5, 5]


def test_retry_after_lengthens_a_backoff_but_never_shortens_it() -> None:
    driver = failing(attempts(None, backoff=timedelta(seconds=1)))
    driver.fail(driver.claim(), retry_after_seconds=30.0)
    assert driver.store.next_due == driver.now + 30 * SECOND
    driver.advance(30)
    driver.fail(driver.claim(), retry_after_seconds=0.5)
    assert driver.store.next_due == driver.now + 2 * SECOND


@pytest.mark.parametrize("retry_after", [1e300, float("inf"), float("nan")])
def test_an_absurd_retry_after_is_survived(retry_after: float) -> None:
    driver = failing(attempts(None))
    driver.fail(driver.claim(), retry_after_seconds=retry_after)
    assert driver.step("Work").status == "backoff"
    assert driver.apply(SkipTimer(1), slots=1).output is True
    assert driver.step("Work").attempt == 2


def test_skip_timer_ends_a_backoff() -> None:
    driver = failing(attempts(3, backoff=timedelta(seconds=5)))
    driver.fail(driver.claim())
    assert driver.apply(SkipTimer(1)).output is True
    assert driver.claim().attempt == 2


def test_attempts_are_bounded() -> None:
    driver = failing(attempts(2, backoff=timedelta(0)))
    driver.fail(driver.claim())
    driver.fail(driver.claim(), message="still unreachable")
    assert driver.log == ["order 7: OSError: still unreachable (NOT_COMPLETED, 2)"]
    assert driver.history == [
        ("Work", "run", 1, "failed"),
        ("Work", "run", 2, "failed"),
        ("Failed", "execute", 1, "succeeded"),
    ]


def test_a_failure_that_is_not_retryable_ends_the_step_at_once() -> None:
    driver = failing(attempts(None))
    driver.fail(driver.claim(), is_retryable=False)
    assert driver.log == ["order 7: OSError: unreachable (NOT_COMPLETED, 1)"]


def test_without_a_failure_route_the_flow_fails() -> None:
    driver = Driver(spread("Work", "Work"), activity("Work", options=StepOptions(retry=Retry(attempts=2)))).start()
    first, _ = driver.claims()
    changes = driver.fail(first, is_retryable=False)
    assert driver.header.status == "failed"
    assert driver.header.failure == "step Work failed: OSError: unreachable"
    assert changes.cancelled == [(3, 1)]


def test_the_window_runs_from_the_start_of_the_first_attempt() -> None:
    options = attempts(
        None, window=timedelta(seconds=10), backoff=timedelta(seconds=3), backoff_cap=timedelta(seconds=3)
    )
    driver = failing(options)
    driver.advance(3_600)  # ready, but no worker: not part of the window
    driver.fail(driver.claim(), after=5.0)
    driver.advance(3)
    assert driver.log == [], "8 s after the first start"

    driver.fail(driver.claim(), message="late")

    assert driver.log == ["order 7: OSError: late (NOT_COMPLETED, 2)"], "the next would begin after 11 s"


def test_an_attempt_may_begin_exactly_at_the_end_of_the_window() -> None:
    driver = failing(attempts(None, window=timedelta(seconds=10), backoff=timedelta(seconds=4)))
    driver.fail(driver.claim(), after=6.0)
    assert driver.step("Work").status == "backoff"
    driver.now += 4 * SECOND - 1_000
    assert driver.claim().attempt == 2


def test_no_attempt_begins_after_the_window_when_workers_were_away() -> None:
    driver = failing(attempts(None, window=timedelta(seconds=10)))
    driver.fail(driver.claim())
    driver.advance(1)
    assert driver.step("Work").status == "ready"

    driver.advance(60, slots=1)

    assert driver.log == ["order 7: OSError: unreachable (NOT_COMPLETED, 1)"]


def test_on_attempt_failed_learns_what_follows() -> None:
    seen: list[AttemptFailure] = []
    driver = failing(
        attempts(2, backoff=timedelta(seconds=1)), on_attempt_failed=lambda tx, input, failure: seen.append(failure)
    )
    driver.fail(driver.claim())
    (failure,) = seen
    assert (failure.attempt, failure.error_type) == (1, "OSError")
    assert failure.next_attempt_at is not None
    assert microseconds(failure.next_attempt_at) == driver.now + SECOND

    driver.advance(1)
    driver.fail(driver.claim())
    assert len(seen) == 1, "no retry follows the last attempt"


def test_on_attempt_failed_writes_in_the_same_commit() -> None:
    driver = failing(
        attempts(2), on_attempt_failed=lambda tx, input, failure: note(tx, f"{input} attempt {tx.attempt}")
    )
    driver.fail(driver.claim())
    assert driver.log == ["order 7 attempt 1"]


def test_a_checkpoint_reaches_the_next_attempt() -> None:
    driver = failing(attempts(3, backoff=timedelta(0)))
    claim = driver.claim()
    driver.apply(SaveCheckpoint(claim.step_execution_id, claim.attempt, "page 3"))
    driver.fail(claim)
    again = driver.claim()
    assert (again.attempt, again.checkpoint) == (2, "page 3")
    with pytest.raises(AttemptDiscardedError):
        driver.apply(SaveCheckpoint(claim.step_execution_id, claim.attempt, "late"))


def test_a_checkpoint_that_cannot_be_stored_changes_nothing() -> None:
    driver = failing(attempts(3))
    claim = driver.claim()
    before = driver.store.header_data, dict(driver.store.bodies)
    with pytest.raises(UnicodeEncodeError):
        driver.apply(SaveCheckpoint(claim.step_execution_id, claim.attempt, "\ud800"))
    assert (driver.store.header_data, driver.store.bodies) == before


def test_consumed_messages_survive_retries() -> None:
    seen: list[tuple[Any, ...]] = []

    def before_run(tx: Any, input: Any) -> Proceed:
        seen.append(tx.wait_result.received)
        return Proceed()

    def commit(tx: Any, input: Any, outcome: Any) -> Decision:
        seen.append(tx.wait_result.received)
        return dead_end()

    driver = Driver(
        activity(
            "Work",
            commit,
            wait=lambda view, _: Wait.any_of(B.receive(), A.receive(2)),
            before_run=before_run,
            options=StepOptions(retry=Retry(backoff=timedelta(0))),
        )
    ).start()
    driver.send("1", "2", "3")
    driver.fail(driver.claim())
    driver.claim()
    driver.apply(AttemptsLost())
    driver.succeed(driver.claim())
    assert seen == [("1", "2")] * 4
    assert driver.waiting_messages(A) == ["3"]
    assert driver.store.bodies == {}


# InlineSteps


def failing_inline(**retry: Any) -> Driver:
    """A started Flow whose InlineStep `Work` always raises, and routes its failure to a Step that notes it."""

    def execute(tx: Any, input: Any) -> Decision:
        raise OSError(f"attempt {tx.attempt}")

    options = StepOptions(retry=Retry(**retry), failure_route="Failed")
    return Driver(inline("Work", execute, options=options), inline("Failed", note_recovery)).start("order 7")


def test_an_inline_step_is_tried_again_inside_its_window_only() -> None:
    driver = failing_inline(window=timedelta(seconds=4), backoff=timedelta(seconds=1))
    driver.advance(1)
    assert driver.step("Work").attempt == 2
    driver.advance(2)
    assert driver.log == ["order 7: OSError: attempt 3 (NOT_COMPLETED, 3)"], "the fourth would begin after 7 s"
    assert driver.history == [("Work", "execute", attempt, "failed") for attempt in (1, 2, 3)] + [
        ("Failed", "execute", 1, "succeeded")
    ]


def test_an_inline_step_whose_next_attempt_comes_too_late_is_not_tried() -> None:
    driver = failing_inline(window=timedelta(seconds=4), backoff=timedelta(seconds=1))
    driver.advance(60)
    assert driver.log == ["order 7: OSError: attempt 1 (NOT_COMPLETED, 1)"]


def test_the_window_of_an_inline_step_begins_with_its_first_attempt() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        raise OSError("unreachable")

    driver = Driver(
        inline(
            "Work",
            execute,
            wait=lambda view, _: Wait.any_of(A.receive()),
            options=StepOptions(retry=Retry(window=timedelta(seconds=4)), failure_route="Failed"),
        ),
        inline("Failed", note_recovery),
    ).start("order 7")
    driver.advance(3_600)
    driver.send("go")
    assert (driver.step("Work").status, driver.log) == ("backoff", [])


def test_an_inline_step_keeps_its_own_backoff() -> None:
    driver = failing_inline(backoff=timedelta(seconds=7), backoff_cap=timedelta(seconds=20))
    delays = []
    for _ in range(4):
        assert driver.store.next_due is not None
        delays.append((driver.store.next_due - driver.now) / SECOND)
        driver.advance(delays[-1])
    assert delays == [7, 14, 20, 20]


@pytest.mark.parametrize("option", ["attempt_timeout", "heartbeat_timeout", "start_timeout"])
def test_a_movement_cannot_give_an_inline_step_an_option_it_could_not_keep(option: str) -> None:
    options = StepOptions(**{option: timedelta(seconds=1)})  # type: ignore[arg-type]
    driver = Driver(inline("Start", lambda tx, _: go_to("Next", options=options)), inline("Next")).start()
    assert driver.step("Start").error == (
        f"DefinitionError: step 'Next' is an InlineStep and can have no {option}; only an ActivityStep takes time"
    )


# History of failures


def kept_attempts(driver: Driver, method: str) -> list[int]:
    return [attempt for _, made, attempt, _ in driver.history if made == method]


FIRST, LAST = list(range(1, 11)), list(range(41, 51))


def test_of_many_failed_attempts_the_first_and_the_last_stay_in_the_history() -> None:
    driver = failing(attempts(None, backoff=timedelta(0)))
    for number in range(50):
        driver.fail(driver.claim(), message=f"try {number + 1}")
    assert kept_attempts(driver, "run") == FIRST + LAST
    assert [row.detail for row in driver.store.history][-1] == "OSError: try 50"
    assert driver.header.next_history == 51


def test_the_last_attempt_of_all_is_kept_beside_them() -> None:
    driver = failing(attempts(51, backoff=timedelta(0)))
    for _ in range(51):
        driver.fail(driver.claim())
    assert kept_attempts(driver, "run") == [*FIRST, *LAST, 51]


def test_errors_of_pure_code_that_differ_each_time_are_bounded_too() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        raise RuntimeError(f"at {tx.now}")

    driver = Driver(inline("Work", execute), inline("Other")).start()
    for _ in range(49):
        driver.advance(5)
    assert kept_attempts(driver, "execute") == FIRST + LAST


def test_errors_of_commit_that_differ_each_time_are_bounded_too() -> None:
    def commit(tx: Any, input: Any, outcome: Any) -> Decision:
        raise RuntimeError(f"at {tx.now}")

    driver = Driver(activity("Work", commit)).start()
    driver.succeed(driver.claim())
    for _ in range(49):
        driver.advance(5)
    numbers = [row.number for row in driver.store.history]
    assert numbers == FIRST + LAST


def test_failures_of_several_steps_are_counted_apart() -> None:
    driver = Driver(
        spread("Work", "More"),
        activity("Work", options=attempts(None, backoff=timedelta(0))),
        activity("More", options=attempts(None, backoff=timedelta(0))),
        inline("Failed"),
    ).start()
    for _ in range(15):
        for claim in driver.claims():
            driver.fail(claim)
    assert len(driver.history) == 1 + 30


def test_lost_attempts_are_bounded_too() -> None:
    driver = failing(attempts(None))
    for _ in range(50):
        driver.claim()
        driver.apply(AttemptsLost())
    assert kept_attempts(driver, "run") == FIRST + LAST
