"""Prints a scenario for people while it happens: one line per fact, on a terminal with a progress line below them."""

from __future__ import annotations

from datetime import datetime

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dex_agents import AgentMessage
from dex_agents.session import events
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.fact_texts import describe_event, describe_step
from dex_agents_server.demo.facts import EventWritten, Fact, Happened, MessageStored, PhaseStarted, StepFinished
from dex_agents_server.demo.scenario import Scenario

__all__ = ["Timeline"]

_WHO = {
    "user": ("user", "bold blue"),
    "worker": ("worker", "blue"),
    "model": ("model", "bold blue"),
    "kill": ("KILL", "bold red"),
    "decision": ("you", "bold green"),
}
# Texts are shown once they are stored.
_HIDDEN_EVENTS = frozenset({events.USAGE_RECORDED, events.TEXT_DELTA, events.REASONING_DELTA})
#: A narrower console has no column of its own for the names of Steps and events.
_COLUMN_MIN_WIDTH = 88
_NAME_WIDTH = 24
_SETTING = (
    "Sessions live in one SQLite file, every worker is a process of its own, and the model is scripted. A step line is "
    "a finished Step; under it stands what it committed."
)


class Timeline:
    """Shows facts as they come.

    Args:
        console: Where to; a plain one gets the same lines without colours.
        scenario: What is told.
        started_at: The zero of the times shown.
    """

    def __init__(self, console: Console, scenario: Scenario, started_at: datetime) -> None:
        self._console = console
        self._scenario = scenario
        self._started_at = started_at
        self._progress = console.status("Starting", spinner="dots")

    def __enter__(self) -> Timeline:
        self._console.print(Text(f"dex-agents demo --scenario {self._scenario.name}", style="bold"))
        self._console.print(Text(self._scenario.explanation))
        self._console.print(Text.assemble(("Watch: ", "bold"), self._scenario.watch))
        self._console.print(Text(_SETTING, style="dim"))
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
                self._line(fact.at, "step", "cyan", self._named(fact.entry.step_type, describe_step(fact.entry)))
            case EventWritten():
                if fact.event.type not in _HIDDEN_EVENTS:
                    description = describe_event(fact.event)
                    self._line(fact.at, "event", "magenta", self._named(fact.event.type, description))
            case MessageStored():
                self._message(fact.at, fact.message)

    def _message(self, at: datetime, message: AgentMessage) -> None:
        match message.role:
            case "user":
                self._line(at, "turn takes", "blue", Text(repr(message.text)))
            case "tool":
                is_unknown = message.text == OUTCOME_UNKNOWN_TOOL_RESULT
                self._line(at, "model told", "bold yellow" if is_unknown else "yellow", Text(message.text))
            case "assistant":
                self._line(at, "model says", "bold blue", Text(message.text))

    def _line(self, at: datetime, who: str, style: str, what: RenderableType) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=8, justify="right", style="dim")
        grid.add_column(width=10)
        grid.add_column(ratio=1, overflow="fold")
        seconds = max(0.0, (at - self._started_at).total_seconds())
        grid.add_row(f"{seconds:.3f} s", Text(who, style=style), what)
        self._console.print(grid, highlight=False)

    def _named(self, name: str, details: Text) -> RenderableType:
        if self._console.width < _COLUMN_MIN_WIDTH:
            return Text.assemble(name, " " if details else "", details)
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=_NAME_WIDTH)
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(name, details)
        return grid
