"""Prints the demo for people: one line per fact, on a terminal with a progress line below them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dex_agents import AgentMessage, StreamedAgentEvent
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.facts import EventWritten, Fact, Happened, MessageStored, PhaseStarted, StepFinished
from dex_agents_server.demo.report import DemoReport
from dex_agents_server.demo.support_agent import REFUND_TOOL
from dex_flow import StepHistoryEntry

__all__ = ["Timeline"]

_STATUS_STYLES = {
    "succeeded": "green",
    "failed": "red",
    "rejected": "yellow",
    "outcome_unknown": "bold yellow",
}
_WHO = {
    "user": ("user", "bold blue"),
    "worker": ("worker", "blue"),
    "kill": ("KILL", "bold red"),
    "decision": ("you", "bold green"),
}
# Texts are shown once they are stored.
_HIDDEN_EVENTS = frozenset({"usage_recorded", "text_delta", "reasoning_delta"})


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
            "Two agent sessions refund an order. Each loses its worker to SIGKILL at a bad\n"
            "moment, and no refund runs twice. Sessions live in one SQLite file; every worker\n"
            "is a process of its own; the model is scripted.",
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
                self._progress.update(Text(heading, style="dim"))
                self._console.print()
                self._console.print(Text(heading, style="bold"))
            case Happened():
                self._line(fact.at, *_WHO[fact.who], Text(fact.text))
            case StepFinished():
                self._line(fact.at, "step", "cyan", _named(fact.entry.step_type, _describe_step(fact.entry)))
            case EventWritten():
                if fact.event.type not in _HIDDEN_EVENTS:
                    description = _describe_event(fact.event)
                    self._line(fact.at, "event", "magenta", _named(fact.event.type, description))
            case MessageStored():
                self._message(fact.at, fact.message)

    def _message(self, at: datetime, message: AgentMessage) -> None:
        if message.role == "tool":
            is_unknown = message.text == OUTCOME_UNKNOWN_TOOL_RESULT
            self._line(at, "model told", "bold yellow" if is_unknown else "yellow", Text(message.text))
        elif message.role == "assistant":
            self._line(at, "model says", "bold blue", Text(message.text))

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
        self._console.print(Text("What really ran, counted in the shop's own database", style="bold"))
        table = Table(box=SIMPLE_HEAD, padding=(0, 1))
        for heading in ("session", "tool", "runs", "recorded as", "paid back"):
            justify: Literal["left", "right"] = "right" if heading in ("runs", "paid back") else "left"
            table.add_column(heading, justify=justify, no_wrap=True)
        for session in report.sessions:
            session_id = session.session_id
            for (tool_name, runs), status in zip(session.tool_runs.items(), session.tool_statuses, strict=False):
                recorded = Text(status, style=_STATUS_STYLES.get(status, ""))
                paid_back = f"{session.payments} x" if tool_name == REFUND_TOOL else ""
                table.add_row(session_id, tool_name, str(runs), recorded, paid_back)
                session_id = ""
        self._console.print(table)
        for session in report.sessions:
            self._console.print(Text.assemble((f"{session.session_id}: ", "bold"), session.final_text))
            for milliseconds in session.recovery_ms:
                text = f"The next worker went on {milliseconds:g} ms after it had all it needed."
                self._console.print(Text(text, style="dim"))
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


def _describe_event(event: StreamedAgentEvent) -> Text:
    payload = event.payload
    tool_name = str(payload.get("tool_name", ""))
    match event.type:
        case "tool_call_deferred":
            return Text(f"{tool_name} ({payload['effect']})")
        case "tool_call_finished":
            status = str(payload["status"])
            return Text.assemble(f"{tool_name}: ", (status, _STATUS_STYLES.get(status, "")))
        case "interrupt_raised":
            return Text(f"may {tool_name} run?")
        case "interrupt_resolved":
            return Text("approved" if payload["approved"] else "rejected")
        case "tool_call_started":
            return Text(tool_name)
        case "turn_started" | "turn_completed":
            return Text("")
        case _:
            return Text(json.dumps(payload))
