"""Timeouts of running attempts: one timer for all of a worker, because most attempts end long before theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["AttemptClocks", "TimedAttempt"]


class TimedAttempt(Protocol):
    """What the clocks need of an attempt."""

    def find_timeout(self, now: float) -> tuple[float | None, Exception | None]:
        """When to look again at the earliest, in loop time, or why the attempt is over; both None for never."""
        ...


Attempt = TypeVar("Attempt", bound=TimedAttempt)


class AttemptClocks(Generic[Attempt]):
    """Calls `on_timeout` for attempts that ran or were silent too long; used on the event loop.

    Args:
        loop: The event loop.
        on_timeout: Receives the attempt and why; the attempt is watched no more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_timeout: Callable[[Attempt, Exception], None]) -> None:
        self._loop = loop
        self._on_timeout = on_timeout
        self._attempts: dict[Attempt, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, attempt: Attempt) -> None:
        """Watch an attempt."""
        now = self._loop.time()
        due, error = attempt.find_timeout(now)
        if error is not None:
            due = now
        if due is not None:
            self._attempts[attempt] = None
            self._wake_at(due)

    def discard(self, attempt: Attempt) -> None:
        """The attempt is over. The timer stays: the next attempt's due time is hardly ever earlier."""
        self._attempts.pop(attempt, None)

    def close(self) -> None:
        """Watch nothing any more."""
        self._attempts.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        next_due: float | None = None
        for attempt in tuple(self._attempts):
            due, error = attempt.find_timeout(now)
            if error is not None:
                del self._attempts[attempt]
                self._on_timeout(attempt, error)
            elif due is not None and (next_due is None or due < next_due):
                next_due = due
        if next_due is not None:
            self._wake_at(next_due)
