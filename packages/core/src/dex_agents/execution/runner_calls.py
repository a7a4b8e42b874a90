"""Awaiting a runner's coroutine so that only a real cancellation looks like one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import TypeVar

from dex_agents.session.ingress import RunnerContractError

__all__ = ["EscapedCancellationError", "await_runner", "is_attempt_cancelled"]

Result = TypeVar("Result")


class EscapedCancellationError(Exception):
    """`CancelledError` came out of a runner although nobody cancelled the attempt; the attempt failed.

    Args:
        method: Name of the runner's method.
    """

    def __init__(self, method: str) -> None:
        super().__init__(
            f"{method} raised CancelledError although the attempt was not cancelled; "
            "a task or future of the framework was cancelled and its error not handled"
        )


async def await_runner(method: str, call: Awaitable[Result]) -> Result:
    """Await what a runner's method returned.

    A cancellation of the attempt passes through. A `CancelledError` that a framework lets escape from a task or future
    of its own becomes an ordinary error: taken for a cancellation, it would end the attempt without a result.

    Args:
        method: Name of the runner's method, for errors.
        call: What the method returned.

    Raises:
        RunnerContractError: The method is not a coroutine function.
        EscapedCancellationError: It raised `CancelledError` although the attempt was not cancelled.
    """
    if not inspect.isawaitable(call):
        raise RunnerContractError(f"{method} must be an async method; it returned {type(call).__name__}")
    try:
        return await call
    except asyncio.CancelledError as error:
        if is_attempt_cancelled():
            raise
        raise EscapedCancellationError(method) from error


def is_attempt_cancelled() -> bool:
    """Whether somebody cancelled the task this is called in; without a task nobody can tell, so it counts as one."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
