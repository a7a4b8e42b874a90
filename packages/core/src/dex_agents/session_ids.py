"""Names that callers choose: session IDs and request IDs."""

from __future__ import annotations

__all__ = ["MAX_REQUEST_ID_LENGTH", "MAX_SESSION_ID_LENGTH", "check_request_id", "check_session_id"]

MAX_SESSION_ID_LENGTH = 256
MAX_REQUEST_ID_LENGTH = 256


def check_session_id(session_id: str) -> str:
    """Return `session_id` when it can name a session: any non-empty text of at most 256 characters.

    Raises:
        TypeError: It is not text.
        ValueError: It is empty, too long, or not valid Unicode text.
    """
    return _check("session ID", session_id, MAX_SESSION_ID_LENGTH)


def check_request_id(request_id: str | None) -> str | None:
    """Return `request_id` when it can name a request: None, or any non-empty text of at most 256 characters.

    Raises:
        TypeError: It is not text.
        ValueError: It is empty, too long, or not valid Unicode text.
    """
    return None if request_id is None else _check("request ID", request_id, MAX_REQUEST_ID_LENGTH)


def _check(what: str, value: str, max_length: int) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {what} must be text, not {type(value).__name__}")
    if not value:
        raise ValueError(f"a {what} must not be empty")
    if len(value) > max_length:
        raise ValueError(f"a {what} has at most {max_length} characters, this one has {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a {what} must be valid Unicode text; {value!r} has a lone surrogate at position {error.start}"
        ) from None
    return value
