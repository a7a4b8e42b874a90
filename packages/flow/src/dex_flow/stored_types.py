"""Which types can be stored as JSON and read back, looked at down to items, fields, keys and members of unions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from dex_flow.codec import prepare_decoder

__all__ = ["find_type_problem"]

_KEY_TYPES = (
    inspect.AnyType,
    inspect.StrType,
    inspect.IntType,
    inspect.FloatType,
    inspect.DecimalType,
    inspect.BytesType,
    inspect.EnumType,
    inspect.LiteralType,
    inspect.UUIDType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UnionType,
)


def find_type_problem(value_type: Any) -> str | None:
    """Why values of this type cannot be stored, with the place inside the type; None when they can."""
    try:
        return _find_problem(value_type)
    except (TypeError, NameError) as error:
        return str(error)


@functools.cache
def _find_problem(value_type: Any) -> str | None:
    prepare_decoder(value_type)
    root = inspect.type_info(value_type)
    seen: set[int] = set()
    pending: list[tuple[inspect.Type, str]] = [(root, "")]
    while pending:
        node, place = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        reason = _find_own_problem(node)
        if reason is not None:
            return f"{place}{reason}"
        pending.extend((child, f"{place}{step}") for child, step in _list_children(node))
    return None


def _find_own_problem(node: inspect.Type) -> str | None:
    match node:
        case inspect.CustomType():
            return f"{node.cls!r} is a plain class; use a msgspec.Struct, a dataclass or a TypedDict"
        case inspect.ExtType():
            return "msgspec.msgpack.Ext has no JSON form"
        case inspect.SetType() | inspect.FrozenSetType():
            return "a set has no order to store it in; use a list or a dict and say the order"
        case inspect.DictType() if not isinstance(node.key_type, _KEY_TYPES):
            return "the keys of a dict must be text, numbers, times, UUIDs or enum members"
        case _:
            return None


def _list_children(node: inspect.Type) -> Iterator[tuple[inspect.Type, str]]:
    match node:
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            for field in node.fields:
                yield field.type, f"{node.cls.__name__}.{field.name}: "
        case inspect.Metadata():
            yield node.type, ""
        case inspect.UnionType():
            for member in node.types:
                yield member, ""
        case inspect.TupleType():
            for item in node.item_types:
                yield item, ""
        case inspect.CollectionType():
            yield node.item_type, ""
        case inspect.DictType():
            yield node.key_type, ""
            yield node.value_type, ""
        case _:
            return
