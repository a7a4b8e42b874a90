"""Session settings: one JSON object per session that its runner reads."""

from __future__ import annotations

from typing import Any

import msgspec

from dex_agents.session.persistence import SESSION_SETTINGS, TURN_SESSION_SETTINGS
from dex_agents.session.plan_values import TurnSessionSettings
from dex_agents.session.sanitizer import is_deeper_than, sanitize_json_value
from dex_agents.session.turn_limits import TurnLimits, limits_in_force
from dex_flow import StateView, Transaction

__all__ = [
    "INVALID_START_SESSION_SETTINGS_REASON",
    "MAX_SESSION_SETTINGS_BYTES",
    "SESSION_SETTINGS_SIZE_TOLERANCE_BYTES",
    "copy_settings_for_turn",
    "nesting_problem",
    "session_settings_size",
    "settings_problem",
    "turn_settings",
    "validate_session_settings",
]

MAX_SESSION_SETTINGS_BYTES = 16 * 1024
MAX_SESSION_SETTINGS_DEPTH = 50
#: Other languages write some floats and escapes longer; the session itself accepts this much more.
SESSION_SETTINGS_SIZE_TOLERANCE_BYTES = 1024
#: How the reason of a session starts that failed because of its start settings.
INVALID_START_SESSION_SETTINGS_REASON = "the session was started with invalid session_settings"


def session_settings_size(settings: dict[str, Any]) -> int:
    """UTF-8 bytes of the settings as compact JSON text.

    Raises:
        TypeError: They cannot be written as JSON.
        ValueError: They are nested too deeply.
    """
    if (problem := nesting_problem(settings)) is not None:
        raise ValueError(f"invalid session_settings: {problem}")
    return len(msgspec.json.encode(sanitize_json_value(settings)))


def nesting_problem(settings: object) -> str | None:
    """Why settings are nested too deeply for everything that handles them by recursion, or None."""
    if is_deeper_than(settings, MAX_SESSION_SETTINGS_DEPTH):
        return f"they are nested more than {MAX_SESSION_SETTINGS_DEPTH} levels deep"
    return None


def validate_session_settings(settings: dict[str, Any]) -> None:
    """Check settings before they are sent.

    Raises:
        TypeError: They are not a JSON object.
        ValueError: They have more than 16 KiB as JSON or are nested too deeply, or turn limits cannot be; says which.
    """
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise TypeError(f"session_settings must be a JSON object: a dict with text keys, not {settings!r}")
    problem = settings_problem(settings, tolerance=0)
    if problem is not None:
        raise ValueError(f"invalid session_settings: {problem}")


def settings_problem(settings: dict[str, Any], *, tolerance: int = SESSION_SETTINGS_SIZE_TOLERANCE_BYTES) -> str | None:
    """Why these settings cannot be stored, or None.

    Args:
        settings: The settings, decoded from JSON.
        tolerance: Bytes accepted above the limit.
    """
    if not settings:
        return None
    if (problem := nesting_problem(settings)) is not None:
        return problem
    size = session_settings_size(settings)
    if size > MAX_SESSION_SETTINGS_BYTES + tolerance:
        return f"they have {size} bytes as JSON; the limit is {MAX_SESSION_SETTINGS_BYTES} bytes"
    try:
        limits_in_force(TurnLimits(), settings)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def copy_settings_for_turn(tx: Transaction, turn_id: str) -> None:
    """Give the turn that starts its own copy, so that an update counts from the next turn on."""
    settings = tx.get(SESSION_SETTINGS)
    if settings:
        tx.set(TURN_SESSION_SETTINGS, TurnSessionSettings(turn_id=turn_id, settings=settings))


def turn_settings(view: StateView, turn_id: str) -> dict[str, Any]:
    """The settings the turn started with; none when the copy is of another turn."""
    copy = view.get(TURN_SESSION_SETTINGS)
    return copy.settings if copy is not None and copy.turn_id == turn_id else {}
