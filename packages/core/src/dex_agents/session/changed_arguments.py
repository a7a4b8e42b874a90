"""Arguments that a person puts in place of the model's before approving: checked, never trusted."""

from __future__ import annotations

import json
from typing import Any

from dex_agents.session.argument_validation import MAX_DEPTH, NESTED_TOO_DEEPLY, ArgumentValidator
from dex_agents.session.sanitizer import MAX_USER_TEXT_BYTES, is_deeper_than, sanitize_json_value, text_size

__all__ = ["changed_arguments_problem", "changed_arguments_text", "is_change"]


def changed_arguments_text(arguments: dict[str, Any]) -> str:
    """The stored form of changed arguments: repaired JSON object text."""
    return json.dumps(sanitize_json_value(arguments), ensure_ascii=False)


def is_change(arguments: dict[str, Any], proposed: str) -> bool:
    """Whether the arguments differ from the model's as JSON values; the order of keys and `5` for `5.0` do not count.

    Args:
        arguments: What the person wants to run, not nested too deeply.
        proposed: The JSON object text of the model.
    """
    return not _is_same(sanitize_json_value(arguments), json.loads(proposed))


def _is_same(one: Any, other: Any) -> bool:
    # Python takes True for 1, and JSON does not.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(item, other[key]) for key, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def changed_arguments_problem(arguments: dict[str, Any], schema_text: str | None) -> str | None:
    """Why a call cannot run with these arguments, or None.

    Args:
        arguments: What the person wants to run.
        schema_text: The JSON Schema stored when the model asked; None checks only what can be checked without one.
    """
    if is_deeper_than(arguments, MAX_DEPTH):
        return NESTED_TOO_DEEPLY
    text = changed_arguments_text(arguments)
    if text_size(text) > MAX_USER_TEXT_BYTES:
        return f"the arguments have {text_size(text)} bytes as JSON; the limit is {MAX_USER_TEXT_BYTES} bytes"
    if schema_text is None:
        return None
    try:
        problems = ArgumentValidator(json.loads(schema_text)).problems(json.loads(text))
    except Exception as broken:  # the schema came from a framework or a server: whatever it breaks, the edit is refused
        return f"the tool's JSON Schema cannot be used: {type(broken).__name__}: {broken}"
    return "; ".join(problems) or None
