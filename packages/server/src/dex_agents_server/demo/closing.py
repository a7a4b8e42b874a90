"""Prints what a scenario came to, whether that is what it promised, and what to do next."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dex_agents_server.demo.fact_texts import STATUS_STYLES
from dex_agents_server.demo.report import DemoReport, SessionReport
from dex_agents_server.demo.scenario import Scenario

__all__ = ["show_next", "show_report"]

_INDENT = (0, 0, 0, 2)


def show_report(console: Console, report: DemoReport, seconds: float) -> None:
    """Print what was found in each session, and whether all is as promised.

    Args:
        console: Where to.
        report: What was found.
        seconds: How long the scenario took.
    """
    console.print()
    console.print(Text("What came of it; runs and payments are counted in the shop's own database", style="bold"))
    for session in report.sessions:
        _show_session(console, session)
    console.print()
    problems = report.problems()
    for problem in problems:
        console.print(Text(f"NOT OK: {problem}", style="bold red"))
    if not problems:
        workers = "1 worker" if report.worker_kills == 1 else f"{report.worker_kills} workers"
        text = f"OK: {workers} killed, no tool ran twice, all is as promised ({seconds:.1f} s)."
        console.print(Text(text, style="bold green"))


def _show_session(console: Console, session: SessionReport) -> None:
    console.print()
    console.print(Text(session.session_id, style="bold"))
    if session.calls:
        console.print(Padding(_calls_table(session), _INDENT, expand=False))
    for order_id, payments in session.payments.items():
        _show(console, f"Order {order_id} was paid back {payments} x.")
    for milliseconds in session.recovery_ms:
        _show(console, f"The next worker went on {milliseconds:g} ms after it had all it needed.")
    for check in session.checks:
        if check.holds:
            _show(console, f"ok: {check.promise}.", "green")
        else:
            _show(console, f"NOT: {check.promise}.", "bold red")
    _show(console, f"Last answer: {session.final_text}", "bold blue")


def _calls_table(session: SessionReport) -> Table:
    table = Table.grid(padding=(0, 2))
    for call in session.calls:
        runs = f"ran {session.tool_runs[call.tool_name]} x" if call.tool_name in session.tool_runs else ""
        table.add_row(call.tool_name, runs, Text(call.status, style=STATUS_STYLES.get(call.status, "")))
    return table


def _show(console: Console, text: str, style: str = "") -> None:
    console.print(Padding(Text(text, style=style), _INDENT, expand=False))


def show_next(console: Console, scenario: Scenario, following: Scenario) -> None:
    """Print what to do next.

    Args:
        console: Where to.
        scenario: The one that was told.
        following: The one to see next.
    """
    console.print()
    console.print(Text("Next", style="bold"))
    for command, purpose in (
        (f"dex-agents demo --scenario {following.name}", following.summary),
        (f"dex-agents demo --scenario {scenario.name} --keep FOLDER", "keeps the databases to look into"),
    ):
        _show(console, command, "cyan")
        console.print(Padding(Text(purpose, style="dim"), (0, 0, 0, 4), expand=False))
    _show(console, "For an agent of your own, read packages/stepwise/README.md.")
