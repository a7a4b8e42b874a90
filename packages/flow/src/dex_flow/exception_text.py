"""Exceptions as text that can always be stored and shown."""

from __future__ import annotations

import traceback

__all__ = ["describe_exception", "storable_text", "unstorable_traceback"]

MAX_CHARACTERS = 4_000


def storable_text(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """`text` as valid Unicode (lone surrogates become U+FFFD), cut with a mark when it is longer than the limit."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if len(text) <= max_characters:
        return text
    return f"{text[:max_characters]}... ({len(text)} characters)"


def describe_exception(error: BaseException) -> tuple[str, str]:
    """Class name and message of an exception, also of one whose own `__str__` raises."""
    try:
        message = str(error)
    except Exception as raised:
        message = f"(its text cannot be shown: {type(raised).__name__})"
    return storable_text(type(error).__name__), storable_text(message)


def unstorable_traceback(error: BaseException | None) -> str | None:
    """The repaired traceback of an exception that cannot be logged as it is; None when it can.

    A handler that writes UTF-8 loses a record whose traceback has a lone surrogate.
    """
    if error is None:
        return None
    text = "".join(traceback.format_exception(error)).rstrip()
    repaired = text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return None if repaired == text else repaired
