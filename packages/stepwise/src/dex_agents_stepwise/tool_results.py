"""Text of a tool's result, made while the tool runs so that nothing un-storable leaves it."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_jsonable_python

from dex_agents.session.sanitizer import sanitize_json_value

__all__ = ["UnrenderableToolResultError", "render_tool_result"]


class UnrenderableToolResultError(ValueError):
    """A tool ran to its end, but its result cannot be turned into text."""

    def __init__(self, tool_name: str, result_type: str, reason: str) -> None:
        super().__init__(
            f"the tool {tool_name} ran to its end, but its result of type {result_type} cannot be turned into text "
            f"({reason}); its effect may have taken place"
        )


def render_tool_result(tool_name: str, result: object) -> str:
    """The output text of `result`: a `str` as it is, anything else as JSON with `json.dumps`'s separators.

    Pydantic models, dataclasses, dates, decimals, sets and the like are converted by pydantic; bytes become text when
    they are UTF-8, else URL-safe base64; NaN and the infinities, which JSON cannot hold, become `null`.

    Raises:
        UnrenderableToolResultError: pydantic does not know the type, or converting it raised.
    """
    if isinstance(result, str):
        return "".join((result,))  # the text of a str subclass, whatever its __str__ says
    try:
        # Repaired before it becomes JSON text, whose escapes would hide a NUL from the session's repair.
        return json.dumps(sanitize_json_value(_jsonable(result)), ensure_ascii=False)
    except Exception as error:  # the effect has happened: whatever user code raises here must not look like a retry
        raise UnrenderableToolResultError(tool_name, type(result).__name__, _reason(error)) from error


def _jsonable(result: object) -> Any:
    try:
        return _finite(to_jsonable_python(result))
    except UnicodeDecodeError:
        return _finite(to_jsonable_python(result, bytes_mode="base64"))
    except UnicodeEncodeError:  # pydantic takes lone surrogates in values, but not in the keys of a dict
        return _finite(to_jsonable_python(sanitize_json_value(result)))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value


def _reason(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:  # an exception whose text raises is still an answer
        text = ""
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
