"""The turn benchmark's findings as JSON and as a table for people."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from bench.turn_benchmark import TurnReport

__all__ = ["print_report", "report_json"]


def report_json(report: TurnReport) -> str:
    """One JSON object."""
    return json.dumps(asdict(report), indent=2)


def print_report(report: TurnReport, console: Console) -> None:
    """Tables, and what they say."""
    table = Table(title="One turn: message, model, tool, model, answer")
    for heading in ("sessions", "", "median ms", "p95 ms", "turns/s", "CPU ms/turn"):
        table.add_column(heading, justify="right")
    kinds = {
        "power": report.power,
        "power, 2 worker processes": report.processes_2,
        "process": report.process,
        "raw SQLite": report.floor,
        "raw SQLite, single commits": report.floor_single_commits,
    }
    for key in report.power:
        for kind, summaries in kinds.items():
            summary = summaries.get(key)
            if summary is None:
                continue
            table.add_row(
                key.removeprefix("sessions_"),
                kind,
                f"{summary.median_ms:.2f}",
                f"{summary.p95_ms:.2f}",
                f"{summary.turns_per_s:.0f}",
                f"{summary.cpu_ms_per_turn:.2f}",
            )
        table.add_section()
    console.print(table)
    console.print(
        f"Flushed commits per turn: {report.commits_per_turn:g} "
        f"({report.repeatable_tool_commits_per_turn:g} when the tool may run again); "
        f"flushes to disk: {report.syncs_per_turn:g} (counted by {report.syncs_counted_by}); "
        f"commits of live events, not flushed: {report.live_commits_per_turn:g}."
    )
    console.print(f"Stored per turn: {report.bytes_per_turn:,} bytes. Raw SQLite runs the same statements again.")
    console.print(
        f"One session: {report.ratio_1:.2f} times the time of raw SQLite. "
        f"Concurrent sessions: {report.ratio_50:.2f} of its turns per second, "
        f"{report.ratio_50_single_commits:.2f} when it does not join commits as we do."
    )
    console.print(_growth(report))
    console.print(_compacted_growth(report))
    console.print(
        f"SQLite {report.sqlite}, Python {report.python}, {report.cpus} processors, load {report.load:g} at the end."
    )


def _growth(report: TurnReport) -> str:
    early = f"Turn 10 of one session: {report.turn_10_ms:.2f} ms"
    if report.turn_1000_ms is None or report.turn_1000_model_attempts_ms is None:
        return f"{early}; turn 1000 was not run."
    rest_early = report.turn_10_ms - report.turn_10_model_attempts_ms
    rest_late = report.turn_1000_ms - report.turn_1000_model_attempts_ms
    return (
        f"{early}, turn 1000: {report.turn_1000_ms:.2f} ms. The two model attempts, which load the stored messages as "
        f"the model's input, took {report.turn_10_model_attempts_ms:.2f} and "
        f"{report.turn_1000_model_attempts_ms:.2f} ms of it; everything else took {rest_early:.2f} and "
        f"{rest_late:.2f} ms."
    )


def _compacted_growth(report: TurnReport) -> str:
    if report.compacted_turn_200_ms is None or report.compacted_turn_1000_ms is None:
        return "The session with compaction was not run."
    return (
        f"With compaction, turn 200 takes {report.compacted_turn_200_ms:.2f} ms and turn 1000 "
        f"{report.compacted_turn_1000_ms:.2f} ms: {report.compacted_ratio:.2f} times as long."
    )
