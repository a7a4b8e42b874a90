"""The one place that repairs text on its way into the session.

The rule, for every text of a user, a model, a tool, a framework or an exception: a split surrogate pair is joined, a
lone surrogate becomes U+FFFD, U+0000 becomes U+FFFD, everything else stays as it is. JSON text is repaired in its
escapes too, because an escaped lone surrogate is stored quietly and breaks the next reader. Over-long names and error
texts are cut with a visible mark; texts whose content matters are never cut here, their limits are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dex_flow import ValueTooLargeError

__all__ = [
    "MAX_ERROR_CHARACTERS",
    "MAX_NAME_CHARACTERS",
    "MAX_USER_TEXT_BYTES",
    "check_text_size",
    "is_deeper_than",
    "sanitize_error_text",
    "sanitize_json_text",
    "sanitize_json_value",
    "sanitize_name",
    "sanitize_text",
    "text_size",
]

MAX_USER_TEXT_BYTES = 1024 * 1024
MAX_NAME_CHARACTERS = 1_000
MAX_ERROR_CHARACTERS = 4_000

_REPLACEMENT = "\ufffd"
_SUSPECT_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_HIGH = range(0xD800, 0xDC00)
_LOW = range(0xDC00, 0xE000)


def sanitize_text(text: str) -> str:
    """`text` as storable Unicode, by the rule of this module. Repairing twice changes nothing.

    Raises:
        TypeError: `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected text, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", _REPLACEMENT) if "\0" in text else text


def sanitize_json_text(text: str) -> str:
    r"""JSON text, repaired also where it escapes lone surrogates or NUL as `\uXXXX`; other escapes stay."""
    text = sanitize_text(text)
    if _SUSPECT_ESCAPE.search(text) is None:
        return text
    escapes = list(_ESCAPE.finditer(text))
    pieces: list[str] = []
    end = 0
    index = 0
    while index < len(escapes):
        escape = escapes[index]
        index += 1
        code = _code(escape)
        if code in _HIGH and _is_low_half(escapes, index, escape.end()):
            index += 1
            continue
        if code == 0 or code in _HIGH or code in _LOW:
            pieces += (text[end : escape.start()], "\\ufffd")
            end = escape.end()
    pieces.append(text[end:])
    return "".join(pieces)


def _is_low_half(escapes: list[re.Match[str]], index: int, start: int) -> bool:
    return index < len(escapes) and escapes[index].start() == start and _code(escapes[index]) in _LOW


def _code(escape: re.Match[str]) -> int:
    return int(escape[1], 16) if escape[1] else -1


def sanitize_json_value(value: Any) -> Any:
    """A JSON value with every text in it repaired, keys included."""
    match value:
        case str():
            return sanitize_text(value)
        case dict():
            return {sanitize_json_value(key): sanitize_json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [sanitize_json_value(item) for item in value]
        case _:
            return value


def is_deeper_than(value: Any, limit: int) -> bool:
    """Whether a JSON value is nested more than `limit` levels deep; whatever the depth, without recursion."""
    level = [value]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def sanitize_name(text: str) -> str:
    """A repaired name, cut with a mark when it is over-long."""
    return _shorten(sanitize_text(text), MAX_NAME_CHARACTERS)


def sanitize_error_text(text: str) -> str:
    """A repaired error text, cut with a mark when it is over-long."""
    return _shorten(sanitize_text(text), MAX_ERROR_CHARACTERS)


def text_size(text: str) -> int:
    """UTF-8 bytes of a repaired text."""
    return len(text) if text.isascii() else len(text.encode())


def check_text_size(what: str, text: str, limit: int = MAX_USER_TEXT_BYTES) -> None:
    """Refuse a text of more than `limit` UTF-8 bytes.

    Raises:
        ValueTooLargeError: It is larger; names `what`.
    """
    if len(text) * 3 > limit and (size := text_size(text)) > limit:
        raise ValueTooLargeError(what, size, limit)


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
