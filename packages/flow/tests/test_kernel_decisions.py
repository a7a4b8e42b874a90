from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dex_flow import (
    Decision,
    FlowClosedError,
    Retry,
    StepOptions,
    Timer,
    UnstorableValueError,
    Wait,
    complete,
    dead_end,
    fail,
    go_to,
    go_to_many,
    move,
)
from dex_flow.kernel import (
    AttemptDiscardedError,
    AttemptFailed,
    AttemptsLost,
    AttemptStarted,
    AttemptSucceeded,
    ClaimReady,
    FireTimers,
    SaveCheckpoint,
    SkipTimer,
    StopFlow,
)
from dex_flow.steps import AttemptFailure

from .kernel_driver import A, B, Driver, activity, attempts, end_with, inline, note, spread


def gate(step_type: str = "Gate", decision: Decision | None = None) -> Any:
    """A Step that waits for a message and then decides."""
    return inline(
        step_type,
        None if decision is None else lambda tx, _: decision,
        wait=lambda view, _: Wait.any_of(A.receive()),
    )


# Movements


def test_go_to_begins_one_step_with_its_input() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: go_to("Next", {"n": 1})),
        inline("Next", lambda tx, input: end_with(str(input))(tx, None)),
    )
    driver.start()
    assert driver.log == ["{'n': 1}"]


def test_go_to_many_begins_steps_in_order() -> None:
    def next_step(tx: Any, input: Any) -> Decision:
        note(tx, f"{tx.step_execution_id}:{input}")
        return dead_end()

    driver = Driver(
        inline("Start", lambda tx, _: go_to_many(move("Next", "a"), move("Next", "b"), move("Next", "c"))),
        inline("Next", next_step),
    ).start()
    assert driver.log == ["2:a", "3:b", "4:c"]


def test_a_dead_end_leaves_the_flow_open() -> None:
    driver = Driver(inline("Start")).start()
    assert driver.open_types == []
    assert driver.header.status == "open"


def test_a_step_may_be_named_by_its_class() -> None:
    next_step = inline("Next")
    driver = Driver(inline("Start", lambda tx, _: go_to(type(next_step))), next_step).start()
    assert driver.log == ["Next"]


@pytest.mark.parametrize(
    "decision", [go_to("Unknown"), go_to_many(move("Next"), move("Unknown")), dead_end().cancelling("Unknown")]
)
def test_an_unknown_target_is_refused_and_nothing_moves(decision: Decision) -> None:
    driver = Driver(spread("Bad", "Next"), inline("Bad", lambda tx, _: decision), inline("Next")).start()
    step = driver.step("Bad")
    assert step.status == "backoff"
    assert step.error == "UndeclaredNameError: flow 'Test' has no step 'Unknown'"
    assert driver.log == ["Next"]


@pytest.mark.parametrize("decision", [None, "Next", True])
def test_something_that_is_not_a_decision_is_refused(decision: Any) -> None:
    driver = Driver(inline("Bad", lambda tx, _: decision)).start()
    assert driver.step("Bad").error == f"TypeError: Bad must return a Decision, not {decision!r}"


def test_next_steps_are_enforced() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: go_to("Other"), next_steps=("Next",)), inline("Next"), inline("Other")
    ).start()
    assert driver.log == []
    assert driver.step("Start").error == (
        "UndeclaredNameError: step 'Start' moved to 'Other', which its next_steps do not name"
    )


def test_next_steps_allow_what_they_name() -> None:
    driver = Driver(
        activity("Start", lambda tx, _, outcome: go_to(outcome), next_steps=("Next",)), inline("Next")
    ).start()
    driver.succeed(driver.claim(), "Next")
    assert driver.log == ["Next"]


def test_an_input_that_is_not_of_the_steps_type_is_refused() -> None:
    driver = Driver(
        spread("Bad", "Worse"),
        inline("Bad", lambda tx, _: go_to("Typed", "seven")),
        inline("Worse", lambda tx, _: go_to("Typed")),
        inline("Typed", input_type=int),
    ).start()
    for step_type in ("Bad", "Worse"):
        error = driver.step(step_type).error
        assert error is not None
        assert error.startswith("UnstorableValueError: the input of step 'Typed' takes int, ")
        assert "Expected `int`" in error


def test_a_start_input_of_another_type_is_refused() -> None:
    driver = Driver(inline("Start", input_type=int))
    with pytest.raises(UnstorableValueError, match=r"the start input takes int, .*Expected `int`, got `str`"):
        driver.start("seven")
    assert driver.store.header_data is None


def test_a_thousand_inline_steps_run_in_one_command_and_the_next_is_parked() -> None:
    driver = Driver(inline("Loop", lambda tx, number: go_to("Loop", number + 1))).start(0)
    step = driver.step("Loop")
    assert (step.id, step.status, step.error) == (1_001, "backoff", None)
    assert driver.store.next_due is not None
    assert driver.store.next_due <= driver.now, "it goes on with the next command"

    driver.apply(FireTimers(), after=0)

    assert driver.step("Loop").id == 2_001


def test_a_parked_step_keeps_its_messages() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        tx.publish(A, f"{len(tx.wait_result.received)}")
        return go_to("Loop")

    driver = Driver(inline("Loop", execute, wait=lambda view, _: Wait.any_of(A.receive(), Timer(view.now)))).start()
    for _ in range(3):
        driver.apply(FireTimers(), after=0)
    assert len(driver.open_types) == 1
    assert len(driver.store.history) == 4_000


# Options of one execution


def test_options_of_a_movement_replace_those_of_the_step_type() -> None:
    options = StepOptions(
        attempt_timeout=timedelta(seconds=3),
        retry=Retry(attempts=1),
        failure_route="Failed",
        start_timeout=timedelta(days=40),
    )
    driver = Driver(
        inline("Start", lambda tx, _: go_to_many(move("Work", options=options), move("Work"))),
        activity("Work", options=attempts(5)),
        inline("Failed"),
    ).start()
    special, usual = driver.claims()
    assert special.options == options
    assert not special.is_started
    assert usual.options == attempts(5)
    assert usual.is_started
    driver.mark_started(special)
    driver.apply(AttemptsLost())
    assert driver.log == ["Failed"]
    assert [step.id for step in driver.header.steps.values()] == [3]


@pytest.mark.parametrize(
    ("route", "error"),
    [
        ("Unknown", "UndeclaredNameError: flow 'Test' has no step 'Unknown'"),
        ("Typed", "DefinitionError: step 'Work' is to route failures to 'Typed', which takes another input type"),
    ],
)
def test_options_of_a_movement_need_a_fitting_failure_route(route: str, error: str) -> None:
    driver = Driver(
        inline("Start", lambda tx, _: go_to("Work", options=StepOptions(failure_route=route))),
        activity("Work"),
        inline("Typed", input_type=int),
    ).start()
    assert driver.step("Start").error == error


def test_a_failure_route_uses_its_own_options() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: go_to("Work", options=attempts(1))), activity("Work"), activity("Failed")
    ).start()
    driver.fail(driver.mark_started(driver.claim()))
    assert driver.claim().options == StepOptions()


# Cancelling


def test_a_decision_cancels_other_executions_by_type_and_id() -> None:
    driver = Driver(
        spread("Work", "Work", "Other", "Gate"),
        activity("Work"),
        activity("Other"),
        inline("Gate", lambda tx, _: dead_end().cancelling("Work", 4), wait=lambda view, _: Wait.any_of(A.receive())),
    ).start()
    assert driver.open_types == ["Work", "Work", "Other", "Gate"]
    driver.send("go")
    assert driver.open_types == []
    assert driver.store.bodies == {}


def test_a_step_that_cancels_its_own_type_keeps_the_successor_it_begins() -> None:
    driver = Driver(
        spread("Loop", "Loop"),
        inline("Loop", lambda tx, _: go_to("Loop").cancelling("Loop"), wait=lambda view, _: Wait.any_of(A.receive())),
    ).start()
    driver.send("go")
    assert [step.id for step in driver.header.steps.values()] == [4]


def test_cancel_steps_leaves_the_caller() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        note(tx, str(tx.cancel_steps("Loop", "Other", tx.step_execution_id, 999)))
        return dead_end()

    driver = Driver(
        spread("Loop", "Loop", "Other"),
        inline("Loop", execute, wait=lambda view, _: Wait.any_of(A.receive())),
        activity("Other"),
    ).start()
    driver.send("go")
    assert driver.log == ["2"]
    assert driver.open_types == []


def test_a_cancelled_wait_takes_no_more_messages() -> None:
    driver = Driver(gate()).start()
    driver.call(lambda tx: (tx.cancel_steps("Gate"), tx.publish(A, "kept")))
    assert driver.log == []
    assert driver.waiting_messages(A) == ["kept"]


# The end of a Flow


@pytest.mark.parametrize(
    ("decision", "status", "result", "failure"),
    [
        (complete({"total": 7}), "completed", {"total": 7}, None),
        (complete(), "completed", None, None),
        (fail("no stock"), "failed", None, "no stock"),
    ],
)
def test_closing_the_flow_cancels_every_other_step(
    decision: Decision, status: str, result: Any, failure: str | None
) -> None:
    driver = Driver(
        spread("Work", "Once", "Gate"),
        activity("Work"),
        activity("Once", options=attempts(1)),
        inline("Failed"),
        gate("Gate", decision),
    ).start()
    running, claimed = driver.claims()
    driver.send("go")
    header = driver.header
    assert (header.status, header.failure) == (status, failure)
    assert header.result is None if status == "failed" else msgspec.json.decode(header.result or b"") == result
    assert header.steps == {}
    assert driver.store.bodies == {}
    assert not driver.store.has_ready
    assert driver.store.next_due is None
    assert ("Work", "run", 1, "cancelled") in driver.history
    for late in (AttemptSucceeded(running.step_execution_id, 1, "late"), AttemptStarted(claimed.step_execution_id, 1)):
        with pytest.raises(AttemptDiscardedError):
            driver.apply(late)


def test_what_a_closed_flow_answers() -> None:
    driver = Driver(gate()).start()
    driver.apply(StopFlow("enough"))
    with pytest.raises(FlowClosedError, match="stopped and accepts no further command"):
        driver.call(lambda tx: None)
    failure = AttemptFailure(error_type="E", message="m")
    for command in (
        AttemptSucceeded(1, 1, None),
        AttemptFailed(1, 1, failure),
        AttemptStarted(1, 1),
        SaveCheckpoint(1, 1, "t"),
    ):
        with pytest.raises(AttemptDiscardedError, match="stopped"):
            driver.apply(command)
    for quiet in (StopFlow("again"), SkipTimer(1), FireTimers(), ClaimReady(), AttemptsLost()):
        assert driver.apply(quiet) == (None, False)
    assert driver.header.failure == "enough"


def test_stop_cancels_every_step_and_keeps_messages_and_attributes_readable() -> None:
    driver = Driver(spread("Gate", "Work"), gate(), activity("Work")).start()
    driver.send("kept", to=B)
    driver.call(lambda tx: note(tx, "kept"))
    assert driver.apply(StopFlow("by the \ud800 operator")).output is True
    assert driver.header.status == "stopped"
    assert driver.header.failure == "by the \ufffd operator"
    assert driver.waiting_messages(B) == ["kept"]
    assert driver.log == ["kept"]


def test_a_step_that_ends_the_flow_runs_no_successor() -> None:
    driver = Driver(spread("End", "After"), inline("End", lambda tx, _: complete()), inline("After")).start()
    assert driver.log == []
    assert driver.history == [("Start", "execute", 1, "succeeded"), ("End", "execute", 1, "succeeded")]
