"""Session settings: one JSON object per session that its runner reads."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["MAX_SESSION_SETTINGS_BYTES", "SESSION_SETTINGS_SIZE_TOLERANCE_BYTES", "settings_problem"]

MAX_SESSION_SETTINGS_BYTES = 16 * 1024
#: Other languages write some floats and escapes longer; the session itself accepts this much more.
SESSION_SETTINGS_SIZE_TOLERANCE_BYTES = 1024


def settings_problem(settings: dict[str, Any]) -> str | None:
    """Why these settings cannot be stored, or None."""
    if not settings:
        return None
    size = len(msgspec.json.encode(settings))
    if size > MAX_SESSION_SETTINGS_BYTES + SESSION_SETTINGS_SIZE_TOLERANCE_BYTES:
        return f"they have {size} bytes as JSON; the limit is {MAX_SESSION_SETTINGS_BYTES} bytes"
    return None
