"""Heartbeats of an attempt, so that a silent model or tool call stays within the heartbeat timeout."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from dex_flow import Activity

__all__ = ["HEARTBEAT_INTERVAL_SECONDS", "BackgroundHeartbeats"]

HEARTBEAT_INTERVAL_SECONDS = 20.0


class BackgroundHeartbeats:
    """Heartbeats at an interval while its `with` block runs.

    A chain of loop timers rather than a task: leaving the block stops it without awaiting anything, so a cancelled
    attempt cannot leave it behind.

    Args:
        activity: The attempt that lives.
        interval_seconds: Time between two heartbeats, and until the first.
    """

    def __init__(self, activity: Activity, interval_seconds: float = HEARTBEAT_INTERVAL_SECONDS) -> None:
        self._activity = activity
        self._interval_seconds = interval_seconds
        self._loop = asyncio.get_running_loop()
        self._loop_thread_id = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None

    def heartbeat(self) -> None:
        """Say that the attempt lives, from the event loop or from a thread; ignored once the block is left."""
        if threading.get_ident() == self._loop_thread_id:
            self._beat()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._beat)

    def __enter__(self) -> Self:
        self._schedule()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._interval_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._schedule()
        self._beat()

    def _beat(self) -> None:
        if self._timer is not None:
            self._activity.heartbeat()
