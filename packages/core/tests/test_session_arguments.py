import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents.session.arguments import MAX_TOOL_ARGUMENTS_BYTES, check_arguments


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\ufeff", "\ufeff \n"])
def test_blank_arguments_mean_an_empty_object(blank: str) -> None:
    assert check_arguments("lookup", blank) == ("{}", None)


@pytest.mark.parametrize("text", ["{}", '{"order": 7}', '{"a":[1,2.5,{"b":null}]}', '{"big":123456789012345678901}'])
def test_an_object_is_stored_as_the_model_sent_it(text: str) -> None:
    assert check_arguments("lookup", text) == (text, None)


def test_a_byte_order_mark_and_outer_white_space_are_dropped() -> None:
    assert check_arguments("lookup", '\ufeff {"a":1}\n') == ('{"a":1}', None)


def test_lone_surrogates_are_repaired_raw_and_escaped() -> None:
    assert check_arguments("lookup", '{"a":"\ud800","b":"\\ud800"}') == ('{"a":"\ufffd","b":"\\ufffd"}', None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": tru', "not valid JSON"),
        ("null", "they are null, not a JSON object"),
        ("[]", "they are an array, not a JSON object"),
        ('"{}"', "they are a string, not a JSON object"),
        ("7", "they are a number, not a JSON object"),
        ("true", "they are a boolean, not a JSON object"),
        ('{"a":NaN}', "NaN is not a JSON number"),
        ('{"a":-Infinity}', "-Infinity is not a JSON number"),
        ('{"a":1e999}', "the number 1e999 is out of range"),
        ('{"a":1,"a":2}', 'the key "a" occurs more than once'),
        ('{"x":{"a":1,"b":2,"a":3}}', 'the key "a" occurs more than once'),
        ('{"a":"line\nbreak"}', "not valid JSON"),
        ('{"a":1} trailing', "not valid JSON"),
        ("{'a':1}", "not valid JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"n":' + "1" * 5_000 + "}", "not valid JSON"),
    ],
)
def test_anything_else_fails_with_the_problem_named(text: str, problem: str) -> None:
    checked = check_arguments("refund", text)
    assert checked.text == "{}"
    assert checked.error is not None
    assert problem in checked.error
    assert "refund was not run" in checked.error
    assert len(checked.error) < 1_000


def test_over_long_arguments_fail_with_their_size() -> None:
    text = json.dumps({"a": "x" * MAX_TOOL_ARGUMENTS_BYTES})
    error = check_arguments("upload", text).error
    assert error is not None
    assert f"{len(text)} bytes; the limit is {MAX_TOOL_ARGUMENTS_BYTES} bytes" in error


@given(st.text(st.characters(exclude_categories=()), max_size=200) | st.sampled_from(['{"a":1', '{"a":1}']))
def test_what_is_stored_is_always_a_json_object(text: str) -> None:
    assert isinstance(json.loads(check_arguments("any", text).text), dict)
