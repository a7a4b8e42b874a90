from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dex_flow import (
    AttemptFailure,
    Proceed,
    Retry,
    StepOptions,
    dead_end,
    go_to,
)
from dex_flow.codec import encode
from dex_flow.kernel import (
    AttemptDiscardedError,
    AttemptFailed,
    AttemptsLost,
    AttemptStarted,
    AttemptSucceeded,
    StepBody,
    StopFlow,
)

from .kernel_driver import A, Driver, activity, attempts, failing, inline, note, note_recovery, spread


def test_a_ready_step_waits_for_a_worker_as_long_as_it_takes() -> None:
    driver = Driver(activity("Work")).start()
    assert driver.store.has_ready
    assert driver.store.next_due is None

    driver.advance(365 * 24 * 3600)

    assert driver.step("Work").status == "ready"


def test_a_claim_carries_what_the_worker_needs() -> None:
    driver = failing(attempts(3))
    claim = driver.claim()
    assert claim.step_type == "Work"
    assert claim.attempt == 1
    assert claim.is_started
    assert claim.started_at == driver.now
    assert claim.checkpoint is None
    assert msgspec.json.decode(claim.input) == "order 7"
    assert claim.options == attempts(3)
    assert driver.step("Work").status == "running"
    assert not driver.store.has_ready


def test_the_outcome_reaches_commit_with_the_input() -> None:
    driver = Driver(
        activity("Work", lambda tx, input, outcome: go_to("Next", f"{input}->{outcome}")),
        inline("Next", lambda tx, input: (tx.publish(A, input), dead_end())[1]),
    ).start("in")
    driver.succeed(driver.claim(), "out")
    assert driver.waiting_messages(A) == ["in->out"]
    assert driver.history == [("Work", "run", 1, "succeeded"), ("Next", "execute", 1, "succeeded")]


def test_a_commit_claims_its_successor_in_the_same_command() -> None:
    driver = Driver(activity("First", lambda tx, input, outcome: go_to("Second")), activity("Second")).start()
    claim = driver.claim()
    changes = driver.apply(AttemptSucceeded(claim.step_execution_id, 1, None), slots=1).changes
    assert changes is not None
    assert [claim.step_type for claim in changes.claimed] == ["Second"]
    assert not changes.has_ready


def test_slots_bound_the_claims_and_the_lowest_step_id_goes_first() -> None:
    driver = Driver(spread("Work", "Work", "Work"), activity("Work")).start()
    assert [claim.step_execution_id for claim in driver.claims(2)] == [2, 3]
    assert driver.store.has_ready
    assert [claim.step_execution_id for claim in driver.claims(5)] == [4]


def test_an_outcome_is_accepted_once() -> None:
    driver = Driver(activity("Work")).start()
    claim = driver.claim()
    driver.succeed(claim, "first")
    with pytest.raises(AttemptDiscardedError):
        driver.succeed(claim, "second")
    with pytest.raises(AttemptDiscardedError):
        driver.fail(claim)
    assert driver.log == ["Work=first"]


def test_the_outcome_of_an_earlier_attempt_is_discarded() -> None:
    driver = failing(attempts(3))
    first = driver.claim()
    driver.apply(AttemptsLost(), slots=1)
    with pytest.raises(AttemptDiscardedError):
        driver.succeed(first, "late")
    driver.succeed(first._replace(attempt=2), "second")
    assert driver.log == ["Work=second"]


def test_an_outcome_needs_a_started_attempt() -> None:
    driver = failing(attempts(1))
    claim = driver.claim()
    with pytest.raises(AttemptDiscardedError):
        driver.succeed(claim, "not started")


@pytest.mark.parametrize(
    "command", [AttemptSucceeded(1, 1, "late"), AttemptFailed(1, 1, AttemptFailure(error_type="E", message=""))]
)
def test_cancelling_beats_a_late_outcome(command: Any) -> None:
    driver = failing(attempts(3))
    driver.claim()
    result = driver.call(lambda tx: tx.cancel_steps("Work"))
    assert result == 1
    before = driver.store.header_data

    with pytest.raises(AttemptDiscardedError):
        driver.apply(command)

    assert driver.store.header_data == before
    assert driver.open_types == []
    assert driver.history == [("Work", "run", 1, "cancelled")]


def test_changes_name_cancelled_attempts_so_that_their_tasks_can_be_cancelled() -> None:
    driver = Driver(
        spread("Work", "Work", "Once"), activity("Work"), activity("Once", options=StepOptions(retry=Retry(attempts=1)))
    ).start()
    assert [(claim.step_execution_id, claim.attempt) for claim in driver.claims()] == [(2, 1), (3, 1), (4, 1)]

    changes = driver.apply(StopFlow("enough")).changes

    assert changes is not None
    assert changes.cancelled == [(2, 1), (3, 1), (4, 1)]
    assert [row for row in driver.history if row[3] == "cancelled"] == [("Work", "run", 1, "cancelled")] * 2


def test_before_run_may_decide_otherwise() -> None:
    driver = Driver(activity("Work", before_run=lambda tx, input: go_to("Instead", input)), inline("Instead"))
    driver.start("order 7")
    assert driver.step("Work").status == "ready"
    assert driver.claims() == []
    assert driver.log == ["Instead"]
    assert driver.history == [("Work", "run", 1, "skipped"), ("Instead", "execute", 1, "succeeded")]


def test_before_run_of_a_single_attempt_may_decide_otherwise() -> None:
    driver = failing(attempts(1), before_run=lambda tx, input: dead_end())
    claim = driver.claim()
    changes = driver.apply(AttemptStarted(claim.step_execution_id, 1)).changes
    assert changes is not None
    assert changes.claimed == []
    assert driver.open_types == []


def test_before_run_writes_with_the_started_attempt() -> None:
    def before_run(tx: Any, input: Any) -> Proceed:
        note(tx, f"begin {tx.attempt}")
        return Proceed()

    driver = failing(attempts(2, backoff=timedelta(0)), before_run=before_run)
    driver.fail(driver.claim())
    driver.claim()
    assert driver.log == ["begin 1", "begin 2"]


def test_a_claim_cancelled_by_a_later_before_run_of_the_command_is_not_handed_out() -> None:
    driver = Driver(
        spread("Work", "Second"),
        activity("Work"),
        activity("Second", before_run=lambda tx, _: (tx.cancel_steps("Work"), Proceed())[1]),
    ).start()
    assert [claim.step_type for claim in driver.claims()] == ["Second"]
    assert driver.open_types == ["Second"]


def test_a_before_run_that_never_runs_anything_does_not_hold_the_command() -> None:
    driver = Driver(activity("Loop", before_run=lambda tx, _: go_to("Loop"))).start()
    assert driver.claims() == []
    assert driver.store.has_ready, "the rest is for the next command"
    assert driver.header.next_step == 1_002


def test_a_failure_route_may_be_an_activity() -> None:
    driver = Driver(activity("Work", options=attempts(1)), activity("Failed", options=attempts(2))).start("in")
    started = driver.mark_started(driver.claim())
    driver.fail(started)
    claim = driver.claim()
    assert (claim.step_type, msgspec.json.decode(claim.input)) == ("Failed", "in")


def test_a_failure_route_that_cannot_read_the_input_backs_off_alone() -> None:
    driver = Driver(
        activity("Work", options=attempts(1), input_type=int), inline("Failed", note_recovery, input_type=int)
    ).start(7)
    claim = driver.mark_started(driver.claim())
    driver.store.bodies[1] = encode(StepBody(msgspec.Raw(b'"not a number"')))
    driver.fail(claim)
    step = driver.step("Failed")
    assert (step.status, step.phase) == ("backoff", "wait_for")
    assert step.error is not None
    assert step.error.startswith("ValidationError: Expected `int`")


def test_failure_texts_that_cannot_be_stored_are_repaired() -> None:
    driver = failing(attempts(2, backoff=timedelta(0)))
    driver.fail(driver.claim(), message="bad \ud800 text")
    assert driver.step("Work").error == "OSError: bad \ufffd text"
    driver.fail(driver.claim(), error_type="E\udc00", message="x" * 100_000)
    assert driver.log[0].startswith("order 7: E\ufffd: xxx")
    assert len(driver.log[0]) < 5_000


def test_load_reads_the_state_of_the_attempt() -> None:
    driver = failing(attempts(2), load=lambda view, input: (input, view.count_messages(A), view.flow_id))
    driver.send("1", "2")
    claim = driver.claim()
    snapshot = driver.kernel.load_snapshot(driver.store, "flow", driver.now, claim.step_type, claim.input)
    assert snapshot == ("order 7", 2, "flow")
