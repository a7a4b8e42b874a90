"""The cancel benchmark: how soon a cancellation reaches a streaming model call, and that it waits for nobody."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measurements import median_milliseconds
from bench.session_cancels import CancelTimes, cancel_across_processes, cancel_in_process

__all__ = ["CancelBenchmarkSize", "CancelReport", "CancelSummary", "CleanupSummary", "Latency", "run_cancel_benchmark"]

IN_PROCESS_TARGET_MS = 50.0
ACROSS_PROCESSES_TARGET_MS = 500.0

CancelTurns = Callable[[Path, int, float], Awaitable[list[CancelTimes]]]


@dataclass(frozen=True, slots=True)
class CancelBenchmarkSize:
    """How much to run.

    Attributes:
        cancels: Cancelled turns of each kind.
        slow_cancels: Further ones whose model takes its time to clean up.
        cleanup_seconds: That time.
    """

    cancels: int = 200
    slow_cancels: int = 10
    cleanup_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds; 95 of 100 took at most `p95_ms`."""

    median_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class CleanupSummary:
    """Cancelled turns whose model coroutine takes `cleanup_ms` to end.

    Attributes:
        cleanup_ms: How long its `finally` takes.
        cancels: How many turns.
        over_before_cleanup: In how many `cancel_turn` returned, and the turn was over, before the `finally` ended.
        cancel_turn: The call.
        turn_over: From its return until the client sees an idle session.
    """

    cleanup_ms: float
    cancels: int
    over_before_cleanup: int
    cancel_turn: Latency
    turn_over: Latency


@dataclass(frozen=True, slots=True)
class CancelSummary:
    """Cancelled turns of one kind.

    Attributes:
        cancels: How many turns.
        cancel_turn: How long the call takes.
        finally_from_call: From its beginning to the `finally` of the model's coroutine.
        coroutine_finally: From its return to that `finally`; 0 when that came first, as in one process it does.
        turn_over: From its return until the client sees an idle session.
        target_ms: The aim for the p95 of `coroutine_finally`.
        is_target_met: Whether it was met.
        slow_cleanup: The same with a coroutine that is slow to end.
    """

    cancels: int
    cancel_turn: Latency
    finally_from_call: Latency
    coroutine_finally: Latency
    turn_over: Latency
    target_ms: float
    is_target_met: bool
    slow_cleanup: CleanupSummary


@dataclass(frozen=True, slots=True)
class CancelReport:
    """What the benchmark found; the field names are the keys of its JSON.

    Attributes:
        in_process: Client and model call in one process.
        across_processes: The client in one process, the model call in a worker process.
        sqlite: SQLite's version.
        python: Python's version.
        cpus: Processors of the machine.
        load: Its load average of the last minute, at the end.
    """

    in_process: CancelSummary
    across_processes: CancelSummary
    sqlite: str
    python: str
    cpus: int
    load: float


async def run_cancel_benchmark(size: CancelBenchmarkSize, report: Callable[[str], None]) -> CancelReport:
    """Run everything, on files in a temporary directory.

    Args:
        size: How much to run.
        report: Told in a few words what runs now.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        report("cancelling in one process")
        in_process = await _measure(Path(directory) / "one", cancel_in_process, size, IN_PROCESS_TARGET_MS)
        report("cancelling across processes")
        across = await _measure(Path(directory) / "two", cancel_across_processes, size, ACROSS_PROCESSES_TARGET_MS)
    return CancelReport(
        in_process=in_process,
        across_processes=across,
        sqlite=sqlite3.sqlite_version,
        python=platform.python_version(),
        cpus=os.cpu_count() or 1,
        load=round(os.getloadavg()[0], 2),
    )


async def _measure(
    directory: Path, cancel_turns: CancelTurns, size: CancelBenchmarkSize, target_ms: float
) -> CancelSummary:
    await asyncio.to_thread(directory.mkdir)
    times = await cancel_turns(directory / "quick.db", size.cancels, 0.0)
    slow = await cancel_turns(directory / "slow.db", size.slow_cancels, size.cleanup_seconds)
    coroutine_finally = _latency([each.coroutine_finally for each in times])
    return CancelSummary(
        cancels=len(times),
        cancel_turn=_latency([each.cancel_turn for each in times]),
        finally_from_call=_latency([each.finally_from_call for each in times]),
        coroutine_finally=coroutine_finally,
        turn_over=_latency([each.turn_over for each in times]),
        target_ms=target_ms,
        is_target_met=coroutine_finally.p95_ms < target_ms,
        slow_cleanup=CleanupSummary(
            cleanup_ms=size.cleanup_seconds * 1_000,
            cancels=len(slow),
            over_before_cleanup=sum(each.was_first for each in slow),
            cancel_turn=_latency([each.cancel_turn for each in slow]),
            turn_over=_latency([each.turn_over for each in slow]),
        ),
    )


def _latency(seconds: Sequence[float]) -> Latency:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return Latency(median_ms=median_milliseconds(ordered), p95_ms=round(p95 * 1_000, 3))
