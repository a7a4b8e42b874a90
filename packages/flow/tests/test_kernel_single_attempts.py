from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dex_flow import (
    Proceed,
    Retry,
    StepOptions,
)
from dex_flow.kernel import (
    AttemptDiscardedError,
    AttemptsLost,
    AttemptStarted,
)

from .kernel_driver import SECOND, Driver, activity, attempts, failing, inline, note_recovery, spread


def test_a_single_attempt_step_is_claimed_before_it_is_started() -> None:
    begun: list[int] = []

    def before_run(tx: Any, input: Any) -> Proceed:
        begun.append(tx.attempt)
        return Proceed()

    driver = failing(attempts(1), before_run=before_run)
    claim = driver.claim()
    assert not claim.is_started
    assert driver.step("Work").status == "claimed"
    assert begun == []

    started = driver.mark_started(claim)

    assert started.is_started
    assert started.attempt == claim.attempt == 1
    assert begun == [1]
    assert driver.step("Work").status == "running"
    driver.succeed(started, "done")
    assert driver.log == ["Work=done"]


def test_a_started_marker_is_accepted_once() -> None:
    driver = failing(attempts(1))
    claim = driver.claim()
    driver.mark_started(claim)
    with pytest.raises(AttemptDiscardedError):
        driver.mark_started(claim)
    with pytest.raises(AttemptDiscardedError):
        driver.apply(AttemptStarted(99, 1))


def test_a_claimed_attempt_that_was_cancelled_may_not_start() -> None:
    driver = failing(attempts(1))
    claim = driver.claim()
    driver.call(lambda tx: tx.cancel_steps("Work"))
    with pytest.raises(AttemptDiscardedError):
        driver.mark_started(claim)
    assert driver.history == [], "nothing ran"


def test_a_lost_claim_goes_back_to_ready() -> None:
    driver = failing(attempts(1))
    driver.claim()
    driver.apply(AttemptsLost())
    assert driver.step("Work").status == "ready"
    assert driver.log == []
    again = driver.claim()
    assert again.attempt == 1, "the first attempt never began"


def test_a_lost_single_attempt_takes_the_failure_route() -> None:
    driver = failing(attempts(1))
    driver.mark_started(driver.claim())
    driver.apply(AttemptsLost("the worker process was killed"))
    assert driver.log == ["order 7: WorkerLost: the worker process was killed (NOT_COMPLETED, 1)"]
    assert driver.history[0] == ("Work", "run", 1, "lost")


def test_a_lost_repeatable_attempt_is_followed_by_the_next_at_once() -> None:
    driver = failing(attempts(3, backoff=timedelta(seconds=5)))
    first = driver.claim()
    changes = driver.apply(AttemptsLost(), slots=1).changes
    assert changes is not None
    assert [(claim.step_execution_id, claim.attempt) for claim in changes.claimed] == [(first.step_execution_id, 2)]


def test_lost_attempts_count() -> None:
    driver = failing(attempts(2))
    driver.claim()
    driver.apply(AttemptsLost(), slots=1)
    driver.apply(AttemptsLost(), slots=1)
    assert driver.log == ["order 7: WorkerLost: the worker process ended during the attempt (NOT_COMPLETED, 2)"]


def test_all_steps_of_a_lost_worker_are_lost_in_one_command() -> None:
    driver = Driver(
        spread("Work", "Work", "Once"),
        activity("Work", options=attempts(5)),
        activity("Once", options=attempts(1)),
        inline("Failed", note_recovery),
    ).start()
    driver.mark_started(driver.claims()[-1])
    driver.apply(AttemptsLost())
    assert [step.status for step in driver.header.steps.values()] == ["ready", "ready"]
    assert driver.log == ["None: WorkerLost: the worker process ended during the attempt (NOT_COMPLETED, 1)"]


def test_a_loss_that_fails_the_flow_ends_the_other_lost_steps_with_it() -> None:
    driver = Driver(
        spread("Work", "Work", "Work"), activity("Work", options=StepOptions(retry=Retry(attempts=1)))
    ).start()
    for claim in driver.claims():
        driver.mark_started(claim)
    driver.apply(AttemptsLost())
    assert driver.header.status == "failed"
    assert [outcome for _, _, _, outcome in driver.history] == ["succeeded", "lost", "cancelled", "cancelled"]


def test_a_loss_whose_retry_code_cancels_another_lost_step() -> None:
    driver = Driver(
        spread("First", "First"),
        activity("First", on_attempt_failed=lambda tx, input, failure: tx.cancel_steps("First") and None),
    ).start()
    assert len(driver.claims()) == 2
    driver.apply(AttemptsLost())
    assert driver.open_types == ["First"]


def test_a_start_timeout_is_the_only_source_of_not_started() -> None:
    driver = failing(StepOptions(start_timeout=timedelta(seconds=30), failure_route="Failed"))
    assert driver.store.next_due == driver.now + 30 * SECOND
    driver.advance(29)
    assert driver.log == []

    driver.advance(1)

    assert driver.log == ["order 7: StartTimeout: no worker started the step within its start timeout (NOT_STARTED, 0)"]


def test_a_started_step_has_no_start_timeout_any_more() -> None:
    driver = failing(StepOptions(start_timeout=timedelta(seconds=30), failure_route="Failed"))
    driver.claim()
    assert driver.store.next_due is None
    driver.apply(AttemptsLost())
    driver.advance(60)
    assert driver.step("Work").status == "ready"


def test_a_claimed_step_that_was_never_started_has_its_start_timeout_again() -> None:
    driver = failing(StepOptions(start_timeout=timedelta(seconds=30), retry=Retry(attempts=1), failure_route="Failed"))
    driver.claim()
    driver.advance(60)
    driver.apply(AttemptsLost())
    driver.advance(30)
    assert driver.log[0].endswith("(NOT_STARTED, 0)")


def test_without_a_route_a_start_timeout_fails_the_flow() -> None:
    driver = Driver(activity("Work", options=StepOptions(start_timeout=timedelta(seconds=1)))).start()
    driver.advance(1)
    assert driver.header.status == "failed"
