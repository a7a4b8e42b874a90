"""What is known of a version: ranges that several versions share, limits, and values that are not shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_flow import Attribute, AttributeMap, Channel, Rpc, StateView, Wait
from dex_flow.immutability import is_immutable_type
from dex_flow.kernel import InvokeRpc, KnownState
from dex_flow.kernel.known import KnownRange, KnownValue

from .kernel_driver import COUNT, LOG, NUMBERS, TEXT, A, Driver, inline

Code = Callable[[Any], Any]

writes = st.dictionaries(st.sampled_from("bcdefg"), st.none() | st.integers(), max_size=3)
bounds = st.sampled_from(["", "a", "b", "c", "e", "g", "h"])


class _Frozen(msgspec.Struct, frozen=True):
    name: str
    parts: tuple[int, ...] = ()


class _Changeable(msgspec.Struct):
    name: str


@given(
    steps=st.lists(st.tuples(st.integers(0, 5), writes), max_size=12),
    at_least=bounds,
    below=st.none() | bounds,
    limit=st.none() | st.integers(0, 4),
    newest_first=st.booleans(),
)
def test_every_version_of_a_range_stays_what_it_was(
    steps: list[tuple[int, dict[str, int | None]]],
    at_least: str,
    below: str | None,
    limit: int | None,
    newest_first: bool,
) -> None:
    versions: list[tuple[KnownRange, dict[str, int]]] = [(KnownRange("", [], [], 0), {})]
    for base, written in steps:
        # Also from an earlier version: a transaction that is undone leaves its changes behind in shared lists.
        known, model = versions[min(base, len(versions) - 1)]
        later = known.after([(key, None if value is None else _known(value)) for key, value in written.items()])
        assert later is not None
        merged = model | {key: value for key, value in written.items() if value is not None}
        versions.append((later, {key: value for key, value in merged.items() if written.get(key, 0) is not None}))
    for known, model in versions:
        keys = sorted(key for key in model if key >= at_least and (below is None or key < below))
        if newest_first:
            keys.reverse()
        expected = [(key, model[key]) for key in (keys if limit is None else keys[:limit])]
        assert [(key, value.value) for key, value in known.select(at_least, below, limit, newest_first)] == expected
        assert {key: found.value for key in "bcdefg" if (found := known.get(key)) is not None} == model


def test_a_range_that_grows_too_large_is_forgotten() -> None:
    known = KnownRange("", [], [], 0)
    later = known.after([("a", KnownValue("x", b"x" * 900_000))])
    assert later is not None
    assert later.after([("b", KnownValue("x", b"x" * 900_000))]) is None
    smaller = later.after([("a", KnownValue("y", b"y"))])
    assert smaller is not None
    assert smaller.size == 1


def test_state_that_grows_too_large_is_forgotten() -> None:
    own = _driver()
    known = _after(own, KnownState(), lambda tx: tx.set_instance(NUMBERS, "a", 1))
    assert known.slots
    known.size = 10_000_000
    assert not _after(own, known, lambda tx: tx.set_instance(NUMBERS, "b", 1)).slots


def test_instances_of_a_known_map_need_no_read() -> None:
    own = _driver()
    known = _after(own, KnownState(), lambda tx: [tx.set_instance(NUMBERS, key, 1) for key in "ab"])
    known = _after(own, known, lambda tx: tx.read_range(NUMBERS))
    known = _after(own, known, lambda tx: (tx.delete_instance(NUMBERS, "a"), tx.set_instance(NUMBERS, "c", 3)))
    for name in ("attribute", "attribute_range"):
        setattr(own.store, name, _refuse)
    seen: list[Any] = []
    _after(own, known, lambda tx: seen.extend([tx.read_range(NUMBERS), tx.get_instance(NUMBERS, "a")]))
    assert seen == [[("b", 1), ("c", 3)], None]


def test_a_new_execution_is_known_to_be_empty() -> None:
    own = _driver()
    known = KnownState.of_new_execution(own.flow)
    maps = {d.name for d in own.flow.declarations.values() if isinstance(d, AttributeMap)}
    assert known.ranges.keys() == maps
    plain = {(d.name, "") for d in own.flow.declarations.values() if isinstance(d, Attribute)}
    assert known.slots == dict.fromkeys(plain)
    assert known.channels.keys() == {(d.name, "") for d in own.flow.declarations.values() if isinstance(d, Channel)}


def test_read_only_code_gets_values_of_its_own_when_they_can_be_changed() -> None:
    own = _driver()
    known = _after(own, KnownState(), lambda tx: (tx.set(LOG, ["a"]), tx.set(COUNT, 7)))

    def spoil(view: StateView) -> list[str] | None:
        log = view.get(LOG)
        assert log is not None
        log.append("spoiled")
        return log

    assert own.kernel.view(own.store, "flow", own.now, spoil, known) == ["a", "spoiled"]
    assert own.kernel.view(own.store, "flow", own.now, lambda view: view.get(LOG), known) == ["a"]


@pytest.mark.parametrize(
    "value_type",
    [int, str, None, str | None, tuple[int, str], tuple[_Frozen, ...], frozenset[str], _Frozen, msgspec.Raw],
)
def test_types_whose_values_can_be_shared(value_type: Any) -> None:
    assert is_immutable_type(value_type)


@pytest.mark.parametrize(
    "value_type", [list[int], dict[str, int], set[int], Any, _Changeable, tuple[list[int], ...], list[int] | None]
)
def test_types_whose_values_cannot_be_shared(value_type: Any) -> None:
    assert not is_immutable_type(value_type)


def _driver() -> Driver:
    return Driver(inline("Start", wait=lambda view, input: Wait.any_of(A.receive()))).start()


def _known(value: int) -> KnownValue:
    return KnownValue(value, msgspec.json.encode(value))


def _after(own: Driver, known: KnownState, code: Code) -> KnownState:
    own.flow.rpcs["call"] = Rpc("call", lambda tx, _: (code(tx), tx.set(TEXT, "called"), None)[-1], Any, Any)
    result = own.kernel.apply(own.store, "flow", own.now, InvokeRpc("call", b"null"), known=known)
    assert result.changes is not None
    own.store.apply(result.changes)
    return result.changes.known


def _refuse(*arguments: Any) -> Any:
    raise AssertionError(f"{arguments} was read")
