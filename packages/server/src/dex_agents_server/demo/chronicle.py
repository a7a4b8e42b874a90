"""Brings facts from several sources into the order of their times before they are shown."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from dex_agents_server.demo.facts import Fact, FactSink

__all__ = ["Chronicle", "running_chronicle"]

#: How long a fact is kept back for an earlier one that becomes known later.
_DELAY = timedelta(milliseconds=150)
_INTERVAL_SECONDS = 0.05


class Chronicle:
    """Shows each fact a moment after it happened, in the order of times; equal times keep the order of adding.

    Args:
        show: Gets the facts.
    """

    def __init__(self, show: FactSink) -> None:
        self._show = show
        self._numbers = itertools.count()
        self._waiting: list[tuple[datetime, int, Fact]] = []

    def add(self, fact: Fact) -> None:
        """Take a fact."""
        heapq.heappush(self._waiting, (fact.at, next(self._numbers), fact))

    def show_all(self) -> None:
        """Show everything now: nothing earlier can become known any more."""
        self._show_until(datetime.max.replace(tzinfo=UTC))

    async def keep_showing(self) -> None:
        """Show what has waited long enough, again and again, until cancelled."""
        while True:
            self._show_until(datetime.now(UTC) - _DELAY)
            await asyncio.sleep(_INTERVAL_SECONDS)

    def _show_until(self, until: datetime) -> None:
        while self._waiting and self._waiting[0][0] <= until:
            self._show(heapq.heappop(self._waiting)[2])


@contextlib.asynccontextmanager
async def running_chronicle(show: FactSink) -> AsyncIterator[Chronicle]:
    """A chronicle that shows facts while the body runs, and all of them by its end, however that comes."""
    chronicle = Chronicle(show)
    task = asyncio.create_task(chronicle.keep_showing())
    try:
        yield chronicle
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        chronicle.show_all()
