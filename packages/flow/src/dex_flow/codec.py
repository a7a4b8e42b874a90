"""Stored values: msgspec JSON in snake_case, unknown fields ignored, missing fields defaulted."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

__all__ = ["decode", "encode", "encoded_null", "prepare_decoder"]

_encoder = msgspec.json.Encoder()
encoded_null = b"null"


@functools.cache
def _decoder(value_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(value_type)


def encode(value: Any) -> bytes:
    """Encode one declared value as compact UTF-8 JSON."""
    return _encoder.encode(value)


def decode(value_type: Any, data: bytes) -> Any:
    """Decode UTF-8 JSON as `value_type`; `msgspec.ValidationError` when it does not fit."""
    return _decoder(value_type).decode(data)


def prepare_decoder(value_type: Any) -> None:
    """Build the decoder of a type before the first value comes; `TypeError` when msgspec knows no such type."""
    _decoder(value_type)
