"""Who waits for changes of which execution."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping

__all__ = ["Watch", "Watchers"]


class Watch:
    """One who waits for changes of an execution.

    Attributes:
        event: Set after every change; clear it before you read.
        version: The version that was looked at, so that a commit that changed other executions wakes nobody here; None
            when changes that do not raise it are of interest too.
    """

    __slots__ = ("check", "event", "version")

    def __init__(self, check: Callable[[], bool] | None) -> None:
        self.event = asyncio.Event()
        self.version: int | None = None
        self.check = check


class Watchers:
    """Events of one event loop that are set when an execution may have changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watches: dict[str, set[Watch]] = {}

    @contextlib.contextmanager
    def watch(self, flow_id: str, check: Callable[[], bool] | None = None) -> Iterator[Watch]:
        """Watch an execution inside the `with` block.

        Args:
            flow_id: The execution.
            check: Called on the event loop after a commit whose state this engine has in memory; when it returns
                False, the event is not set.
        """
        watch = Watch(check)
        self._watches.setdefault(flow_id, set()).add(watch)
        try:
            yield watch
        finally:
            watching = self._watches[flow_id]
            watching.discard(watch)
            if not watching:
                del self._watches[flow_id]

    def on_commit(self, changed: Mapping[str, bool]) -> None:
        """A commit of this process; called on the writer thread.

        Args:
            changed: By flow ID, whether this engine has the state in memory.
        """
        if not changed.keys().isdisjoint(self._watches.keys()):
            with contextlib.suppress(RuntimeError):  # the loop closed meanwhile
                self._loop.call_soon_threadsafe(self._wake, changed)

    @property
    def watched(self) -> list[str]:
        """IDs of the executions that somebody waits for."""
        return list(self._watches)

    def look(self, versions: Mapping[str, int], *, checks_time: bool) -> None:
        """Wake whoever has not seen these versions.

        Args:
            versions: By flow ID, what the file has now.
            checks_time: Whether to check those too who have seen them: what they wait for may depend on the clock.
        """
        for flow_id, version in versions.items():
            for watch in tuple(self._watches.get(flow_id, ())):
                if watch.version != version or (checks_time and (watch.check is None or watch.check())):
                    watch.event.set()

    def wake_all(self) -> None:
        """Anything may have changed, or the engine ends."""
        for watching in self._watches.values():
            for watch in watching:
                watch.event.set()

    def _wake(self, changed: Mapping[str, bool]) -> None:
        for flow_id, is_in_memory in changed.items():
            # A copy: what a check calls is code of others.
            for watch in tuple(self._watches.get(flow_id, ())):
                if not is_in_memory or watch.check is None or watch.check():
                    watch.event.set()
