"""The same concurrent sessions spread over several worker processes on one file: what one interpreter lock costs."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.measurements import Round, run_round
from bench.session_turns import open_sessions, run_lanes, session_lanes

__all__ = ["run_lanes_of_process", "run_process_round"]

_ROOT = Path(__file__).resolve().parents[1]
_READY = "ready"


async def run_process_round(path: Path, processes: int, lanes: int, turns: int) -> Round:
    """Run lanes at the same time on a new file, each worker process its share, every commit flushed.

    Args:
        path: The file.
        processes: Worker processes.
        lanes: How many sessions run at the same time in all processes together.
        turns: Turns of each lane.
    """
    children = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench", "run-lanes", "--file", str(path)),
            *("--process", str(number), "--processes", str(processes), "--lanes", str(lanes), "--turns", str(turns)),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(processes)
    ]
    try:
        for child in children:
            await _read_line(child, _READY)
        start = time.perf_counter()
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
        results = [json.loads(await _read_line(child)) for child in children]
        wall_seconds = time.perf_counter() - start
    finally:
        for child in children:
            assert child.stdin is not None
            child.stdin.close()
            await child.wait()
    return Round(
        latencies=[seconds for result in results for seconds in result["latencies"]],
        wall_seconds=wall_seconds,
        cpu_seconds=sum(result["cpu_seconds"] for result in results),
    )


async def run_lanes_of_process(path: Path, process: int, processes: int, lanes: int, turns: int) -> None:
    """One worker process: says when it is ready, waits for a line, runs its lanes and prints what it measured."""
    own: Sequence[Sequence[str]] = session_lanes(lanes, turns)[process::processes]
    session_ids = [session_id for lane in own for session_id in lane]
    async with open_sessions(path, session_ids, "power", "single_attempt") as (_, client, _):
        print(_READY, flush=True)
        if not await asyncio.to_thread(sys.stdin.readline):
            return
        measured = await run_round(lambda: run_lanes(client, own, turns))
        result = {"latencies": measured.latencies, "cpu_seconds": measured.cpu_seconds}
        print(json.dumps(result), flush=True)
        # Closing belongs to no turn, but the others still run theirs.
        await asyncio.to_thread(sys.stdin.readline)


async def _read_line(child: asyncio.subprocess.Process, expected: str | None = None) -> str:
    assert child.stdout is not None
    line = (await child.stdout.readline()).decode().strip()
    if not line or (expected is not None and line != expected):
        raise RuntimeError(f"a worker process of the benchmark ended early: {line!r}")
    return line
