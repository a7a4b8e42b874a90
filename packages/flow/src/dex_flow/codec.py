"""Stored values: msgspec JSON in snake_case, unknown fields ignored, missing fields defaulted."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from dex_flow.errors import UnstorableValueError

__all__ = ["decode", "decode_input", "encode", "encode_declared", "encoded_null", "prepare_decoder"]

_encoder = msgspec.json.Encoder()
encoded_null = b"null"


@functools.cache
def _decoder(value_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(value_type)


def encode(value: Any) -> bytes:
    """Encode one declared value as compact UTF-8 JSON."""
    return _encoder.encode(value)


def encode_declared(value_type: Any, value: Any) -> tuple[bytes, Any]:
    """Encode a value that is to be read as `value_type`; raises when it cannot be encoded or not be read as its type.

    A struct or scalar of exactly that type is taken as it is; anything else is read back, which costs as much again.

    Returns:
        The JSON, and the value as it will be read.
    """
    data = _encoder.encode(value)
    if type(value) is value_type and value_type is not float:  # the JSON of a float that is no number is null
        return data, value
    return data, _decoder(value_type).decode(data)


def decode_input(what: str, value_type: Any, data: bytes) -> Any:
    """Decode what a caller sent; `UnstorableValueError`, naming `what`, when it is not of its type."""
    try:
        return _decoder(value_type).decode(data)
    except msgspec.DecodeError as error:
        raise UnstorableValueError(what, value_type, error) from error


def decode(value_type: Any, data: bytes) -> Any:
    """Decode UTF-8 JSON as `value_type`; `msgspec.ValidationError` when it does not fit."""
    return _decoder(value_type).decode(data)


def prepare_decoder(value_type: Any) -> None:
    """Build the decoder of a type before the first value comes; `TypeError` when msgspec knows no such type."""
    _decoder(value_type)
