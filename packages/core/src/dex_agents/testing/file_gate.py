"""One point in an agent's code at which a test can hold it, whichever process runs it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from dex_flow.testing import Gates

__all__ = ["FileGate"]

_NAME = re.compile(r"[A-Za-z0-9_-]+")


class FileGate:
    """A gate that is open until the test closes it.

    The agent's code passes through it, and the test closes it, waits until somebody stands there, and then opens it or
    kills the process. Both make a `FileGate` of their own with the same directory and name.

    Args:
        directory: Where the gate's files are; created when missing.
        name: Letters, digits, `_` and `-`.

    Raises:
        ValueError: The name has other characters.
    """

    def __init__(self, directory: Path, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a gate's name has letters, digits, '_' and '-' only, not {name!r}")
        self.name = name
        self._directory = directory
        self._gates = Gates(directory)

    # The test's side

    def close(self) -> None:
        """Whoever comes from now on stops here; who came before a gate was last closed is forgotten."""
        for mark in self._directory.glob(f"{self.name}.reached.*"):
            mark.unlink()
        self._gates.close(self.name)

    def open(self) -> None:
        """Let everybody go on.

        Raises:
            FileNotFoundError: The gate is open.
        """
        self._gates.open(self.name)

    async def wait_until_reached(self, *, process: int | None = None, timeout: float = 30.0) -> int:
        """Wait until a process stops at the closed gate, and return its ID.

        Args:
            process: Only this process.
            timeout: Seconds.

        Raises:
            TimeoutError: Nobody came in time.
        """
        return await asyncio.to_thread(self._gates.wait_until_reached, self.name, process=process, timeout=timeout)

    # The agent's side

    async def pass_through(self) -> None:
        """Go on when the gate is open; else wait without blocking the event loop."""
        await self._gates.pass_through(self.name)

    def pass_through_blocking(self) -> None:
        """The same for code that is not a coroutine; it blocks its thread."""
        self._gates.pass_through_blocking(self.name)
