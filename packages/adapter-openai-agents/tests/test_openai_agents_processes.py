"""One process for every Step, hopping between SDK versions: nothing lives outside the stored session."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from dex_flow.testing import ProgramProcesses
from dex_flow.testing.fork_server import ForkServer

#: A Python with another version of the SDK and these packages; every second Step runs in it.
OTHER_PYTHON = "DEX_OPENAI_AGENTS_OTHER_PYTHON"


@contextmanager
def step_processes(log: Path) -> Iterator[Callable[[Path, Path], None]]:
    """Runs a Step from its input to its output, each in a new process that has done nothing but import the SDK.

    With another Python, cold starts alternate between the two; otherwise the processes are forked behind the imports.
    """
    program = Path(openai_agents_step_program.__file__)
    environment = {openai_agents_step_program.LOG: str(log)}
    if OTHER_PYTHON in os.environ:
        pythons = cycle([sys.executable, os.environ[OTHER_PYTHON]])

        def run_cold(input: Path, output: Path) -> None:
            command = [next(pythons), str(program), str(input), str(output)]
            subprocess.run(command, check=True, env={**os.environ, **environment}, timeout=300)

        yield run_cold
        return
    import_path = {"PYTHONPATH": str(program.parent)}
    with ForkServer([program.stem], environment | import_path) as server, ProgramProcesses() as processes:

        def run_forked(input: Path, output: Path) -> None:
            process = processes.start(program, str(input), str(output), fork_server=server, ready_line=None)
            assert process.wait_for_end(timeout=300) == 0, process.output

        yield run_forked


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
    steps: list[str] = []

    def run(driver: SessionDriver, claim: Any) -> None:
        kind = {RUN_MODEL: "model", CALL_TOOL: "tool", CALL_SINGLE_ATTEMPT_TOOL: "tool"}[claim.step_type]
        (tmp_path / "input").write_bytes(pickle.dumps((kind, driver.snapshot_of(claim))))
        run_in_process(tmp_path / "input", tmp_path / "output")
        driver.succeed(claim, pickle.loads((tmp_path / "output").read_bytes()))
        steps.append(kind)

    runner = OpenAIAgentsRunner(build_agent()[0])
    driver = SessionDriver(builds_unfinished_turns=True, build_user_message=runner.build_user_message)
    with step_processes(log) as run_in_process:
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
