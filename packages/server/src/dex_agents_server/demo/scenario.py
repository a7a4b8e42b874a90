"""What a scenario is, and one run of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dex_agents_server.demo.chronicle import running_chronicle
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.demo_files import DemoFiles
from dex_agents_server.demo.facts import FactSink
from dex_agents_server.demo.report import DemoReport
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.story import Story, beginning_story
from dex_agents_server.demo.support_agent import Script

__all__ = ["TIME_LIMIT_SECONDS", "Scenario", "run_scenario"]

TIME_LIMIT_SECONDS = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A story the demo can tell.

    Attributes:
        name: How the command line calls it.
        summary: What it shows, in a few words for the list of scenarios.
        explanation: What happens.
        watch: What to watch in the timeline.
        phases: The titles of its phases, in order.
        script: What the model says.
        tell: Plays it.
    """

    name: ScenarioName
    summary: str
    explanation: str
    watch: str
    phases: tuple[str, ...]
    script: Script
    tell: Callable[[Story], Awaitable[DemoReport]]


async def run_scenario(scenario: Scenario, files: DemoFiles, show: FactSink) -> DemoReport:
    """Run the story on fresh databases in `files`; no worker process is left at its end, however it comes.

    Args:
        scenario: The story.
        files: An empty folder.
        show: Told every fact, in the order of their times.

    Raises:
        DemoError: A worker ended by itself, or the story took too long.
    """
    phase = scenario.phases[0]
    try:
        async with (
            asyncio.timeout(TIME_LIMIT_SECONDS),
            running_chronicle(show) as chronicle,
            beginning_story(files, scenario.name, scenario.phases, scenario.script, chronicle) as story,
        ):
            try:
                return await scenario.tell(story)
            finally:
                phase = story.phase
    except TimeoutError:
        raise DemoError(
            f"the demo did not end within {TIME_LIMIT_SECONDS:g} s; it stopped at: {phase}. Is the machine very busy?"
        ) from None
