"""The text of tool results (F17): made at execution, the same for every runner of the package."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, model_serializer

from dex_agents_stepwise import UnrenderableToolResultError, render_tool_result

from .stepwise_session_driver import patient


class Order(BaseModel):
    order_id: int
    placed: datetime.date


class BrokenOrder(BaseModel):
    order_id: int

    @model_serializer
    def fail(self) -> dict[str, Any]:
        raise KeyError("order")


@dataclasses.dataclass
class Parcel:
    labels: set[str]


class Colour(str, enum.Enum):  # noqa: UP042 - its str() differs from its content, unlike a StrEnum's
    RED = "red"


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("ünï", "ünï"),
        (Colour.RED, "red"),
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (1.0, "1.0"),
        (float("nan"), "null"),
        ([float("inf"), 1], "[null, 1]"),
        ({"a\0": ["b\0"]}, '{"a\ufffd": ["b\ufffd"]}'),
        ({"status": "paid", "items": [1, "é"]}, '{"status": "paid", "items": [1, "é"]}'),
        ((1, 2), "[1, 2]"),
        ({3}, "[3]"),
        ({1: "a"}, '{"1": "a"}'),
        (b"bytes", '"bytes"'),
        (b"\xff\x00", '"_wA="'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), '"2026-01-02T03:04:00Z"'),
        (datetime.timedelta(hours=1), '"PT1H"'),
        (Order(order_id=7, placed=datetime.date(2026, 1, 2)), '{"order_id": 7, "placed": "2026-01-02"}'),
        (Parcel({"fragile"}), '{"labels": ["fragile"]}'),
        ((number for number in (1, 2)), "[1, 2]"),
        ({"key\ud800": "value"}, '{"key\ufffd": "value"}'),
    ],
)
def test_golden_texts(result: object, text: str) -> None:
    assert render_tool_result("tool", result) == text


def circular_list() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "result",
    [ValueError("boom"), Unprintable(), BrokenOrder(order_id=1), circular_list(), object(), lambda: 1, 10**5000],
    ids=["exception", "unprintable", "serializer raises", "circular", "object", "function", "huge number"],
)
def test_unrenderable_values_say_that_the_tool_ran(result: object) -> None:
    with pytest.raises(UnrenderableToolResultError, match="the tool refund ran to its end") as raised:
        render_tool_result("refund", result)
    assert type(result).__name__ in str(raised.value)


# A NUL is replaced on the way into the session, which tests of their own cover.
json_texts = st.text().filter(lambda text: "\0" not in text)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | json_texts,
    lambda children: st.lists(children) | st.dictionaries(json_texts, children),
)


@patient
@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_json_values_render_like_json_dumps(value: Any) -> None:
    assert render_tool_result("tool", value) == json.dumps(value, ensure_ascii=False)
