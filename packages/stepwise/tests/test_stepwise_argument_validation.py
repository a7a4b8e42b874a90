"""What the model is told about arguments that do not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents.session.argument_validation import MAX_PROBLEMS, MAX_SHOWN_VALUE, ArgumentValidator
from dex_agents_stepwise import function_tool

from .stepwise_session_driver import patient, storable_text


def problems(schema: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    return ArgumentValidator(schema).problems(arguments)


@pytest.mark.parametrize(
    ("schema", "arguments", "expected"),
    [
        ({"required": ["id"]}, {}, ["arguments: 'id' is a required property"]),
        ({"properties": {"id": {"type": "integer"}}}, {"id": "x"}, ["id: 'x' is not of type integer"]),
        (
            {"properties": {"id": {"type": ["integer", "null"]}}},
            {"id": "x"},
            ["id: 'x' is not of type integer or null"],
        ),
        (
            {"properties": {"a": {"items": {"properties": {"b": {"minimum": 3}}}}}},
            {"a": [{"b": 3}, {"b": 1}]},
            ["a[1].b: 1 is less than the minimum of 3"],
        ),
        (
            {"properties": {"id": {}}, "additionalProperties": False},
            {"idd": 1},
            ["arguments: Additional properties are not allowed ('idd' was unexpected)"],
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            {"a": 1},
            ["a: 1 is not of type string; 1 is not of type null"],
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "null"}, {"properties": {"b": {"type": "string"}}}]}}},
            {"a": {"b": 1}},
            ["a.b: 1 is not of type string"],
        ),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "z"}, ["a: 'z' is not one of ['x', 'y']"]),
    ],
)
def test_problems_name_the_path(schema: dict[str, Any], arguments: dict[str, Any], expected: list[str]) -> None:
    assert problems(schema, arguments) == expected


def test_enum_compares_like_python() -> None:
    assert problems({"properties": {"a": {"enum": [1]}}}, {"a": True}) == []
    assert problems({"properties": {"a": {"enum": [1]}}}, {"a": 1.0}) == []
    assert problems({"properties": {"a": {"enum": [1]}}}, {"a": 2}) != []


def test_many_and_large_problems_stay_short() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}, "b": {"maxLength": 3}}}
    listed = problems(schema, {"a": ["x" * 1_000_000] * 50, "b": "y" * 1_000_000})
    assert len(listed) == MAX_PROBLEMS + 1
    assert listed[-1] == "and 46 more"
    assert all(len(problem) < 3 * MAX_SHOWN_VALUE for problem in listed)
    assert len(problems(schema, {"b": "y" * 1_000_000})[0]) < 3 * MAX_SHOWN_VALUE


def test_endless_nesting_is_a_problem_and_no_crash() -> None:
    schema = {"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"n": deep}
    assert problems(schema, deep) == ["arguments: nested too deeply"]


@function_tool
def scale(count: int, factor: float = 1.0, names: list[str] | None = None, flag: bool = False) -> str:
    return f"{count} {factor} {names} {flag}"


@patient
@given(
    st.fixed_dictionaries(
        {"count": st.integers()},
        optional={
            "factor": st.floats(allow_nan=False, allow_infinity=False),
            "names": st.none() | st.lists(storable_text),
            "flag": st.booleans(),
        },
    )
)
def test_what_fits_the_schema_reaches_the_function_unchanged(arguments: dict[str, Any]) -> None:
    assert scale.read_arguments(json.dumps(arguments)) == arguments
