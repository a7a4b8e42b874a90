"""Values that tools return in the field; each framework has a rule of its own for what the model reads of them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["RESULT_VALUES"]


@dataclasses.dataclass
class Order:
    """A dataclass that a tool returns."""

    number: int
    note: str


class _BrokenText:
    def __str__(self) -> str:
        raise RuntimeError("this object has no text")

    __repr__ = __str__


#: What a tool returns, by name; made anew for every run.
RESULT_VALUES: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "text": lambda: "plain text",
        "empty_text": lambda: "",
        "none": lambda: None,
        "whole_number": lambda: 7,
        "fraction": lambda: 2.5,
        "truth": lambda: True,
        "list": lambda: ["a", 1, None],
        "dict": lambda: {"b": 1, "a": "ü"},
        "tuple": lambda: (1, "two"),
        "bytes": lambda: b"seven",
        "binary": lambda: b"\xff\x00\xfe",
        "date_time": lambda: datetime.datetime(2026, 12, 2, 9, 30, tzinfo=datetime.UTC),
        "decimal": lambda: decimal.Decimal("1.50"),
        "dataclass": lambda: Order(number=7, note="paid"),
        "not_a_number": lambda: float("nan"),
        "lone_surrogate": lambda: "half \ud83d emoji",
        "unrenderable": _BrokenText,
    }
)
