"""Turn latencies: what a round measured, and the summary of several rounds."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Round", "TurnSummary", "median_milliseconds", "run_round", "summarize"]


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    Attributes:
        latencies: Seconds per turn.
        wall_seconds: From the first turn's start to the last one's end.
        cpu_seconds: CPU time the process used meanwhile, all threads.
    """

    latencies: list[float]
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """Several rounds of one kind: latencies over all turns, rates as the median of the rounds.

    Attributes:
        median_ms: Median milliseconds per turn.
        p95_ms: 95 of 100 turns took at most this many milliseconds.
        turns_per_s: Turns per second of all sessions together.
        cpu_ms_per_turn: CPU milliseconds per turn, all threads.
    """

    median_ms: float
    p95_ms: float
    turns_per_s: float
    cpu_ms_per_turn: float


async def run_round(turns: Callable[[], Awaitable[list[float]]]) -> Round:
    """Measure one round; `turns` runs it and returns the seconds of each turn."""
    cpu, start = time.process_time(), time.perf_counter()
    latencies = await turns()
    return Round(latencies, time.perf_counter() - start, time.process_time() - cpu)


def summarize(rounds: Sequence[Round]) -> TurnSummary:
    """Summarize at least one round of at least one turn."""
    latencies = sorted(seconds for each in rounds for seconds in each.latencies)
    return TurnSummary(
        median_ms=median_milliseconds(latencies),
        p95_ms=round(latencies[min(len(latencies) - 1, int(0.95 * len(latencies)))] * 1_000, 3),
        turns_per_s=round(median(len(each.latencies) / each.wall_seconds for each in rounds), 1),
        cpu_ms_per_turn=round(median(each.cpu_seconds / len(each.latencies) for each in rounds) * 1_000, 3),
    )


def median_milliseconds(latencies: Sequence[float]) -> float:
    """The median of some seconds, in milliseconds."""
    return round(median(latencies) * 1_000, 3)
