"""Running a coroutine so that Ctrl-C and SIGTERM cancel it, and its clean-up runs to the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["InterruptedBySignal", "run_interruptibly"]

Result = TypeVar("Result")


class InterruptedBySignal(Exception):
    """The coroutine was cancelled by a signal.

    Attributes:
        exit_code: What a process ends with that this signal interrupted.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number


def run_interruptibly(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` that ends with `InterruptedBySignal` after SIGINT or SIGTERM."""
    received: list[int] = []

    async def run() -> Result:
        task = asyncio.ensure_future(main)

        def cancel(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, cancel, number)
        return await task

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        if not received:
            raise
        raise InterruptedBySignal(received[0]) from None
