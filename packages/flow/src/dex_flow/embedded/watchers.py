"""Who waits for changes of which execution."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator

__all__ = ["Watchers"]

_FALLBACK_SECONDS = 0.5


class Watchers:
    """Events of one event loop that are set when an execution may have changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: dict[str, set[asyncio.Event]] = {}

    @contextlib.contextmanager
    def watch(self, flow_id: str) -> Iterator[asyncio.Event]:
        """An event that is set after every change of the execution; clear it before you read."""
        event = asyncio.Event()
        self._events.setdefault(flow_id, set()).add(event)
        try:
            yield event
        finally:
            watching = self._events[flow_id]
            watching.discard(event)
            if not watching:
                del self._events[flow_id]

    def on_commit(self, changed: frozenset[str]) -> None:
        """A commit of this process; called on the writer thread."""
        if not changed.isdisjoint(self._events.keys()):
            with contextlib.suppress(RuntimeError):  # the loop closed meanwhile
                self._loop.call_soon_threadsafe(self._wake, changed)

    def wake_all(self) -> None:
        """A commit of another process, or the end of the engine."""
        self._wake(list(self._events))

    async def wake_regularly(self) -> None:
        """Wake-ups between processes are hints; this bounds what a lost one costs."""
        while True:
            await asyncio.sleep(_FALLBACK_SECONDS)
            self.wake_all()

    def _wake(self, flow_ids: Iterable[str]) -> None:
        for flow_id in flow_ids:
            for event in self._events.get(flow_id, ()):
                event.set()
