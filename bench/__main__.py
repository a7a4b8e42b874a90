"""Command line of the benchmarks."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.cancel_benchmark import CancelBenchmarkSize, run_cancel_benchmark
from bench.cancel_report import cancel_report_json, print_cancel_report
from bench.cancel_worker import run_cancel_worker
from bench.session_turns import run_turns
from bench.turn_benchmark import TurnBenchmark, TurnBenchmarkSize
from bench.turn_report import print_report, report_json
from bench.worker_processes import run_lanes_of_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the arguments name."""
    options = _parser().parse_args(arguments)
    if options.benchmark == "run-turns":
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            asyncio.run(run_turns(Path(directory) / "turns.db", options.turns))
        return 0
    if options.benchmark == "run-lanes":
        asyncio.run(
            run_lanes_of_process(options.file, options.process, options.processes, options.lanes, options.turns)
        )
        return 0
    if options.benchmark == "run-cancel-worker":
        asyncio.run(run_cancel_worker(options.path, options.cleanup_seconds))
        return 0
    if options.benchmark == "cancel":
        return _run_cancel_benchmark(options)
    size = TurnBenchmarkSize.quick() if options.quick else TurnBenchmarkSize()
    if options.turns is not None:
        size = replace(size, turns=options.turns)
    if options.sessions is not None:
        size = replace(size, sessions=options.sessions)
    # Progress goes to the terminal and never into the JSON.
    progress = Console(stderr=True)
    with progress.status("starting") as status:
        report = asyncio.run(TurnBenchmark(size, status.update).run())
    if options.json:
        print(report_json(report))
    else:
        print_report(report, Console())
    return 0


def _run_cancel_benchmark(options: argparse.Namespace) -> int:
    size = CancelBenchmarkSize() if options.cancels is None else CancelBenchmarkSize(cancels=options.cancels)
    progress = Console(stderr=True)
    with progress.status("starting") as status:
        report = asyncio.run(run_cancel_benchmark(size, status.update))
    if options.json:
        print(cancel_report_json(report))
    else:
        print_cancel_report(report, Console())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of durable agent sessions.")
    benchmarks = parser.add_subparsers(dest="benchmark", required=True)
    turn = benchmarks.add_parser("turn", help="time and disk cost of one turn, beside raw SQLite")
    turn.add_argument("--json", action="store_true", help="print one JSON object")
    turn.add_argument("--turns", type=_at_least(1), metavar="N", help="turns of a round with one session")
    turn.add_argument("--sessions", type=_at_least(2), metavar="N", help="concurrent sessions of the other rounds")
    turn.add_argument("--quick", action="store_true", help="a few seconds, rough numbers, no turn 1000")
    cancel = benchmarks.add_parser("cancel", help="how soon a cancellation reaches a streaming model call")
    cancel.add_argument("--json", action="store_true", help="print one JSON object")
    cancel.add_argument("--cancels", type=_at_least(1), metavar="N", help="cancelled turns of each kind")
    worker = benchmarks.add_parser("run-cancel-worker", help="only run the model calls of another process")
    worker.add_argument("path", type=Path, help="the database file")
    worker.add_argument("--cleanup-seconds", type=float, default=0.0, help="how long a cancelled call takes to end")
    turns = benchmarks.add_parser("run-turns", help="only run turns of one session, under a tracer or profiler")
    turns.add_argument("--turns", type=_at_least(1), default=100, metavar="N")
    lanes = benchmarks.add_parser("run-lanes", help="one worker process of a round with several; started by `turn`")
    lanes.add_argument("--file", type=Path, required=True)
    for name, least in (("process", 0), ("processes", 1), ("lanes", 1), ("turns", 1)):
        lanes.add_argument(f"--{name}", type=_at_least(least), required=True)
    return parser


def _at_least(minimum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}")
        return value

    return number


if __name__ == "__main__":
    sys.exit(main())
