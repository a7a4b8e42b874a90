"""One run of the demo, for people or as JSON, and its exit code."""

from __future__ import annotations

import json
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dex_agents_server.demo.closing import show_next, show_report
from dex_agents_server.demo.demo_error import DemoError, KeepFolderError
from dex_agents_server.demo.demo_files import DemoFiles, demo_files
from dex_agents_server.demo.facts import Fact
from dex_agents_server.demo.interruption import InterruptedBySignal, run_interruptibly
from dex_agents_server.demo.report import DemoReport
from dex_agents_server.demo.scenario import Scenario, run_scenario
from dex_agents_server.demo.scenarios import SCENARIOS, ScenarioName
from dex_agents_server.demo.timeline import Timeline
from dex_flow import DexFlowError

__all__ = ["run_demo"]

_EXIT_OK = 0
_EXIT_NOT_OK = 1
_EXIT_USAGE = 2


def run_demo(scenario_name: ScenarioName, *, as_json: bool, keep: Path | None) -> int:
    """Run a scenario and print it to standard output; errors go to standard error.

    Args:
        scenario_name: The scenario.
        as_json: Print one JSON object, and nothing else, to standard output.
        keep: A folder for the databases, which stays; None removes them.

    Returns:
        0 when everything is as promised, 1 when not, 2 when `keep` cannot be used, 128 + the signal's number after
        Ctrl-C or SIGTERM.
    """
    scenario = SCENARIOS[scenario_name]
    try:
        with demo_files(keep) as files:
            return _run_as_json(scenario, files) if as_json else _run_for_people(scenario, files, keep)
    except InterruptedBySignal as interruption:
        _print_error(f"{interruption}; the worker is stopped{'' if keep else ' and the databases are removed'}")
        return interruption.exit_code
    except KeepFolderError as error:
        _print_failure(f"--keep: {error}", as_json=as_json)
        return _EXIT_USAGE
    except (DemoError, DexFlowError, OSError, sqlite3.Error) as error:
        _print_failure(f"The demo failed: {error}", as_json=as_json)
        return _EXIT_NOT_OK


def _run_as_json(scenario: Scenario, files: DemoFiles) -> int:
    report = run_interruptibly(run_scenario(scenario, files, _ignore))
    print(json.dumps(report.to_json()))
    return _exit_code(report)


def _run_for_people(scenario: Scenario, files: DemoFiles, keep: Path | None) -> int:
    console = Console(highlight=False)
    started = time.monotonic()
    with Timeline(console, scenario, datetime.now(UTC)) as timeline:
        report = run_interruptibly(run_scenario(scenario, files, timeline.show))
    show_report(console, report, time.monotonic() - started)
    if keep is not None:
        console.print(f"Kept: {files.sessions} and {files.orders}", soft_wrap=True)
    show_next(console, scenario, _following(scenario))
    return _exit_code(report)


def _following(scenario: Scenario) -> Scenario:
    scenarios = list(SCENARIOS.values())
    return scenarios[(scenarios.index(scenario) + 1) % len(scenarios)]


def _exit_code(report: DemoReport) -> int:
    return _EXIT_NOT_OK if report.problems() else _EXIT_OK


def _ignore(fact: Fact) -> None:
    """The JSON object says it all at the end."""


def _print_failure(text: str, *, as_json: bool) -> None:
    _print_error(text)
    if as_json:
        print(json.dumps({"sessions": [], "ok": False, "error": text}))


def _print_error(text: str) -> None:
    Console(stderr=True, highlight=False).print(Text(text, style="bold red"), soft_wrap=True)
