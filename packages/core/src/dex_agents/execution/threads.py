"""Running synchronous code off the event loop, so that a blocking tool never stops other sessions."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["DEFAULT_SYNC_CALL_THREADS", "SyncCallThreads", "run_sync_call"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

DEFAULT_SYNC_CALL_THREADS = 32


class SyncCallThreads:
    """A bounded set of threads for synchronous calls; further calls wait for a free thread.

    Threads are made when they are first needed and reused. `close` lets them go.

    Args:
        max_threads: Most calls that run at once, at least 1.

    Raises:
        ValueError: `max_threads` is less than 1.
    """

    def __init__(self, max_threads: int = DEFAULT_SYNC_CALL_THREADS) -> None:
        if isinstance(max_threads, bool) or not isinstance(max_threads, int) or max_threads < 1:
            raise ValueError(f"max_threads must be a whole number of at least 1, not {max_threads!r}")
        self._executor = ThreadPoolExecutor(max_threads, thread_name_prefix="dex-agents-sync-call")

    async def run(
        self, function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call `function` in a thread that sees the caller's context variables, and return its result.

        A thread cannot be stopped from outside. When the awaiting task is cancelled, a call that still waits for a
        thread never begins; a call that has begun runs to its end, keeps its thread until then, and its result or
        exception is dropped; a process that ends waits for it. A function that may run long should therefore have a
        timeout of its own.

        Raises:
            BaseException: Whatever `function` raises. `StopIteration` becomes a `RuntimeError`, because a coroutine
                cannot raise it.
        """
        call = functools.partial(contextvars.copy_context().run, _without_stop_iteration, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Drop the calls that wait for a thread and let the threads end; running calls are not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _without_stop_iteration(
    function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError(f"the function raised {error!r}") from error


@functools.cache
def _process_threads() -> SyncCallThreads:
    return SyncCallThreads()


if hasattr(os, "register_at_fork"):
    # A forked child has the executor's queue but none of its threads, so calls would wait for ever.
    os.register_at_fork(after_in_child=_process_threads.cache_clear)


async def run_sync_call(
    function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Call `function` on the threads that all sessions of this process share; see `SyncCallThreads.run`."""
    return await _process_threads().run(function, *args, **kwargs)
