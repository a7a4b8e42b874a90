"""Decoded values of recently changed executions, valid for exactly one version of their stored state.

Every change raises the execution's version in the same transaction, from whatever process it comes, so an entry of the
current version cannot be stale. Entries are kept after a commit only: a transaction that is undone leaves none.
"""

from __future__ import annotations

from typing import Any

__all__ = ["KnownValues", "StateCache"]

KnownValues = dict[tuple[str, str], Any]

_MOST_EXECUTIONS = 1_024


class StateCache:
    """Known values by execution key; read on the writer thread, written where commits are reported."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[int, KnownValues]] = {}

    def get(self, flow_key: int, version: int) -> KnownValues:
        """What is known of this version; the caller may add what it reads of it."""
        entry = self._entries.get(flow_key)
        return entry[1] if entry is not None and entry[0] == version else {}

    def put(self, flow_key: int, version: int, known: KnownValues) -> None:
        """Keep what a committed command left."""
        if len(self._entries) >= _MOST_EXECUTIONS and flow_key not in self._entries:
            self._entries.clear()
        self._entries[flow_key] = (version, known)
