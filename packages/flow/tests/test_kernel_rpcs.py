from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dex_flow import (
    FlowAlreadyStartedError,
    FlowClosedError,
    FlowNotFoundError,
    RequestIdReusedError,
    Rpc,
    RpcResult,
    Timer,
    UndeclaredNameError,
    UnknownRpcError,
    UnstorableValueError,
    Wait,
    complete,
    dead_end,
    fail,
    go_to,
)
from dex_flow.kernel import AttemptsLost, InvokeRpc, StartFlow, StopFlow

from .kernel_driver import COUNT, EVENTS, SECOND, TEXT, A, B, Driver, activity, inline

HOUR = 3_600


def add(tx: Any, amount: int) -> int:
    total: int = (tx.get(COUNT) or 0) + amount
    tx.set(COUNT, total)
    return total


def send(tx: Any, text: str) -> None:
    tx.publish(A, text)


def read(view: Any, _: None) -> int | None:
    return view.get(COUNT)  # type: ignore[no-any-return]


ADD = Rpc("add", add, int, int)
SEND = Rpc("send", send, str, None)
READ = Rpc("read", read, None, int | None, read_only=True)


def open_flow() -> Driver:
    """A started Flow that stays open."""
    stay = inline("Stay", wait=lambda view, _: Wait.any_of(B.receive()))
    return Driver(stay, inline("Other"), activity("Work"), rpcs=[ADD, SEND, READ]).start()


def invoke(
    driver: Driver, rpc: Rpc[Any, Any], input: Any, request_id: str | None = None, *, after: float = 0.001
) -> Any:
    return driver.apply(InvokeRpc(rpc.name, msgspec.json.encode(input), request_id), after=after).output


# Calls


def test_an_rpc_returns_its_output_and_commits_its_writes() -> None:
    driver = open_flow()
    assert invoke(driver, ADD, 2) == 2
    assert invoke(driver, ADD, 3) == 5
    assert driver.get(COUNT) == 5


def test_an_rpc_may_do_everything_a_step_may() -> None:
    driver = open_flow()

    def code(tx: Any) -> Any:
        assert (tx.step_execution_id, tx.attempt, tx.recovery_error) == (0, 0, None)
        tx.publish(A, "message")
        tx.emit(EVENTS, "event")
        return tx.start_step("Work", "input"), tx.cancel_steps("Stay")

    assert driver.call(code) == (2, 1)
    assert driver.open_types == ["Work"]
    assert driver.waiting_messages(A) == ["message"]
    assert driver.store.events == {"events": [b'"event"']}


def test_an_rpc_claims_what_it_started_for_the_calling_worker() -> None:
    driver = open_flow()
    driver.slots = 1
    assert driver.call(lambda tx: tx.start_step("Work")) == 2
    assert driver.step("Work").status == "running"


@pytest.mark.parametrize(
    "raising",
    [
        lambda tx: 1 / 0,
        lambda tx: tx.start_step("Unknown"),
        lambda tx: tx.cancel_steps("Unknown"),
        lambda tx: RpcResult("output", go_to("Unknown")),
        lambda tx: RpcResult("output", None),  # type: ignore[arg-type]
        lambda tx: tx.set(TEXT, "\ud800"),
        lambda tx: RpcResult(tx.set(TEXT, "\ud800"), complete("done")),
    ],
)
def test_an_rpc_that_raises_changes_nothing(raising: Any) -> None:
    driver = open_flow()
    before = copy.deepcopy(vars(driver.store))

    def code(tx: Any) -> Any:
        tx.set(COUNT, 99)
        tx.publish(B, "wakes the Step")
        tx.emit(EVENTS, "event")
        return raising(tx)

    with pytest.raises((ZeroDivisionError, UndeclaredNameError, TypeError, ValueError)):
        driver.call(code, request_id="r1")
    assert vars(driver.store) == before

    assert driver.call(lambda tx: "fine", request_id="r1") == "fine", "exceptions are not remembered"


def test_an_unknown_rpc_is_refused() -> None:
    with pytest.raises(UnknownRpcError, match="'nope'"):
        open_flow().apply(InvokeRpc("nope", b"null"))


def test_an_rpc_input_of_another_type_is_refused() -> None:
    with pytest.raises(UnstorableValueError, match=r"the input of RPC 'add' takes int, .*Expected `int`, got `str`"):
        invoke(open_flow(), ADD, "two")


@pytest.mark.parametrize(("output", "got"), [("two", "str"), (None, "null"), (2.5, "float")])
@pytest.mark.parametrize("request_id", [None, "r1"])
def test_an_rpc_output_of_another_type_fails_the_call(output: Any, got: str, request_id: str | None) -> None:
    def answer(tx: Any, input: Any) -> Any:
        tx.set(COUNT, 9)
        return output

    driver = open_flow()
    driver.flow.rpcs["answer"] = wrong = Rpc("answer", answer, None, int)
    with pytest.raises(UnstorableValueError, match=f"the output of RPC 'answer' takes int, .*got `{got}`"):
        invoke(driver, wrong, None, request_id)
    assert driver.get(COUNT) is None
    driver.flow.rpcs["peek"] = Rpc("peek", lambda view, _: output, None, int, read_only=True)
    with pytest.raises(UnstorableValueError, match=f"the output of RPC 'peek' takes int, .*got `{got}`"):
        driver.kernel.read_rpc(driver.store, "flow", driver.now, "peek", b"null")


def test_an_rpc_output_is_what_a_repeated_call_would_read() -> None:
    driver = open_flow()
    driver.flow.rpcs["answer"] = pair = Rpc[None, Any]("answer", lambda tx, _: {"left": (1, 2)}, None, Any)
    first = invoke(driver, pair, None, "r1")
    assert first == {"left": [1, 2]}
    assert invoke(driver, pair, None, "r1") == first


def test_an_rpc_needs_a_started_flow() -> None:
    driver = Driver(inline("Start"))
    with pytest.raises(FlowNotFoundError, match="'flow'"):
        driver.call(lambda tx: None)


def test_an_rpc_may_end_with_a_decision() -> None:
    driver = open_flow()
    assert driver.call(lambda tx: RpcResult("moved", go_to("Other").cancelling("Stay"))) == "moved"
    assert driver.log == ["Other"]
    assert driver.open_types == []


def test_a_decision_of_an_rpc_that_is_a_dead_end_changes_nothing() -> None:
    driver = open_flow()
    before = driver.store.header_data
    assert driver.call(lambda tx: RpcResult("same", dead_end())) == "same"
    assert driver.store.header_data == before


@pytest.mark.parametrize(("decision", "status"), [(complete({"total": 7}), "completed"), (fail("why"), "failed")])
def test_an_rpc_may_close_the_flow(decision: Any, status: str) -> None:
    driver = open_flow()
    assert driver.call(lambda tx: RpcResult("closed", decision)) == "closed"
    assert driver.header.status == status
    with pytest.raises(FlowClosedError, match=status):
        driver.call(lambda tx: None)


# Read-only


def test_a_read_only_rpc_reads_without_a_command() -> None:
    driver = open_flow()
    invoke(driver, ADD, 4)
    assert driver.kernel.read_rpc(driver.store, "flow", driver.now, "read", b"null") == 4


def test_a_read_only_rpc_answers_for_a_closed_flow() -> None:
    driver = open_flow()
    invoke(driver, ADD, 4)
    driver.apply(StopFlow("enough"))
    assert driver.kernel.read_rpc(driver.store, "flow", driver.now, "read", b"null") == 4


def test_read_only_and_mutating_calls_are_not_interchangeable() -> None:
    driver = open_flow()
    with pytest.raises(UnknownRpcError, match="is read-only"):
        invoke(driver, READ, None)
    with pytest.raises(UnknownRpcError, match="is not read-only"):
        driver.kernel.read_rpc(driver.store, "flow", driver.now, "add", b"1")


def test_a_read_only_rpc_cannot_write() -> None:
    driver = open_flow()
    driver.flow.rpcs["bad"] = Rpc("bad", lambda view, _: view.set(COUNT, 1), None, None, read_only=True)
    with pytest.raises(AttributeError, match="set"):
        driver.kernel.read_rpc(driver.store, "flow", driver.now, "bad", b"null")


def test_a_read_only_rpc_may_not_return_a_decision() -> None:
    driver = open_flow()
    driver.flow.rpcs["bad"] = Rpc("bad", lambda view, _: RpcResult(1, dead_end()), None, int, read_only=True)
    with pytest.raises(TypeError, match="read-only"):
        driver.kernel.read_rpc(driver.store, "flow", driver.now, "bad", b"null")


def test_a_read_only_rpc_needs_a_started_flow() -> None:
    driver = Driver(inline("Start"), rpcs=[READ])
    with pytest.raises(FlowNotFoundError):
        driver.kernel.read_rpc(driver.store, "flow", driver.now, "read", b"null")


# Request IDs


def test_a_repeated_request_returns_the_first_answer_and_changes_nothing() -> None:
    driver = open_flow()
    assert invoke(driver, ADD, 2, "r1") == 2
    before = copy.deepcopy(vars(driver.store))

    result = driver.apply(InvokeRpc("add", b"2", "r1"), after=23 * HOUR)

    assert (result.output, result.changes) == (2, None)
    assert vars(driver.store) == before


def test_a_repeated_request_without_an_output_is_not_applied_again() -> None:
    driver = open_flow()
    assert invoke(driver, SEND, "once", "r1") is None
    assert invoke(driver, SEND, "once", "r1") is None
    assert driver.waiting_messages(A) == ["once"]


def test_calls_without_a_request_id_are_separate() -> None:
    driver = open_flow()
    invoke(driver, SEND, "same")
    invoke(driver, SEND, "same")
    assert driver.waiting_messages(A) == ["same", "same"]


def test_a_request_that_changes_nothing_is_remembered_too() -> None:
    driver = open_flow()
    answers = iter(["first", "second"])
    assert driver.call(lambda tx: next(answers), request_id="r1") == "first"
    assert driver.call(lambda tx: next(answers), request_id="r1") == "first"


@pytest.mark.parametrize(
    "command",
    [InvokeRpc("add", b"3", "r1"), InvokeRpc("send", b'"2"', "r1"), StartFlow(b"2", "r1"), StartFlow(b"null", "r1")],
)
def test_a_request_id_of_another_request_is_refused(command: Any) -> None:
    driver = open_flow()
    invoke(driver, ADD, 2, "r1")
    with pytest.raises(RequestIdReusedError, match="'r1'"):
        driver.apply(command)
    assert driver.get(COUNT) == 2


def test_a_repeated_start_is_answered() -> None:
    driver = Driver(inline("Stay", wait=lambda view, _: Wait.any_of(B.receive())))
    first = driver.apply(StartFlow(b"1", "s1"))
    assert first.output is True

    repeated = driver.apply(StartFlow(b"1", "s1"))

    assert (repeated.output, repeated.changes) == (True, None)
    for other in (StartFlow(b"1", "s2"), StartFlow(b"1")):
        with pytest.raises(FlowAlreadyStartedError):
            driver.apply(other)
    with pytest.raises(RequestIdReusedError):
        driver.apply(StartFlow(b"2", "s1"))


def test_a_repeated_request_is_answered_after_the_flow_ended() -> None:
    driver = open_flow()
    invoke(driver, ADD, 2, "r1")
    driver.apply(StopFlow("enough"))
    assert invoke(driver, ADD, 2, "r1") == 2
    with pytest.raises(FlowClosedError):
        invoke(driver, ADD, 2, "r2")


def test_requests_are_kept_for_a_day_however_many_there_are() -> None:
    driver = open_flow()
    for number in range(1_100):
        invoke(driver, ADD, 1, f"r{number}")
    invoke(driver, ADD, 1, "last", after=23 * HOUR)
    assert len(driver.store.requests) == 1_101
    assert invoke(driver, ADD, 1, "r0") == 1


def test_the_newest_thousand_requests_are_kept_however_old_they_are() -> None:
    driver = open_flow()
    for number in range(999):
        invoke(driver, ADD, 1, f"r{number}")
    invoke(driver, ADD, 1, "last", after=1_000 * HOUR)
    assert len(driver.store.requests) == 1_000
    assert invoke(driver, ADD, 1, "r0") == 1


def test_older_requests_are_forgotten_step_by_step() -> None:
    driver = open_flow()
    for number in range(1_010):
        invoke(driver, ADD, 1, f"r{number}")
    driver.now += 25 * HOUR * SECOND
    for number in range(30):
        invoke(driver, ADD, 1, f"late{number}")
        assert len(driver.store.requests) >= 1_000
    assert len(driver.store.requests) == 1_000
    assert "r39" not in driver.store.requests
    assert "r40" in driver.store.requests
    assert invoke(driver, ADD, 1, "r0") == 1_041, "a forgotten one is a new request"


# Closed by its own timer


def test_a_command_that_finds_the_flow_closed_by_a_due_timer() -> None:
    def closing() -> Driver:
        driver = Driver(
            inline("Start", lambda tx, _: complete("by timer"), wait=lambda view, _: Wait.any_of(in_a_second(view))),
            rpcs=[ADD],
        ).start()
        driver.now += 2 * SECOND
        return driver

    with pytest.raises(FlowClosedError, match="completed"):
        invoke(closing(), ADD, 1)

    driver = closing()
    assert driver.apply(StopFlow("too late")).output is False
    assert (driver.header.status, driver.header.failure) == ("completed", None)

    driver = closing()
    driver.apply(AttemptsLost())
    assert driver.header.status == "completed"


def in_a_second(view: Any) -> Any:
    return Timer(view.now + timedelta(seconds=1))
