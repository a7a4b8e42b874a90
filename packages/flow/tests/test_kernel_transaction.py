"""What `StateView` and `Transaction` do, over stored rows and over uncommitted ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dex_flow import Attribute, Channel, Rpc, Stream, UndeclaredNameError, Wait, dead_end, go_to, go_to_many, move
from dex_flow.kernel import InvokeRpc, KnownState

from .kernel_driver import COUNT, EVENTS, KEYED, NUMBERS, TEXT, A, B, Driver, inline

Code = Callable[[Any], Any]


def driver() -> Driver:
    return Driver(inline("Stay", wait=lambda view, _: Wait.any_of(KEYED.receive("never")))).start()


def together(*codes: Code) -> list[Any]:
    """The answers of all codes in one command."""
    return driver().call(lambda tx: [code(tx) for code in codes])  # type: ignore[no-any-return]


def one_by_one(*codes: Code) -> list[Any]:
    """The answers of all codes, each in a command of its own."""
    own = driver()
    return [own.call(code) for code in codes]


@pytest.fixture(params=[together, one_by_one])
def run(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Code over uncommitted writes must see what it sees over committed ones."""
    return request.param  # type: ignore[no-any-return]


def test_attributes_are_set_read_and_deleted(run: Callable[..., list[Any]]) -> None:
    answers = run(
        lambda tx: tx.get(TEXT),
        lambda tx: tx.set(TEXT, "one"),
        lambda tx: tx.get(TEXT),
        lambda tx: tx.set(TEXT, "two"),
        lambda tx: tx.get(TEXT),
        lambda tx: tx.delete(TEXT),
        lambda tx: tx.get(TEXT),
        lambda tx: tx.delete(TEXT),
        lambda tx: tx.set(TEXT, "three"),
        lambda tx: tx.get(TEXT),
    )
    assert [answer for answer in answers if answer is not None] == ["one", "two", "three"]


def fill(tx: Any) -> None:
    for key in ("a", "b", "c", "d", "e"):
        tx.set_instance(NUMBERS, key, ord(key))


def test_instances_are_read_in_key_order(run: Callable[..., list[Any]]) -> None:
    def keys(**bounds: Any) -> Code:
        return lambda tx: "".join(key for key, _ in tx.read_range(NUMBERS, **bounds))

    answers = run(
        fill,
        keys(),
        keys(at_least="b", below="d"),
        keys(newest_first=True, limit=2),
        keys(limit=0),
        keys(at_least="x"),
        lambda tx: tx.delete_instance(NUMBERS, "b"),
        lambda tx: tx.set_instance(NUMBERS, "bb", 7),
        lambda tx: tx.set_instance(NUMBERS, "ä", 8),
        lambda tx: tx.set_instance(NUMBERS, "\U0001f600", 9),
        keys(limit=3),
        keys(newest_first=True, limit=3),
        lambda tx: tx.read_range(NUMBERS, at_least="bb", below="c"),
        lambda tx: (tx.get_instance(NUMBERS, "b"), tx.get_instance(NUMBERS, "e")),
    )
    assert [answer for answer in answers if answer is not None] == [
        "abcde", "bc", "ed", "", "", "abbc", "\U0001f600äe", [("bb", 7)], (None, ord("e")),
    ]  # fmt: skip


def test_a_range_mixes_stored_and_uncommitted_instances() -> None:
    own = driver()
    own.call(fill)

    def code(tx: Any) -> Any:
        tx.delete_instance(NUMBERS, "a")
        tx.delete_instance(NUMBERS, "b")
        tx.set_instance(NUMBERS, "c", 0)
        tx.set_instance(NUMBERS, "aa", 1)
        return tx.read_range(NUMBERS, limit=3), tx.read_range(NUMBERS, limit=2, newest_first=True)

    assert own.call(code) == ([("aa", 1), ("c", 0), ("d", 100)], [("e", 101), ("d", 100)])


def test_messages_are_listed_counted_received_and_deleted(run: Callable[..., list[Any]]) -> None:
    answers = run(
        lambda tx: tx.publish(A, "one"),
        lambda tx: tx.publish(B, "other"),
        lambda tx: tx.publish(A, "two"),
        lambda tx: tx.publish(A, "three"),
        lambda tx: tx.list_messages(A),
        lambda tx: tx.list_messages(A, limit=2),
        lambda tx: tx.count_messages(A),
        lambda tx: tx.delete_message(A, 3),
        lambda tx: tx.delete_message(A, 3),
        lambda tx: tx.delete_message(A, 2),
        lambda tx: tx.delete_message(A, 99),
        lambda tx: tx.receive(A, 3),
        lambda tx: tx.count_messages(A),
        lambda tx: tx.receive(A, 2),
        lambda tx: tx.receive(A),
        lambda tx: tx.delete_message(A, 1),
        lambda tx: tx.publish(A, "four"),
        lambda tx: tx.purge_messages(A),
        lambda tx: tx.purge_messages(A),
        lambda tx: tx.list_messages(A),
        lambda tx: tx.list_messages(B),
    )
    assert answers == [
        1, 2, 3, 4,
        [(1, "one"), (3, "two"), (4, "three")], [(1, "one"), (3, "two")], 3,
        True, False, False, False,
        [], 2, ["one", "three"], [], False,
        5, 1, 0, [], [(2, "other")],
    ]  # fmt: skip


def test_messages_of_a_key_are_separate(run: Callable[..., list[Any]]) -> None:
    answers = run(
        lambda tx: tx.publish_instance(KEYED, "k1", "one"),
        lambda tx: tx.publish_instance(KEYED, "k2", "two"),
        lambda tx: tx.list_instance_messages(KEYED, "k1"),
        lambda tx: tx.count_messages(KEYED, "k2"),
        lambda tx: tx.delete_message(KEYED, 2, "k1"),
        lambda tx: tx.receive_instance(KEYED, "k1"),
        lambda tx: tx.purge_messages(KEYED, "k2"),
        lambda tx: tx.count_messages(KEYED, "k2"),
    )
    assert answers == [1, 2, [(1, "one")], 1, False, ["one"], 1, 0]


def test_stored_and_uncommitted_messages_are_one_queue() -> None:
    own = driver()
    own.send("1", "2", "3")

    def code(tx: Any) -> Any:
        first = tx.receive(A)
        tx.publish(A, "4")
        return first, tx.count_messages(A), tx.receive(A, 3), tx.publish(A, "5"), tx.list_messages(A)

    assert own.call(code) == (["1"], 3, ["2", "3", "4"], 5, [(5, "5")])
    assert own.waiting_messages(A) == ["5"]


def test_an_undone_consumption_keeps_the_order_of_uncommitted_messages() -> None:
    def publish(tx: Any, input: Any) -> Any:
        for text in ("1", "2", "3"):
            tx.publish(A, text)
        return go_to_many(move("Raise"), move("Take"))

    def take_and_raise(tx: Any, input: Any) -> Any:
        assert tx.receive(A) == ["1"]
        raise RuntimeError("broken")

    def take(tx: Any, input: Any) -> Any:
        tx.set(TEXT, ",".join(tx.receive(A, 2)))
        return dead_end()

    own = Driver(inline("Start", publish), inline("Raise", take_and_raise), inline("Take", take)).start()
    assert own.step("Raise").error == "RuntimeError: broken"
    assert own.get(TEXT) == "1,2"
    assert own.waiting_messages(A) == ["3"]


def test_message_ids_are_never_used_again() -> None:
    own = driver()
    assert own.call(lambda tx: [tx.publish(A, "x"), tx.receive(A)]) == [1, ["x"]]
    assert own.call(lambda tx: tx.publish(A, "y")) == 2


def test_events_keep_their_order() -> None:
    own = driver()
    own.call(lambda tx: [tx.emit(EVENTS, text) for text in ("1", "2")])
    own.call(lambda tx: tx.emit(EVENTS, "3"))
    assert own.store.events == {"events": [b'"1"', b'"2"', b'"3"']}


def test_a_view_reads_but_has_no_writes() -> None:
    own = driver()
    own.send("1")
    view = own.kernel.view(own.store, "flow", own.now, lambda view: view)
    assert view.list_messages(A) == [(1, "1")]
    assert not hasattr(view, "set")
    assert not hasattr(view, "publish")


@pytest.mark.parametrize(
    "code",
    [
        lambda tx: tx.get(Attribute("nowhere", int)),
        lambda tx: tx.set(Attribute("nowhere", int), 1),
        lambda tx: tx.delete(Attribute("nowhere", int)),
        lambda tx: tx.publish(Channel("nowhere", int), 1),
        lambda tx: tx.receive(Channel("nowhere", int)),
        lambda tx: tx.count_messages(Channel("nowhere", int)),
        lambda tx: tx.delete_message(Channel("nowhere", int), 1),
        lambda tx: tx.emit(Stream("nowhere", int), 1),
        lambda tx: tx.start_step("nowhere"),
        lambda tx: tx.cancel_steps("nowhere"),
    ],
)
def test_undeclared_names_are_refused(code: Code) -> None:
    with pytest.raises(UndeclaredNameError, match="'nowhere'"):
        driver().call(code)


def test_a_count_reads_no_message() -> None:
    own = driver()
    own.store.channels["a", ""] = {1: b"not even JSON"}
    assert own.call(lambda tx: tx.count_messages(A)) == 1


def test_taking_one_message_does_not_read_the_queue() -> None:
    own = Driver(
        inline("W", lambda tx, _: go_to("W"), wait=lambda view, _: Wait.any_of(B.receive(), A.receive()))
    ).start()
    limits: list[int | None] = []
    read = own.store.messages

    def spy(channel: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        limits.append(limit)
        return read(channel, key, limit)

    own.store.messages = spy  # type: ignore[method-assign]
    own.send("1")
    assert own.call(lambda tx: tx.receive(A)) == []
    assert limits
    assert all(limit is not None and limit <= 2 for limit in limits)


def test_a_point_delete_does_not_read_the_queue() -> None:
    own = driver()
    own.send("1", "2")

    def refuse(channel: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        raise AssertionError("the queue was read")

    own.store.messages = refuse  # type: ignore[method-assign]
    assert own.call(lambda tx: tx.delete_message(A, 1)) is True
    assert own.call(lambda tx: tx.count_messages(A)) == 1


def test_an_attribute_is_read_from_the_store_once_per_command() -> None:
    own = driver()
    own.call(lambda tx: tx.set(COUNT, 1))
    reads: list[str] = []
    read = own.store.attribute

    def spy(name: str, key: str) -> bytes | None:
        reads.append(name)
        return read(name, key)

    own.store.attribute = spy  # type: ignore[method-assign]
    assert own.call(lambda tx: [tx.get(COUNT) for _ in range(3)]) == [1, 1, 1]
    assert reads == ["count"]


def test_known_values_spare_reads_and_change_nothing() -> None:
    own = driver()
    first = own.apply(_call(own, lambda tx: (tx.set(COUNT, 1), tx.set(TEXT, "x"), tx.delete(TEXT))))
    assert first.changes is not None
    assert _values(first.changes.known) == {("count", ""): 1, ("text", ""): None}

    def refuse(name: str, key: str) -> bytes | None:
        raise AssertionError(f"{name} was read")

    own.store.attribute = refuse  # type: ignore[method-assign]
    command = _call(own, lambda tx: (tx.get(COUNT), tx.get(TEXT), tx.set(COUNT, 2), tx.get(COUNT)))
    second = own.kernel.apply(own.store, "flow", own.now, command, known=first.changes.known)
    assert second.output == [1, None, None, 2]
    assert second.changes is not None
    assert _values(second.changes.known) == {("count", ""): 2, ("text", ""): None}
    assert _values(first.changes.known) == {("count", ""): 1, ("text", ""): None}, (
        "the state before is still what it was"
    )


def test_known_values_of_an_undone_step_are_those_before_it() -> None:
    def set_and_raise(tx: Any, input: Any) -> Any:
        tx.set(COUNT, 99)
        raise RuntimeError("broken")

    own = Driver(inline("Start"), inline("Raise", set_and_raise)).start()
    result = own.apply(_call(own, lambda tx: (tx.set(COUNT, 1), tx.start_step("Raise"))))
    assert result.changes is not None
    assert _values(result.changes.known) == {("count", ""): 1}


def _values(known: KnownState) -> dict[tuple[str, str], Any]:
    return {slot: None if found is None else found.value for slot, found in known.slots.items()}


def _call(own: Driver, code: Code) -> InvokeRpc:
    own.flow.rpcs["call"] = Rpc("call", lambda tx, _: code(tx), Any, Any)
    return InvokeRpc("call", b"null")
