"""Prints the demo for people: one line per fact, on a terminal with a progress line below them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dex_agents import StreamedAgentEvent
from dex_agents_server.demo.facts import EventWritten, Fact, Happened, PhaseStarted, StepFinished
from dex_agents_server.demo.report import DemoReport
from dex_flow import StepHistoryEntry

__all__ = ["Timeline"]

_STATUS_STYLES = {
    "succeeded": "green",
    "failed": "red",
    "rejected": "yellow",
    "outcome_unknown": "bold yellow",
}
_WHO_STYLES = {
    "user": "bold blue",
    "worker": "blue",
    "kill": "bold red",
    "decision": "bold green",
    "told": "bold yellow",
}
_WHO_NAMES = {"user": "user", "worker": "worker", "kill": "KILL", "decision": "you", "told": "model told"}
_HIDDEN_EVENTS = frozenset({"usage_recorded", "reasoning_delta"})


class Timeline:
    """Shows facts as they come.

    Args:
        console: Where to; a plain one gets the same lines without colours.
        started_at: The zero of the times shown.
    """

    def __init__(self, console: Console, started_at: datetime) -> None:
        self._console = console
        self._started_at = started_at
        self._progress = console.status("Starting", spinner="dots")

    def __enter__(self) -> Timeline:
        self._console.print(Text("dex-agents demo", style="bold"))
        self._console.print(
            "Two agent sessions, each with a worker killed by SIGKILL at a bad moment. No refund runs twice.\n"
            "Sessions live in one SQLite file; every worker is a process of its own.",
            highlight=False,
        )
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, fact: Fact) -> None:
        """Print one fact."""
        match fact:
            case PhaseStarted():
                heading = f"[{fact.number}/{fact.total}] {fact.title}"
                self._console.print()
                self._console.print(Text(heading, style="bold"))
                self._progress.update(Text(heading, style="dim"))
            case Happened():
                self._line(fact.at, _WHO_NAMES[fact.who], _WHO_STYLES[fact.who], Text(fact.text))
            case StepFinished():
                self._line(fact.at, "step", "cyan", _named(fact.entry.step_type, _describe_step(fact.entry)))
            case EventWritten():
                self._event(fact.at, fact.event)

    def _event(self, at: datetime, event: StreamedAgentEvent) -> None:
        if event.type in _HIDDEN_EVENTS:
            return
        payload = event.payload
        if event.type == "text_delta":
            self._line(at, "model", "bold magenta", Text(str(payload["text"])))
            return
        self._line(at, "event", "magenta", _named(event.type, _describe_event(event.type, payload)))

    def _line(self, at: datetime, who: str, style: str, what: RenderableType) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=8, justify="right", style="dim")
        grid.add_column(width=10)
        grid.add_column(ratio=1, overflow="fold")
        seconds = max(0.0, (at - self._started_at).total_seconds())
        grid.add_row(f"{seconds:.3f} s", Text(who, style=style), what)
        self._console.print(grid, highlight=False)

    def show_report(self, report: DemoReport, seconds: float) -> None:
        """Print what was counted, and whether all is as promised."""
        self._console.print()
        table = Table(title="Counted in the shop's own database", title_justify="left", title_style="bold")
        for heading in ("session", "tool", "runs", "recorded as", "refunds paid", "recovery"):
            table.add_column(heading, justify="right" if heading in ("runs", "refunds paid", "recovery") else "left")
        for session in report.sessions:
            recovery = ", ".join(f"{milliseconds:g} ms" for milliseconds in session.recovery_ms)
            first = (session.session_id, str(session.payments), recovery)
            for (tool_name, runs), status in zip(session.tool_runs.items(), session.tool_statuses, strict=False):
                session_id, payments, recovered = first
                recorded = Text(status, style=_STATUS_STYLES.get(status, ""))
                table.add_row(session_id, tool_name, str(runs), recorded, payments, recovered)
                first = ("", "", "")
            table.add_section()
        self._console.print(table)
        for session in report.sessions:
            self._console.print(Text.assemble((f"{session.session_id}: ", "bold"), session.final_text))
        self._console.print()
        problems = report.problems()
        if problems:
            for problem in problems:
                self._console.print(Text(f"NOT OK: {problem}", style="bold red"))
            return
        kills = sum(session.worker_kills for session in report.sessions)
        self._console.print(
            Text(f"OK: {kills} workers killed, every tool ran exactly once ({seconds:.1f} s).", style="bold green")
        )


def _named(name: str, details: Text) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=24)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(name, details)
    return grid


def _describe_step(entry: StepHistoryEntry) -> Text:
    if entry.method != "run":
        return Text("" if entry.outcome == "succeeded" else f"{entry.method} {entry.outcome}: {entry.detail or ''}")
    milliseconds = (entry.finished_at - entry.started_at).total_seconds() * 1_000
    if entry.outcome == "succeeded":
        return Text(f"attempt {entry.attempt}, {milliseconds:.0f} ms", style="dim")
    return Text(f"attempt {entry.attempt} {entry.outcome}: {entry.detail or ''}", style="bold yellow")


def _describe_event(event_type: str, payload: dict[str, Any]) -> Text:
    tool_name = str(payload.get("tool_name", ""))
    match event_type:
        case "tool_call_deferred":
            approval = ", needs approval" if payload["requires_approval"] else ""
            return Text(f"{tool_name} ({payload['effect']}{approval})")
        case "tool_call_finished":
            status = str(payload["status"])
            return Text.assemble(f"{tool_name}: ", (status, _STATUS_STYLES.get(status, "")))
        case "interrupt_raised":
            return Text(f"{tool_name} waits for your approval")
        case "interrupt_resolved":
            return Text("approved" if payload["approved"] else "rejected")
        case "tool_call_started":
            return Text(tool_name)
        case "turn_started" | "turn_completed":
            return Text("")
        case _:
            return Text(json.dumps(payload))
