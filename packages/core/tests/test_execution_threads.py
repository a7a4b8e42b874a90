"""Synchronous calls off the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest

from dex_agents.execution.threads import SyncCallThreads, run_sync_call

request_name: contextvars.ContextVar[str] = contextvars.ContextVar("request_name", default="none")


def test_a_call_runs_in_another_thread_with_the_callers_context() -> None:
    def describe(prefix: str, *, suffix: str) -> tuple[str, int]:
        return f"{prefix}{request_name.get()}{suffix}", threading.get_ident()

    async def main() -> tuple[str, int]:
        request_name.set("order-7")
        return await run_sync_call(describe, "<", suffix=">")

    text, thread_id = asyncio.run(main())
    assert text == "<order-7>"
    assert thread_id != threading.get_ident()


def test_a_change_of_context_in_the_thread_stays_there() -> None:
    async def main() -> str:
        request_name.set("outside")
        await run_sync_call(request_name.set, "inside")
        return request_name.get()

    assert asyncio.run(main()) == "outside"


def test_the_loop_goes_on_while_a_call_blocks() -> None:
    release = threading.Event()

    async def main() -> bool:
        call = asyncio.create_task(run_sync_call(release.wait, 30))
        await asyncio.sleep(0)  # the loop runs other work while the thread blocks
        release.set()
        return await call

    assert asyncio.run(main()) is True


def test_no_more_calls_run_at_once_than_there_are_threads() -> None:
    lock = threading.Lock()
    running = 0
    most = 0
    both_started = threading.Barrier(2)

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both_started.wait(30)
        with lock:
            running -= 1

    async def main() -> None:
        threads = SyncCallThreads(2)
        try:
            await asyncio.gather(*(threads.run(call) for _ in range(8)))
        finally:
            threads.close()

    asyncio.run(main())
    assert most == 2


def test_cancelling_returns_at_once_and_a_waiting_call_never_begins() -> None:
    release = threading.Event()
    begun = threading.Event()
    ended = threading.Event()
    second_began = threading.Event()

    def first() -> None:
        begun.set()
        release.wait(30)
        ended.set()

    async def main() -> None:
        threads = SyncCallThreads(1)
        try:
            running = asyncio.create_task(threads.run(first))
            await asyncio.to_thread(begun.wait, 30)
            waiting = asyncio.create_task(threads.run(second_began.set))
            await asyncio.sleep(0)
            for task in (running, waiting):
                task.cancel()
            outcomes = await asyncio.gather(running, waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2
            assert not ended.is_set()
            release.set()
            await threads.run(lambda: None)  # the same thread, so everything before it is over
        finally:
            release.set()
            threads.close()

    asyncio.run(main())
    assert ended.is_set()
    assert not second_began.is_set()


def test_exceptions_come_back_and_stop_iteration_does_not_hang() -> None:
    def refuse() -> None:
        raise LookupError("no such order")

    def exhaust() -> None:
        next(iter(()))

    async def main() -> None:
        with pytest.raises(LookupError, match="no such order"):
            await run_sync_call(refuse)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(run_sync_call(exhaust), 30)

    asyncio.run(main())


FORKING_PROGRAM = """
import asyncio, os
from dex_agents import run_sync_call

assert asyncio.run(run_sync_call(lambda: 1)) == 1
child = os.fork()
if child == 0:
    os._exit(asyncio.run(asyncio.wait_for(run_sync_call(lambda: 7), 30)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING_PROGRAM]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert finished.stdout == "7\n"


@pytest.mark.parametrize("max_threads", [0, -1, True, 1.5])
def test_a_wrong_number_of_threads_is_refused(max_threads: object) -> None:
    with pytest.raises(ValueError, match="max_threads must be a whole number of at least 1"):
        SyncCallThreads(max_threads)  # type: ignore[arg-type]
