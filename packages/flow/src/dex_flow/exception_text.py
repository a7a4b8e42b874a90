"""Exceptions as text that can always be stored and shown."""

from __future__ import annotations

__all__ = ["describe_exception", "storable_text"]

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
