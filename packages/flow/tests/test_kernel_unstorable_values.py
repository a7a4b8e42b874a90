"""Values that cannot be stored or read fail only the Step that wrote or needs them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dex_flow import (
    Attribute,
    AttributeMap,
    Channel,
    ChannelMap,
    Decision,
    Rpc,
    Step,
    Stream,
    UnstorableValueError,
    Wait,
    complete,
    dead_end,
    fail,
    go_to,
)
from dex_flow.kernel import InvokeRpc, StepBody

from .kernel_driver import (
    COUNT,
    EVENTS,
    KEYED,
    LOG,
    NUMBERS,
    TEXT,
    A,
    B,
    Driver,
    activity,
    attempts,
    inline,
    spread,
)


def raising(tx: Any, input: Any, outcome: Any = None) -> Decision:
    """The code of a Step that is never repaired."""
    raise RuntimeError("broken")


def raise_surrogate(tx: Any, input: Any) -> Decision:
    raise ValueError("\ud800")


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.set(TEXT, "\ud800"),
        lambda tx: tx.set(TEXT, object()),
        lambda tx: tx.set_instance(NUMBERS, "\ud800", 1),
        lambda tx: tx.delete_instance(NUMBERS, "\ud800"),
        lambda tx: tx.publish(A, "\ud800"),
        lambda tx: tx.publish_instance(KEYED, "\ud800", "text"),
        lambda tx: tx.emit(EVENTS, "\ud800"),
        lambda tx: tx.start_step("Other", "\ud800"),
    ],
)
@pytest.mark.parametrize("decision", [dead_end(), complete("done"), fail("no"), go_to("Other")])
def test_a_value_that_cannot_be_stored_fails_only_the_step_that_wrote_it(write: Any, decision: Decision) -> None:
    def execute(tx: Any, input: Any) -> Decision:
        write(tx)
        return decision

    driver = Driver(spread("Bad", "Other"), inline("Bad", execute), inline("Other")).start()
    step = driver.step("Bad")
    assert (driver.header.status, driver.header.result, driver.header.failure) == ("open", None, None)
    assert step.status == "backoff"
    assert driver.log == ["Other"]
    assert driver.header.next_step == 4, "the undone Step left no gap"


@pytest.mark.parametrize(
    ("write", "culprit"),
    [
        (lambda tx: tx.set(TEXT, "\ud800"), "Attribute('text')"),
        (lambda tx: tx.set_instance(NUMBERS, "k", object()), "AttributeMap('numbers') under 'k'"),
        (lambda tx: tx.publish(A, "\ud800"), "Channel('a')"),
        (lambda tx: tx.emit(EVENTS, object()), "Stream('events')"),
        (lambda tx: tx.publish_instance(KEYED, "\ud800", "x"), "ChannelMap('keyed')"),
    ],
)
def test_the_error_names_the_value_that_cannot_be_stored(write: Any, culprit: str) -> None:
    driver = Driver(inline("W", lambda tx, _: write(tx) or dead_end())).start()
    error = driver.step("W").error
    assert error is not None
    assert culprit in error


def test_a_value_set_before_a_value_that_cannot_be_stored_is_undone_with_it() -> None:
    def execute(tx: Any, input: Any) -> Decision:
        tx.set(COUNT, 1)
        tx.set(TEXT, "\ud800")
        return dead_end()

    driver = Driver(inline("Bad", execute)).start()
    assert driver.store.attributes == {}


def test_a_decision_that_cannot_be_stored_fails_the_step() -> None:
    driver = Driver(
        spread("Bad", "Worse"),
        inline("Bad", lambda tx, _: complete("\ud800")),
        inline("Worse", lambda tx, _: go_to("Bad", "\ud800")),
    ).start()
    assert driver.open_types == ["Bad", "Worse"]
    assert driver.header.status == "open"


def test_a_wait_key_that_cannot_be_stored_fails_the_wait() -> None:
    driver = Driver(inline("W", wait=lambda view, _: Wait.any_of(KEYED.receive("\ud800")))).start()
    assert driver.step("W").phase == "wait_for"


def test_texts_of_errors_and_reasons_are_repaired() -> None:
    driver = Driver(
        spread("Raises", "Ends"),
        inline("Raises", raise_surrogate),
        inline("Ends", lambda tx, _: fail("because \ud800"), wait=lambda view, _: Wait.any_of(A.receive())),
    ).start()
    assert driver.step("Raises").error == "ValueError: \ufffd"
    driver.send("x")
    assert driver.header.failure == "because \ufffd"


def test_an_outcome_that_commit_cannot_store_fails_the_attempt() -> None:
    def commit(tx: Any, input: Any, outcome: Any) -> Decision:
        tx.set(TEXT, outcome)
        return dead_end()

    driver = Driver(activity("W", commit, options=attempts(3)), inline("Failed")).start()
    driver.succeed(driver.claim(), "\ud800")
    assert driver.log == ["Failed"]
    assert driver.store.history[0].detail is not None
    assert "the outcome of W cannot be stored" in driver.store.history[0].detail


def test_an_outcome_that_does_not_fit_its_type_fails_the_attempt_when_commit_raises() -> None:
    driver = Driver(
        activity("W", raising, outcome_type=int, options=attempts(3)),
        inline("Failed"),
    ).start()
    driver.succeed(driver.claim(), "seven")
    assert driver.log == ["Failed"]


def test_a_stored_outcome_that_no_longer_decodes_keeps_the_flow_alive() -> None:
    driver = Driver(activity("W", raising, outcome_type=int), inline("Other")).start()
    driver.succeed(driver.claim(), 7)
    driver.store.bodies[1] = msgspec.json.encode(StepBody(msgspec.Raw(b"null"), outcome=(msgspec.Raw(b'"seven"'),)))
    driver.advance(1)
    step = driver.step("W")
    assert step.phase == "commit"
    assert step.error is not None
    assert step.error.startswith("ValidationError")
    driver.call(lambda tx: tx.start_step("Other"))
    assert driver.log == ["Other"]


def test_a_message_that_no_longer_decodes_fails_only_its_step() -> None:
    driver = Driver(
        spread("W", "Gate"),
        inline("W", wait=lambda view, _: Wait.any_of(A.receive())),
        inline("Gate", wait=lambda view, _: Wait.any_of(B.receive())),
    ).start()
    driver.store.channels["a", ""] = {0: b"7"}
    driver.send("text")
    assert driver.step("W").phase == "execute"
    driver.send("open", to=B)
    assert driver.log == ["Gate"]


class Order(msgspec.Struct, frozen=True):
    number: int


class Rush(Order, frozen=True):
    fee: int = 5


ORDER = Attribute[Order]("order", Order)
ORDERS = AttributeMap[list[Order]]("orders", list[Order])
PRICE = Attribute[float]("price", float)
ANY = Attribute[Any]("anything", Any)
QUEUE = Channel[Order]("queue", Order)
LANES = ChannelMap[Order]("lanes", Order)
NEWS = Stream[Order]("news", Order)


def typed_driver(*steps: Step[Any]) -> Driver:
    driver = Driver(*steps)
    for declaration in (ORDER, ORDERS, PRICE, ANY, QUEUE, LANES, NEWS):
        driver.flow.declarations[declaration.name] = declaration
    return driver.start()


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda tx: tx.set(COUNT, "seven"), "Attribute('count') takes int"),
        (lambda tx: tx.set(COUNT, None), "Attribute('count') takes int"),
        (lambda tx: tx.set(COUNT, True), "Attribute('count') takes int"),
        (lambda tx: tx.set(PRICE, float("nan")), "Attribute('price') takes float"),
        (lambda tx: tx.set(ORDER, {"number": "seven"}), "Attribute('order') takes Order"),
        (lambda tx: tx.set(LOG, ["a", 2]), "Attribute('log') takes list[str]"),
        (lambda tx: tx.set_instance(NUMBERS, "k", "seven"), "AttributeMap('numbers') under 'k' takes int"),
        (lambda tx: tx.set_instance(ORDERS, "k", [Order(1), 2]), "AttributeMap('orders') under 'k' takes list["),
        (lambda tx: tx.publish(QUEUE, "seven"), "Channel('queue') takes Order"),
        (lambda tx: tx.publish_instance(LANES, "k", 7), "ChannelMap('lanes') under 'k' takes Order"),
        (lambda tx: tx.emit(NEWS, "seven"), "Stream('news') takes Order"),
    ],
)
def test_a_value_of_another_type_is_refused_where_it_is_written(write: Any, said: str) -> None:
    driver = typed_driver(inline("W", wait=lambda view, _: Wait.any_of(A.receive())), inline("Other"))
    rows = vars(driver.store).copy()

    with pytest.raises(UnstorableValueError) as raised:
        driver.call(write)
    assert said in str(raised.value)
    assert vars(driver.store) == rows, "the call changed nothing"

    driver = typed_driver(spread("Bad", "Other"), inline("Bad", lambda tx, _: write(tx) or dead_end()), inline("Other"))
    error = driver.step("Bad").error
    assert error is not None
    assert said in error
    assert driver.log == ["Other"]


def test_a_value_is_kept_as_it_will_be_read() -> None:
    driver = typed_driver(inline("W", wait=lambda view, _: Wait.any_of(A.receive())))

    def write(tx: Any) -> None:
        tx.set(ORDER, {"number": 7})
        tx.set(ANY, {"order": Order(8), "pair": (1, 2), "tags": {"a"}})
        tx.set(PRICE, 3)
        tx.set_instance(ORDERS, "k", (Rush(9),))

    driver.flow.rpcs["write"] = Rpc("write", lambda tx, _: write(tx), None, None)
    result = driver.kernel.apply(driver.store, "flow", driver.now, InvokeRpc("write", b"null"))
    assert result.changes is not None
    driver.store.apply(result.changes)

    expected = {
        ("order", ""): Order(7),
        ("anything", ""): {"order": {"number": 8}, "pair": [1, 2], "tags": ["a"]},
        ("price", ""): 3.0,
        ("orders", "k"): [Order(9)],
    }
    known = {slot: value.value for slot, value in result.changes.known.slots.items() if value is not None}
    assert known == expected
    assert type(known["orders", "k"][0]) is Order
    for (name, key), value in expected.items():
        declaration = driver.flow.declarations[name]
        assert msgspec.json.decode(driver.store.attributes[name, key], type=declaration.value_type) == value
