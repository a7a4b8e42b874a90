"""One process for every Step, hopping between SDK versions: nothing lives outside the stored session."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import openai_agents_step_program
import pytest
from agents import Runner
from openai_agents_step_program import build_agent

from dex_agents.session.step_types import CALL_SINGLE_ATTEMPT_TOOL, CALL_TOOL, RUN_MODEL
from dex_agents.testing import SessionDriver
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents.stored_items import read_stored_items

#: A Python with another version of the SDK and these packages; every second Step runs in it.
OTHER_PYTHON = "DEX_OPENAI_AGENTS_OTHER_PYTHON"


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
@pytest.mark.timeout(600)  # ten processes import the SDK, on whatever machine
def test_every_step_in_a_process_of_its_own_gives_the_history_of_a_native_run(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.touch()
    pythons = cycle([sys.executable, os.environ.get(OTHER_PYTHON, sys.executable)])
    program = openai_agents_step_program.__file__
    steps: list[str] = []

    def run(driver: SessionDriver, claim: Any) -> None:
        kind = {RUN_MODEL: "model", CALL_TOOL: "tool", CALL_SINGLE_ATTEMPT_TOOL: "tool"}[claim.step_type]
        (tmp_path / "input").write_bytes(pickle.dumps((kind, driver.snapshot_of(claim))))
        environment = {**os.environ, openai_agents_step_program.LOG: str(log)}
        subprocess.run(
            [next(pythons), program, str(tmp_path / "input"), str(tmp_path / "output")],
            check=True,
            env=environment,
            timeout=300,
        )
        driver.succeed(claim, pickle.loads((tmp_path / "output").read_bytes()))
        steps.append(kind)

    runner = OpenAIAgentsRunner(build_agent()[0])
    driver = SessionDriver(builds_unfinished_turns=True, build_user_message=runner.build_user_message)
    driver.start("hello")
    while driver.running or driver.snapshot().pending_interrupts:
        if driver.running:
            run(driver, next(iter(driver.running.values())))
        else:
            (interrupt,) = driver.snapshot().pending_interrupts
            assert driver.resolve(interrupt.interrupt_id, approved=True)
    driver.send("thanks")
    while driver.running:
        run(driver, next(iter(driver.running.values())))

    stored = [item for entry in read_stored_items(driver.snapshot().messages) for item in entry.items]
    assert json.dumps(stored, sort_keys=True) == json.dumps(_native_history(), sort_keys=True)
    lines = [line.split() for line in log.read_text().splitlines()]
    assert steps == ["model", "tool", "tool", "model", "tool", "tool", "model", "tool", "model", "model"]
    assert len({line[0] for line in lines}) == len(lines) == 8  # photo and the handoff say nothing
    if OTHER_PYTHON in os.environ:
        assert len({line[1] for line in lines}) == 2
    keys = [line[-1] for line in lines if line[2] in ("look", "refund")]
    assert keys == ["session/turn-1/c1", "session/turn-1/c3", "session/turn-1/c4"]
