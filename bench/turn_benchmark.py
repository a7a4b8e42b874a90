"""The turn benchmark: rounds of ours and of the floor in turn, so that noise of the machine hits both."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from bench.compacted_session import CompactedTurns, run_compacted_session
from bench.measurements import Round, TurnSummary, median_milliseconds, summarize
from bench.raw_sqlite_floor import run_floor_round
from bench.session_turns import (
    Durability,
    LongSession,
    TurnCosts,
    measure_turn_costs,
    record_session_round,
    run_long_session,
    run_session_round,
    session_lanes,
)
from bench.statement_recording import Recording
from bench.sync_calls import count_sync_calls_per_turn
from bench.worker_processes import run_process_round

__all__ = ["TurnBenchmark", "TurnBenchmarkSize", "TurnReport"]

Report = Callable[[str], None]

_EARLY_TURNS = slice(4, 15)
_LATE_TURNS = slice(994, 1_005)


@dataclass(frozen=True, slots=True)
class TurnBenchmarkSize:
    """How much to run.

    Attributes:
        rounds: Rounds of each kind, one kind after the other, repeated.
        turns: Turns of a round that runs one session at a time.
        sessions: How many sessions run at the same time in the other rounds.
        turns_per_session: Turns of each of them.
        counted_turns: Turns in which commits, bytes and system calls are counted.
        long_turns: Turns of the long session; fewer than 1,005 leave `turn_1000_ms` out.
        runs_compacted_session: Whether sessions with compaction run, of over 1,000 turns.
    """

    rounds: int = 3
    turns: int = 64
    sessions: int = 50
    turns_per_session: int = 8
    counted_turns: int = 40
    long_turns: int = 1_005
    runs_compacted_session: bool = True

    @classmethod
    def quick(cls) -> TurnBenchmarkSize:
        """A few seconds; the numbers are rough."""
        return cls(
            rounds=1, turns=10, turns_per_session=1, counted_turns=10, long_turns=15, runs_compacted_session=False
        )


@dataclass(frozen=True, slots=True)
class TurnReport:
    """What the benchmark found; the field names are the keys of its JSON.

    Attributes:
        power: Every commit flushed to disk, by `sessions_<n>`.
        process: Commits survive a killed process.
        floor: Raw SQLite that runs the same statements; commits that wait together are flushed together, as ours are.
        floor_single_commits: The same without group commit: every commit is flushed by itself.
        processes_2: As `power`, the concurrent sessions spread over two worker processes on one file.
        syncs_per_turn: Flushes to disk of a turn in `power`.
        syncs_counted_by: `strace`, or `durable_commits` where nothing may be traced.
        commits_per_turn: Flushed commits of a turn with a single-attempt tool.
        repeatable_tool_commits_per_turn: The same with a tool that may run again.
        live_commits_per_turn: Commits of live events, which are not flushed.
        bytes_per_turn: Growth of the database file.
        turn_10_ms: Median of turns 5 to 15 of one session in `process`.
        turn_1000_ms: Median of turns 995 to 1005; None when so many were not run.
        turn_10_model_attempts_ms: What the two model attempts of such a turn take, loading the model input included.
        turn_1000_model_attempts_ms: See above.
        ratio_1: Our median time of a turn over the floor's, one session.
        ratio_50: Our turns per second over the floor's, concurrent sessions.
        ratio_50_single_commits: Our turns per second over those of the floor without group commit.
        sqlite: SQLite's version.
        python: Python's version.
        cpus: Processors of the machine.
        load: Its load average of the last minute, at the end.
        compacted_turn_200_ms: See `CompactedTurns`; None when those sessions were not run.
        compacted_turn_1000_ms: See above.
        compacted_ratio: See above.
    """

    power: dict[str, TurnSummary]
    process: dict[str, TurnSummary]
    floor: dict[str, TurnSummary]
    floor_single_commits: dict[str, TurnSummary]
    processes_2: dict[str, TurnSummary]
    syncs_per_turn: float
    syncs_counted_by: str
    commits_per_turn: float
    repeatable_tool_commits_per_turn: float
    live_commits_per_turn: float
    bytes_per_turn: int
    turn_10_ms: float
    turn_1000_ms: float | None
    turn_10_model_attempts_ms: float
    turn_1000_model_attempts_ms: float | None
    ratio_1: float
    ratio_50: float
    ratio_50_single_commits: float
    sqlite: str
    python: str
    cpus: int
    load: float
    compacted_turn_200_ms: float | None
    compacted_turn_1000_ms: float | None
    compacted_ratio: float | None


class TurnBenchmark:
    """One run of the benchmark.

    Args:
        size: How much to run.
        report: Told in a few words what runs now.
    """

    def __init__(self, size: TurnBenchmarkSize, report: Report) -> None:
        self._size = size
        self._report = report
        self._file_numbers = count(1)

    async def run(self) -> TurnReport:
        """Run everything, on files in a temporary directory."""
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            return await self._run(Path(directory))

    async def _run(self, directory: Path) -> TurnReport:
        size = self._size

        def new_file() -> Path:
            return directory / f"{next(self._file_numbers)}.db"

        self._report("counting commits and bytes")
        costs = await measure_turn_costs(new_file(), size.counted_turns, "single_attempt")
        repeatable_costs = await measure_turn_costs(new_file(), size.counted_turns, "repeatable")
        self._report("counting flushes")
        syncs = await asyncio.to_thread(count_sync_calls_per_turn, size.counted_turns // 2, size.counted_turns)
        kinds: dict[str, dict[str, TurnSummary]] = {
            kind: {} for kind in ("power", "floor", "process", "floor_single_commits", "processes_2")
        }
        for sessions, turns in ((1, size.turns), (size.sessions, size.turns_per_session)):
            self._report(f"recording the statements of {sessions} sessions at the same time")
            recording = await record_session_round(new_file(), sessions, turns)
            lanes = session_lanes(sessions, turns)
            runs: dict[str, Callable[[], Awaitable[Round]]] = {
                "power": partial(_run_ours, new_file, sessions, turns, "power"),
                "floor": partial(_run_floor, new_file, recording, lanes, group_commit=True),
                "process": partial(_run_ours, new_file, sessions, turns, "process"),
            }
            if sessions > 1:
                runs["floor_single_commits"] = partial(_run_floor, new_file, recording, lanes, group_commit=False)
                runs["processes_2"] = partial(_run_processes, new_file, 2, sessions, turns)
            for kind, rounds in (await self._interleave(runs, sessions)).items():
                kinds[kind][f"sessions_{sessions}"] = summarize(rounds)
        self._report(f"one session of {size.long_turns} turns")
        long_session = await run_long_session(new_file(), size.long_turns)
        compacted = CompactedTurns()
        if size.runs_compacted_session:
            self._report("two sessions that compact, up to turn 1000")
            compacted = await run_compacted_session(new_file())
        return self._conclude(kinds, costs, repeatable_costs, syncs, long_session, compacted)

    async def _interleave(
        self, runs: Mapping[str, Callable[[], Awaitable[Round]]], sessions: int
    ) -> dict[str, list[Round]]:
        rounds: dict[str, list[Round]] = {kind: [] for kind in runs}
        for number in range(1, self._size.rounds + 1):
            for kind, run in runs.items():
                self._report(f"sessions at the same time: {sessions}, {kind}, round {number} of {self._size.rounds}")
                rounds[kind].append(await run())
        return rounds

    def _conclude(
        self,
        kinds: dict[str, dict[str, TurnSummary]],
        costs: TurnCosts,
        repeatable_costs: TurnCosts,
        syncs: float | None,
        long_session: LongSession,
        compacted: CompactedTurns,
    ) -> TurnReport:
        one, many = "sessions_1", f"sessions_{self._size.sessions}"
        power, floor = kinds["power"], kinds["floor"]
        has_late_turns = len(long_session.latencies) >= _LATE_TURNS.stop
        early_ms, early_model_ms = _medians(long_session, _EARLY_TURNS)
        late_ms, late_model_ms = _medians(long_session, _LATE_TURNS) if has_late_turns else (None, None)
        return TurnReport(
            **kinds,
            syncs_per_turn=costs.commits if syncs is None else syncs,
            syncs_counted_by="durable_commits" if syncs is None else "strace",
            commits_per_turn=costs.commits,
            repeatable_tool_commits_per_turn=repeatable_costs.commits,
            live_commits_per_turn=costs.live_commits,
            bytes_per_turn=costs.stored_bytes,
            turn_10_ms=early_ms,
            turn_1000_ms=late_ms,
            turn_10_model_attempts_ms=early_model_ms,
            turn_1000_model_attempts_ms=late_model_ms,
            ratio_1=round(power[one].median_ms / floor[one].median_ms, 2),
            ratio_50=round(power[many].turns_per_s / floor[many].turns_per_s, 2),
            ratio_50_single_commits=round(power[many].turns_per_s / kinds["floor_single_commits"][many].turns_per_s, 2),
            sqlite=sqlite3.sqlite_version,
            python=platform.python_version(),
            cpus=os.cpu_count() or 1,
            load=round(os.getloadavg()[0], 2),
            compacted_turn_200_ms=compacted.compacted_turn_200_ms,
            compacted_turn_1000_ms=compacted.compacted_turn_1000_ms,
            compacted_ratio=compacted.compacted_ratio,
        )


async def _run_ours(new_file: Callable[[], Path], lanes: int, turns: int, durability: Durability) -> Round:
    return await run_session_round(new_file(), lanes, turns, durability)


async def _run_processes(new_file: Callable[[], Path], processes: int, lanes: int, turns: int) -> Round:
    return await run_process_round(new_file(), processes, lanes, turns)


async def _run_floor(
    new_file: Callable[[], Path], recording: Recording, lanes: Sequence[Sequence[str]], *, group_commit: bool
) -> Round:
    return await run_floor_round(new_file(), recording, lanes, group_commit=group_commit)


def _medians(long_session: LongSession, turns: slice) -> tuple[float, float]:
    return median_milliseconds(long_session.latencies[turns]), median_milliseconds(long_session.model_attempts[turns])
