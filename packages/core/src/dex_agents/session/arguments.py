"""Tool arguments as the model sent them: repaired, and accepted only when they are one JSON object."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NamedTuple

from dex_agents.session.sanitizer import sanitize_error_text, sanitize_json_text, text_size
from dex_agents.session.texts import invalid_arguments_text

__all__ = ["MAX_TOOL_ARGUMENTS_BYTES", "CheckedArguments", "check_arguments"]

MAX_TOOL_ARGUMENTS_BYTES = 1024 * 1024
EMPTY_ARGUMENTS = "{}"
_EXCERPT_CHARACTERS = 200
_TYPE_NAMES = {str: "a string", list: "an array", bool: "a boolean", int: "a number", float: "a number"}


class CheckedArguments(NamedTuple):
    """Arguments that can be stored and replayed.

    Attributes:
        text: JSON object text; `{}` when the arguments were blank or invalid.
        error: What the model is told when they were invalid; the call then fails without an approval.
    """

    text: str
    error: str | None = None


class _InvalidArgumentsError(ValueError):
    pass


def check_arguments(tool_name: str, arguments: str) -> CheckedArguments:
    """Check what the model sent. Blank means `{}`; anything else must be one JSON object.

    Refused are other JSON values, broken JSON, NaN and infinite numbers (which other JSON readers refuse), a repeated
    key (readers disagree on which one counts, so what a person approved might not be what runs), and over-long text.
    """
    text = sanitize_json_text(arguments).removeprefix("\ufeff").strip()
    if not text:
        return CheckedArguments(EMPTY_ARGUMENTS)
    size = text_size(text)
    if size > MAX_TOOL_ARGUMENTS_BYTES:
        too_large = f"they have {size} bytes; the limit is {MAX_TOOL_ARGUMENTS_BYTES} bytes"
        return CheckedArguments(EMPTY_ARGUMENTS, invalid_arguments_text(tool_name, too_large))
    problem = _problem(text)
    if problem is None:
        return CheckedArguments(text)
    excerpt = text if len(text) <= _EXCERPT_CHARACTERS else f"{text[:_EXCERPT_CHARACTERS]}..."
    error = invalid_arguments_text(tool_name, f"{problem}. The arguments were: {excerpt}")
    return CheckedArguments(EMPTY_ARGUMENTS, sanitize_error_text(error))


def _problem(text: str) -> str | None:
    try:
        value = _decoder.decode(text)
    except _InvalidArgumentsError as error:
        return str(error)
    except RecursionError:
        return "they are nested too deeply"
    except ValueError as error:
        return f"they are not valid JSON: {error}"
    if isinstance(value, dict):
        return None
    return f"they are {_TYPE_NAMES.get(type(value), 'null')}, not a JSON object"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = counts.most_common(1)[0][0]
        raise _InvalidArgumentsError(f"the key {json.dumps(repeated)} occurs more than once in one object")
    return members


def _refuse_constant(name: str) -> Any:
    raise _InvalidArgumentsError(f"{name} is not a JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _InvalidArgumentsError(f"the number {text[:50]} is out of range")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_float=_finite_float)
