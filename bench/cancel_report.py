"""The cancel benchmark's findings as JSON and as a table for people."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from bench.cancel_benchmark import CancelReport, CancelSummary, Latency

__all__ = ["cancel_report_json", "print_cancel_report"]


def cancel_report_json(report: CancelReport) -> str:
    """One JSON object."""
    return json.dumps(asdict(report), indent=2)


def print_cancel_report(report: CancelReport, console: Console) -> None:
    """A table, and what it says."""
    table = Table(title="Cancelling a turn whose model call streams, in milliseconds")
    for heading in ("", "", "cancel_turn", "finally from call", "finally from return", "idle from return"):
        table.add_column(heading, justify="right")
    kinds = {"one process": report.in_process, "across processes": report.across_processes}
    for name, summary in kinds.items():
        latencies = (summary.cancel_turn, summary.finally_from_call, summary.coroutine_finally, summary.turn_over)
        table.add_row(name, "median", *(f"{latency.median_ms:.2f}" for latency in latencies))
        table.add_row(name, "p95", *(f"{latency.p95_ms:.2f}" for latency in latencies))
    console.print(table)
    for name, summary in kinds.items():
        console.print(_explain(name, summary))
    console.print(
        f"SQLite {report.sqlite}, Python {report.python}, {report.cpus} processors, load {report.load:g} at the end."
    )


def _explain(name: str, summary: CancelSummary) -> str:
    slow = summary.slow_cleanup
    met = "met" if summary.is_target_met else "missed"
    return (
        f"{name.capitalize()}: p95 below {summary.target_ms:g} ms is {met}. With a coroutine that takes "
        f"{slow.cleanup_ms:g} ms to end, {slow.over_before_cleanup} of {slow.cancels} turns were over before it did; "
        f"cancel_turn took {_shown(slow.cancel_turn)}, the idle session {_shown(slow.turn_over)} more."
    )


def _shown(latency: Latency) -> str:
    return f"{latency.median_ms:.2f} ms"
