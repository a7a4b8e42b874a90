import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents.session.sanitizer import (
    MAX_ERROR_CHARACTERS,
    MAX_NAME_CHARACTERS,
    check_text_size,
    sanitize_error_text,
    sanitize_json_text,
    sanitize_json_value,
    sanitize_name,
    sanitize_text,
    text_size,
)
from dex_flow import ValueTooLargeError

any_text = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("plain", "plain"),
        ("ü 日本 😀", "ü 日本 😀"),
        ("a\ud800", "a\ufffd"),
        ("\udc00b", "\ufffdb"),
        ("a\ud83db", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ("a\0b", "a\ufffdb"),
        ("\ud800\0", "\ufffd\ufffd"),
        ("\ufeffbom", "\ufeffbom"),
        ("\ufeff\ud800", "\ufeff\ufffd"),
        ("line\u2028\x1b[31m\r\n", "line\u2028\x1b[31m\r\n"),
    ],
)
def test_a_text_is_repaired_by_the_documented_rule(text: str, repaired: str) -> None:
    assert sanitize_text(text) == repaired


@given(any_text)
def test_every_repaired_text_can_be_stored_and_repairing_twice_changes_nothing(text: str) -> None:
    repaired = sanitize_text(text)
    assert msgspec.json.decode(msgspec.json.encode(repaired)) == repaired
    assert "\0" not in repaired
    assert sanitize_text(repaired) == repaired


def test_a_value_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="expected text, not bytes"):
        sanitize_text(b"bytes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        (r'{"a":"\ud83d\ude00"}', r'{"a":"\ud83d\ude00"}'),
        (r'{"a":"\ud83d"}', r'{"a":"\ufffd"}'),
        (r'{"a":"\ude00\ud83d"}', r'{"a":"\ufffd\ufffd"}'),
        (r'{"a":"\ud83d \ude00"}', r'{"a":"\ufffd \ufffd"}'),
        (r'{"a":"\ud83d\ud83d\ude00"}', r'{"a":"\ufffd\ud83d\ude00"}'),
        (r'{"a":"\u0000x"}', r'{"a":"\ufffdx"}'),
        (r'{"a":"\\ud83d"}', r'{"a":"\\ud83d"}'),
        (r'{"a":"\\\ud83d"}', r'{"a":"\\\ufffd"}'),
        (r'{"a":"\u00e9\n"}', r'{"a":"\u00e9\n"}'),
    ],
)
def test_json_text_is_repaired_in_its_escapes(text: str, repaired: str) -> None:
    assert sanitize_json_text(text) == repaired


@given(st.dictionaries(any_text, any_text))
def test_json_dumps_of_any_text_becomes_json_that_strict_readers_accept(value: dict[str, str]) -> None:
    text = sanitize_json_text(json.dumps(value))
    assert all(sanitize_text(key) == key for key in msgspec.json.decode(text, type=dict[str, str]))


def test_a_json_value_is_repaired_at_every_depth() -> None:
    assert sanitize_json_value({"k\ud800": ["\0", {"a": "\udc00"}, 1, None]}) == {
        "k\ufffd": ["\ufffd", {"a": "\ufffd"}, 1, None]
    }


def test_names_and_errors_are_cut_with_a_mark() -> None:
    assert sanitize_name("n" * MAX_NAME_CHARACTERS) == "n" * MAX_NAME_CHARACTERS
    assert sanitize_name("n" * 5_000).endswith("n... (5000 characters)")
    assert sanitize_error_text("e" * 9_999) == "e" * MAX_ERROR_CHARACTERS + "... (9999 characters)"


def test_text_size_counts_utf8_bytes() -> None:
    assert [text_size(text) for text in ("", "abc", "ü", "日", "😀")] == [0, 3, 2, 3, 4]


def test_a_text_at_the_limit_passes_and_one_byte_more_is_refused_by_name() -> None:
    check_text_size("the user message", "日" * 10, limit=30)
    with pytest.raises(ValueTooLargeError, match="the user message has 33 bytes; the limit is 30 bytes"):
        check_text_size("the user message", "日" * 11, limit=30)
