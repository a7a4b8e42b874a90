"""Checks of a tool's JSON Schema when the tool is defined, so that a wrong one never reaches a model or a session."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import referencing
import referencing.exceptions
from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
from jsonschema.validators import Draft202012Validator, validator_for  # type: ignore[import-untyped]
from referencing.jsonschema import DRAFT202012

__all__ = ["checked_parameter_schema"]

# Their values are data, so a "$ref" or "pattern" inside them is not a keyword.
_DATA_KEYWORDS = frozenset({"const", "default", "enum", "example", "examples"})


def checked_parameter_schema(tool_name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A private copy of `schema`, checked to be a JSON Schema of an object that can be applied without any I/O.

    Args:
        tool_name: The tool it belongs to, for the error.
        schema: The JSON Schema of the arguments. `"type": "object"` and `"properties"` are added when absent.

    Raises:
        TypeError: It is not a mapping of JSON values.
        ValueError: It is not a valid JSON Schema, does not describe an object, has a `$ref` to somewhere outside
            itself, or a pattern that is not a Python regular expression.
    """
    if not isinstance(schema, Mapping):
        raise TypeError(f"tool {tool_name!r}: parameters must be a JSON Schema as a dict, not {type(schema).__name__}")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"tool {tool_name!r}: parameters must hold JSON values only: {error}") from error
    if copied.setdefault("type", "object") != "object":
        raise ValueError(f"tool {tool_name!r}: parameters must have type 'object', not {copied['type']!r}")
    copied.setdefault("properties", {})
    try:
        validator_for(copied, default=Draft202012Validator).check_schema(copied)
    except SchemaError as error:
        raise ValueError(f"tool {tool_name!r}: parameters is not a valid JSON Schema: {error.message}") from error
    _check_references(tool_name, copied)
    for pattern in _keyword_texts(copied, "pattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"tool {tool_name!r}: parameters has a bad pattern {pattern!r}: {error}") from error
    return copied


def _check_references(tool_name: str, schema: dict[str, Any]) -> None:
    resource = referencing.Resource.from_contents(schema, default_specification=DRAFT202012)
    base = resource.id() or ""
    registry: referencing.Registry[Any] = referencing.Registry().with_resource(base, resource)
    resolver = registry.resolver(base_uri=base)
    for reference in _keyword_texts(schema, "$ref"):
        try:
            resolver.lookup(reference)
        except referencing.exceptions.Unresolvable as error:
            raise ValueError(
                f"tool {tool_name!r}: parameters refers to {reference!r}, which is not inside it; "
                "put what it refers to under '$defs'"
            ) from error


def _keyword_texts(schema: Any, keyword: str) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == keyword and isinstance(value, str):
                yield value
            elif key not in _DATA_KEYWORDS:
                yield from _keyword_texts(value, keyword)
    elif isinstance(schema, list):
        for value in schema:
            yield from _keyword_texts(value, keyword)
