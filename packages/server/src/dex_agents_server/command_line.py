"""The `dex-agents` command."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from dex_agents_server.demo.demo_command import run_demo
from dex_agents_server.demo.scenarios import SCENARIOS, ScenarioName

__all__ = ["main"]

_application = typer.Typer(
    name="dex-agents",
    help="Durable sessions for Python agents.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# The empty line and \b keep the list's lines apart in the help.
_DEMO_HELP = "\n\n".join(
    (
        "Watch agent sessions survive killed workers; takes some seconds, needs no key and no server.",
        "\b\nScenarios:\n" + "\n".join(f"  {scenario.name:<8}  {scenario.summary}" for scenario in SCENARIOS.values()),
    )
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dex-agents {version('dex-agents-server')}")
        raise typer.Exit


@_application.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Durable sessions for Python agents."""


@_application.command(help=_DEMO_HELP)
def demo(
    scenario: Annotated[
        ScenarioName, typer.Option("--scenario", metavar="NAME", help="What to watch.")
    ] = ScenarioName.REFUND,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the timeline.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="FOLDER", help="Keep the databases in this new or empty folder.", file_okay=False
        ),
    ] = None,
) -> None:
    raise typer.Exit(run_demo(scenario, as_json=as_json, keep=keep))


def main() -> None:
    """Run the command; the console script."""
    _application()
