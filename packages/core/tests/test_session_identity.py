import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents.session.identity import allocate_tool_call_id, idempotency_key, interrupt_id, turn_id

nasty_id = st.one_of(
    st.sampled_from(["", " ", "a", "a~1", "a~2", "a~2~3", "call-1", "call-2", "call-3", "call-1~2", "x" * 400]),
    st.text("ac-l~123/%", max_size=8),
)


def allocate(provider_ids: list[str]) -> list[str]:
    allocated: list[str] = []
    for order, provider_id in enumerate(provider_ids):
        allocated.append(allocate_tool_call_id(provider_id, order, lambda key: key in allocated))
    return allocated


def test_a_new_provider_id_is_kept() -> None:
    assert allocate(["call_7f", "toolu_01", "lookup:1/2"]) == ["call_7f", "toolu_01", "lookup:1/2"]


def test_a_repeated_id_gets_a_suffix_and_a_blank_one_a_number() -> None:
    assert allocate(["same", "same", "", "same", " "]) == ["same", "same~2", "call-3", "same~4", "call-5"]


def test_an_over_long_id_is_replaced() -> None:
    assert allocate(["x" * 200, "x" * 201]) == ["x" * 200, "call-2"]


@pytest.mark.parametrize("literal", ["a~2", "call-2", "call-1"])
def test_a_literal_id_that_looks_allocated_never_meets_an_allocated_one(literal: str) -> None:
    for ids in itertools.permutations(["a", "a", "", literal]):
        assert len(set(allocate(list(ids)))) == 4


@given(st.lists(nasty_id, max_size=12))
def test_ids_of_a_turn_are_always_distinct(provider_ids: list[str]) -> None:
    allocated = allocate(provider_ids)
    assert len(set(allocated)) == len(provider_ids)
    assert all(allocated)


def test_turn_and_interrupt_ids() -> None:
    assert turn_id(3) == "turn-3"
    assert interrupt_id("turn-3", "call_1") == "turn-3.call_1"


def test_an_ordinary_idempotency_key_is_readable() -> None:
    assert idempotency_key("order-42", "turn-1", "call_1") == "order-42/turn-1/call_1"
    assert idempotency_key("a b", "turn-1", "c:1") == "a b/turn-1/c:1"


def test_separators_and_percent_signs_cannot_make_two_keys_equal() -> None:
    assert idempotency_key("a/b", "turn-1", "c") == "a%2Fb/turn-1/c"
    assert idempotency_key("a%2Fb", "turn-1", "c") == "a%252Fb/turn-1/c"


id_part = st.text(st.characters(codec="utf-8"), min_size=1, max_size=256)


@given(st.tuples(id_part, id_part), st.tuples(id_part, id_part))
def test_different_calls_have_different_keys(one: tuple[str, str], other: tuple[str, str]) -> None:
    keys = [idempotency_key(session, "turn-1", call) for session, call in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
    assert all(len(key) <= 255 and key.isascii() and key.isprintable() for key in keys)


def test_a_long_part_is_hashed_into_a_form_no_literal_can_have() -> None:
    hashed = idempotency_key("s" * 256, "turn-1", "c").partition("/")[0]
    assert hashed.startswith("%h")
    assert idempotency_key(hashed, "turn-1", "c").partition("/")[0] != hashed
