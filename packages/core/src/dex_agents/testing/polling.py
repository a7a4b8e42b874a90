"""Waiting for what nothing announces: a condition that is asked again and again until a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

__all__ = ["poll_until"]

Value = TypeVar("Value")


@overload
async def poll_until(
    probe: Callable[[], Awaitable[Value | None]], *, awaited: str, timeout: float = 30.0, interval: float = 0.01
) -> Value: ...
@overload
async def poll_until(
    probe: Callable[[], Value | None], *, awaited: str, timeout: float = 30.0, interval: float = 0.01
) -> Value: ...
async def poll_until(probe: Callable[[], Any], *, awaited: str, timeout: float = 30.0, interval: float = 0.01) -> Any:
    """Ask `probe` until it gives neither None nor False, and return that.

    Prefer the waits of `AgentSessionTestClient`: they are told of a change and do not poll. This is for what the engine
    does not know, such as a file, an HTTP endpoint or a fake of a payment provider. What `probe` raises is not caught.

    Args:
        probe: A function or a coroutine function.
        awaited: What it waits for, for the error: "did not see {awaited} ...".
        timeout: Seconds. The probe is asked at least once, and one last time when they are over; it is not cut
            short, so give a request in it a timeout of its own.
        interval: Seconds between two questions.

    Raises:
        TimeoutError: The time is over; names what was awaited and the last answer.
    """
    deadline = time.monotonic() + timeout
    while True:
        is_last = time.monotonic() >= deadline
        answer = probe()
        seen = await answer if inspect.isawaitable(answer) else answer
        if seen is not None and seen is not False:
            return seen
        if is_last:
            raise TimeoutError(f"did not see {awaited} within {timeout:g} s; the last answer was {seen!r}")
        await asyncio.sleep(min(interval, max(deadline - time.monotonic(), 0)))
