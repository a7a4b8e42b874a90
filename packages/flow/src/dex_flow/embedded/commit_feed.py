"""Which Flow executions a process has just changed, for every engine of that process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping

from dex_flow.embedded.group_writer import BatchSummary
from dex_flow.embedded.shared_file import SharedDatabase
from dex_flow.embedded.wake_up import WakeUpSender

__all__ = ["CommitFeed", "commit_feed"]

Listener = Callable[[Mapping[str, object], frozenset[object]], None]

_lock = threading.Lock()
_feeds: weakref.WeakKeyDictionary[SharedDatabase, CommitFeed] = weakref.WeakKeyDictionary()


class CommitFeed:
    """Collects changed flow IDs during a batch and reports them after its commit, here and to other processes."""

    def __init__(self, database: SharedDatabase) -> None:
        self._changed: dict[str, object] = {}
        self._authors: set[object] = set()
        self._listeners: tuple[Listener, ...] = ()
        self._sender = WakeUpSender(database.path)
        database.writer.after_commit.append(self._report)
        database.on_close.append(self._sender.close)

    def changed(self, flow_id: str, known_to: object = None, work_from: object = None) -> None:
        """Note a change; called on the writer thread inside the transaction.

        Args:
            flow_id: The execution.
            known_to: The engine that has the state after the change in memory, if any.
            work_from: Who made the change, when other engines of this process may have something to do about it.
        """
        self._changed[flow_id] = known_to if self._changed.get(flow_id, known_to) is known_to else None
        if work_from is not None:
            self._authors.add(work_from)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the writer thread after every commit; returns what ends it.

        It gets the changed flow IDs, each with the engine that has its state in memory or None, and who made changes
        that may be work for other engines.
        """
        with _lock:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with _lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return stop

    def _report(self, summary: BatchSummary) -> None:
        changed, self._changed = self._changed, {}
        authors = frozenset(self._authors)
        self._authors.clear()
        if summary.announce and summary.changed:
            self._sender.notify()
        if changed:
            for listener in self._listeners:
                listener(changed, authors)


def commit_feed(database: SharedDatabase) -> CommitFeed:
    """The one feed of a shared database."""
    with _lock:
        feed = _feeds.get(database)
        if feed is None:
            feed = _feeds[database] = CommitFeed(database)
        return feed
