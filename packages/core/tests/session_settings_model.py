"""What settings and turn limits promise: a turn keeps its copy, and a limit lets it make one last model call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dex_agents.session.values import AgentUsage

from .session_strategies import Configuration

__all__ = ["SettingsModel"]

_LIMITS = ("model_calls", "total_tokens", "seconds")


class SettingsModel:
    """The settings of the session and of its active turn, and what that turn used.

    Args:
        configuration: What the session and its runner can do.
        clock: Virtual time, microseconds since the epoch.
    """

    def __init__(self, configuration: Configuration, clock: Callable[[], int]) -> None:
        self.settings: dict[str, Any] = {}
        self.of_turn: dict[str, Any] = {}
        self.model_calls = 0
        self.total_tokens = 0
        self.reached: tuple[str, int] | None = None
        self._option = dict(zip(_LIMITS, configuration.turn_limits, strict=True))
        self._started_at = 0
        self._clock = clock

    def turn_starts(self) -> None:
        self.of_turn, self._started_at = dict(self.settings), self._clock()

    def turn_ends(self) -> None:
        self.model_calls, self.total_tokens, self.reached = 0, 0, None

    def used(self, usage: AgentUsage) -> None:
        self.model_calls += usage.model_calls
        self.total_tokens += usage.total_tokens

    def crossed(self) -> tuple[str, int] | None:
        """The first limit that the turn has reached by now."""
        limits = {**self._option, **(self.of_turn.get("turn_limits") or {})}
        seconds = (self._clock() - self._started_at) / 1_000_000
        for name, value in zip(_LIMITS, (self.model_calls, self.total_tokens, seconds), strict=True):
            if limits[name] is not None and value >= limits[name]:
                return name, limits[name]
        return None

    def limit_event(self, payload: dict[str, Any]) -> None:
        """The turn is said to have reached a limit."""
        assert self.reached is None, "a turn reached a limit twice"
        self.reached = self.crossed()
        assert (payload["limit"], payload["value"]) == self.reached

    def model_call_begins(self) -> None:
        assert self.reached or self.crossed() is None, f"the turn passed {self.crossed()} and nobody was told"

    @property
    def refusal(self) -> str | None:
        """What a call is told that the turn's last model call asks for."""
        if self.reached is None:
            return None
        name, value = self.reached
        return f"The tool call was not run: this turn reached its limit of {value} {name.replace('_', ' ')}."
