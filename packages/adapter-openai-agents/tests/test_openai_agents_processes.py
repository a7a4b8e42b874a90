"""One process for every Step, hopping between SDK versions: nothing lives outside the stored session."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import openai_agents_step_program
import pytest
from agents import Runner
from openai_agents_step_program import build_agent, build_runner

from dex_agents.session.step_types import RUN_MODEL
from dex_agents.testing import (
    SessionDriver,
    SessionOfStepProcesses,
    StepProcess,
    cold_step_processes,
    forked_step_processes,
)
from dex_agents_openai_agents.stored_items import read_stored_items

#: A Python with another version of the SDK and these packages; every second Step runs in it.
OTHER_PYTHON = "DEX_OPENAI_AGENTS_OTHER_PYTHON"


@contextmanager
def step_processes(log: Path) -> Iterator[StepProcess]:
    """With another Python, cold starts alternate between the two; otherwise the processes are forked."""
    program = Path(openai_agents_step_program.__file__)
    environment = {openai_agents_step_program.LOG: str(log)}
    if OTHER_PYTHON in os.environ:
        yield cold_step_processes(program, environment, cycle([sys.executable, os.environ[OTHER_PYTHON]]))
        return
    with forked_step_processes(program, environment) as run_process:
        yield run_process


def _native_history() -> list[Any]:
    async def main() -> list[Any]:
        agent, _ = build_agent()
        first: Any = await Runner.run(agent, [{"role": "user", "content": "hello"}], context="session")
        state = first.to_state()
        state.approve(first.interruptions[0])
        done: Any = await Runner.run(agent, state)
        last = await Runner.run(
            done.last_agent, [*done.to_input_list(), {"role": "user", "content": "thanks"}], context="session"
        )
        return last.to_input_list()

    return asyncio.run(main())


@pytest.mark.processes
@pytest.mark.timeout(600)  # with another Python ten processes import the SDK, on whatever machine
def test_every_step_in_a_process_of_its_own_gives_the_history_of_a_native_run(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.touch()
    driver = SessionDriver(builds_unfinished_turns=True, build_user_message=build_runner().build_user_message)
    with step_processes(log) as run_process:
        session = SessionOfStepProcesses(tmp_path, run_process, driver)
        driver.start("hello")
        session.run_steps()
        (interrupt,) = driver.snapshot().pending_interrupts
        assert driver.resolve(interrupt.interrupt_id, approved=True)
        session.run_steps()
        driver.send("thanks")
        session.run_steps()

    stored = [item for entry in read_stored_items(driver.snapshot().messages) for item in entry.items]
    assert json.dumps(stored, sort_keys=True) == json.dumps(_native_history(), sort_keys=True)
    lines = [line.split() for line in log.read_text().splitlines()]
    kinds = ["model" if step_type == RUN_MODEL else "tool" for step_type in session.step_types]
    assert kinds == ["model", "tool", "tool", "model", "tool", "tool", "model", "tool", "model", "model"]
    assert len({line[0] for line in lines}) == len(lines) == 8  # photo and the handoff say nothing
    if OTHER_PYTHON in os.environ:
        assert len({line[1] for line in lines}) == 2
    keys = [line[-1] for line in lines if line[2] in ("look", "refund")]
    assert keys == ["session/turn-1/c1", "session/turn-1/c3", "session/turn-1/c4"]
