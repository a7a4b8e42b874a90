"""Whether values of a declared type can be shared without a copy."""

from __future__ import annotations

import functools
from typing import Any

import msgspec.inspect

__all__ = ["is_immutable_type"]

_PLAIN = (
    msgspec.inspect.BoolType,
    msgspec.inspect.BytesType,
    msgspec.inspect.DateTimeType,
    msgspec.inspect.DateType,
    msgspec.inspect.DecimalType,
    msgspec.inspect.EnumType,
    msgspec.inspect.FloatType,
    msgspec.inspect.IntType,
    msgspec.inspect.LiteralType,
    msgspec.inspect.NoneType,
    msgspec.inspect.RawType,
    msgspec.inspect.StrType,
    msgspec.inspect.TimeDeltaType,
    msgspec.inspect.TimeType,
    msgspec.inspect.UUIDType,
)


@functools.cache
def is_immutable_type(value_type: Any) -> bool:
    """Whether nothing in a decoded value of this type can be changed in place; False when in doubt."""
    return _is_immutable(msgspec.inspect.type_info(value_type), set())


def _is_immutable(info: msgspec.inspect.Type, seen: set[type]) -> bool:
    if isinstance(info, _PLAIN):
        return True
    if isinstance(info, msgspec.inspect.Metadata):
        return _is_immutable(info.type, seen)
    if isinstance(info, msgspec.inspect.UnionType):
        return all(_is_immutable(each, seen) for each in info.types)
    if isinstance(info, msgspec.inspect.TupleType):
        return all(_is_immutable(each, seen) for each in info.item_types)
    if isinstance(info, (msgspec.inspect.VarTupleType, msgspec.inspect.FrozenSetType)):
        return _is_immutable(info.item_type, seen)
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in seen:
            return True
        seen.add(info.cls)
        return info.cls.__struct_config__.frozen and all(_is_immutable(field.type, seen) for field in info.fields)
    return False
