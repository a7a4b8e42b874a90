"""Budgets of one turn: model calls, tokens and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from dex_agents.session.option_checks import LONGEST_DURATION, check_whole_number
from dex_agents.session.texts import turn_limit_text
from dex_agents.session.values import AgentState

__all__ = [
    "TURN_LIMITS_SETTING",
    "CrossedLimit",
    "TurnLimits",
    "crossed_limit",
    "limits_in_force",
    "reached_limit_text",
]

#: The session setting that replaces the option's limits, field by field.
TURN_LIMITS_SETTING = "turn_limits"
_MOST = {"seconds": int(LONGEST_DURATION.total_seconds())}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """What one turn may use. Crossing a limit never stops a tool: the turn ends at its next model call.

    Args:
        model_calls: Most model calls.
        total_tokens: Most tokens of all its model calls together, as far as the runner reports them.
        seconds: Longest time from the turn's start, waits for people included; at most 365,000 days.

    Raises:
        TypeError: A limit is no whole number; names it.
        ValueError: A limit is below 1 or above what can be counted; names it.
    """

    model_calls: int | None = None
    total_tokens: int | None = None
    seconds: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                check_whole_number(f"turn_limits.{field.name}", value, 1, _MOST.get(field.name))


@dataclass(frozen=True, slots=True)
class CrossedLimit:
    """The limit a turn reached.

    Attributes:
        name: Field of `TurnLimits`.
        value: The limit.
    """

    name: str
    value: int


def crossed_limit(state: AgentState, limits: TurnLimits, now: datetime) -> CrossedLimit | None:
    """The first limit the active turn has reached, or None."""
    if limits.model_calls is not None and state.turn_model_calls >= limits.model_calls:
        return CrossedLimit("model_calls", limits.model_calls)
    if limits.total_tokens is not None and state.turn_total_tokens >= limits.total_tokens:
        return CrossedLimit("total_tokens", limits.total_tokens)
    started_at = state.turn_started_at
    if limits.seconds is not None and started_at is not None and now - started_at >= timedelta(seconds=limits.seconds):
        return CrossedLimit("seconds", limits.seconds)
    return None


def limits_in_force(limits: TurnLimits, settings: Mapping[str, Any]) -> TurnLimits:
    """The option's limits with those of the turn's settings in their place.

    Raises:
        TypeError: The setting is no JSON object of whole numbers; names what is wrong.
        ValueError: It names an unknown limit, or one has a value it cannot have.
    """
    setting = settings.get(TURN_LIMITS_SETTING)
    if setting is None:
        return limits
    if not isinstance(setting, Mapping):
        raise TypeError(f"session_settings.{TURN_LIMITS_SETTING} must be a JSON object, not {setting!r}")
    known = {field.name: getattr(limits, field.name) for field in fields(limits)}
    unknown = sorted(setting.keys() - known.keys())
    if unknown:
        raise ValueError(f"session_settings.{TURN_LIMITS_SETTING} has no limit {', '.join(unknown)}")
    return TurnLimits(**{**known, **setting})


def reached_limit_text(state: AgentState, limits: TurnLimits) -> str | None:
    """What a call is told that the active turn's last model call asked for; None before a limit is reached.

    Args:
        state: The session's state.
        limits: Those in force now.
    """
    if state.turn_limit_reached is None:
        return None
    return turn_limit_text(state.turn_limit_reached, getattr(limits, state.turn_limit_reached))
