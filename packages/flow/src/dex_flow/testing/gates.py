"""Named points in a program at which a test can hold it: files in a directory that both sides see."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

__all__ = ["Gates"]

_POLL_SECONDS = 0.005


class Gates:
    """Gates are open until they are closed.

    Args:
        directory: Where the files are; created when missing.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

    # The test's side

    def close(self, point: str) -> None:
        """Whoever comes to `point` from now on stops there."""
        self._closed(point).touch()

    def open(self, point: str) -> None:
        """Let everybody at `point` go on."""
        self._closed(point).unlink()

    def wait_until_reached(self, point: str, *, process: int | None = None, timeout: float = 30.0) -> int:
        """Wait until a process (or this one) stops at the closed gate, and return its ID.

        Raises:
            TimeoutError: Nobody came within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for path in self._directory.glob(f"{point}.reached.*"):
                reached_by = int(path.suffix[1:])
                if process is None or process == reached_by:
                    return reached_by
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"nobody reached {point!r} within {timeout:g} s")

    def has_reached(self, point: str, process: int) -> bool:
        """Whether this process stopped at the gate."""
        return self._reached(point, process).exists()

    # The program's side

    async def pass_through(self, point: str) -> None:
        """Go on when the gate is open; else say so and wait without blocking the event loop."""
        if not self._must_stop(point):
            return
        while True:  # another process opens the gate: there is no event to wait for
            await asyncio.sleep(_POLL_SECONDS)
            if not self._closed(point).exists():
                return

    def pass_through_blocking(self, point: str) -> None:
        """The same for code that is not a coroutine; it blocks its thread."""
        if self._must_stop(point):
            while self._closed(point).exists():
                time.sleep(_POLL_SECONDS)

    def _must_stop(self, point: str) -> bool:
        if not self._closed(point).exists():
            return False
        self._reached(point, os.getpid()).touch()
        return True

    def _closed(self, point: str) -> Path:
        return self._directory / f"{point}.closed"

    def _reached(self, point: str, process: int) -> Path:
        return self._directory / f"{point}.reached.{process}"
