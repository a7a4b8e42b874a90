"""One process for every Step, killed behind it, hopping between versions: nothing lives outside the stored session."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import langgraph_step_program
import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from langgraph_step_program import build_graph

from dex_agents import AgentSessionOptions, ToolEffect
from dex_agents.session.step_types import CALL_SINGLE_ATTEMPT_TOOL, CALL_TOOL, RUN_MODEL
from dex_agents.testing import SessionDriver
from dex_agents_langgraph import LangGraphRunner
from dex_flow.testing import ProgramProcesses
from dex_flow.testing.fork_server import ForkServer

#: A Python with another version of LangGraph and these packages; every second Step runs in it.
OTHER_PYTHON = "DEX_LANGGRAPH_OTHER_PYTHON"


@contextmanager
def step_processes(log: Path) -> Iterator[Callable[[Path, Path], None]]:
    """Runs a Step from its input to its output, each in a new process that has done nothing but import LangGraph, and
    that SIGKILL ends.

    With another Python, cold starts alternate between the two; otherwise the processes are forked behind the imports.
    """
    program = Path(langgraph_step_program.__file__)
    environment = {langgraph_step_program.LOG: str(log)}
    if OTHER_PYTHON in os.environ:
        pythons = cycle([sys.executable, os.environ[OTHER_PYTHON]])

        def run_cold(input: Path, output: Path) -> None:
            command = [next(pythons), str(program), str(input), str(output)]
            ended = subprocess.run(command, env={**os.environ, **environment}, timeout=300)
            assert ended.returncode == -signal.SIGKILL

        yield run_cold
        return
    import_path = {"PYTHONPATH": str(program.parent)}
    with ForkServer([program.stem], environment | import_path) as server, ProgramProcesses() as processes:

        def run_forked(input: Path, output: Path) -> None:
            process = processes.start(program, str(input), str(output), fork_server=server, ready_line=None)
            assert process.wait_for_end(timeout=300) == -signal.SIGKILL, process.output

        yield run_forked


async def _native_state() -> Any:
    graph = build_graph(InMemorySaver())
    config = {"configurable": {"thread_id": "session"}}
    state = await graph.ainvoke({"messages": [HumanMessage("hello")]}, config)
    for answer in ("Ada", "Lovelace"):
        (asked,) = state["__interrupt__"]
        state = await graph.ainvoke(Command(resume={asked.id: answer}), config)
    return await graph.ainvoke({"messages": [HumanMessage("thanks")]}, config)


def _shown(message: BaseMessage) -> Any:
    dumped = message.model_dump(exclude={"id", "response_metadata", "usage_metadata", "additional_kwargs"})
    calls = [(call["name"], call["args"], call["id"]) for call in dumped.pop("tool_calls", [])]
    return dumped, calls


@pytest.mark.processes
@pytest.mark.timeout(600)  # with another Python a dozen processes import LangChain, on whatever machine
def test_every_step_in_a_process_that_is_killed_gives_the_state_of_a_native_run(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.touch()
    steps: list[str] = []

    def run(driver: SessionDriver, claim: Any) -> None:
        kind = {RUN_MODEL: "model", CALL_TOOL: "tool", CALL_SINGLE_ATTEMPT_TOOL: "tool"}[claim.step_type]
        (tmp_path / "input").write_bytes(pickle.dumps((kind, driver.snapshot_of(claim))))
        run_in_process(tmp_path / "input", tmp_path / "output")
        driver.succeed(claim, pickle.loads((tmp_path / "output").read_bytes()))
        steps.append(kind)

    runner = LangGraphRunner(build_graph())
    options = AgentSessionOptions(tool_calls_read_messages=True, default_tool_effect=ToolEffect.READ)
    driver = SessionDriver(options, builds_unfinished_turns=True, build_user_message=runner.build_user_message)
    answers = iter(["Ada", "Lovelace"])
    with step_processes(log) as run_in_process:
        driver.start("hello")
        while driver.running or driver.snapshot().pending_interrupts:
            if driver.running:
                run(driver, next(iter(driver.running.values())))
                continue
            asked = driver.snapshot().pending_interrupts[0]
            if asked.question is None:
                assert driver.resolve(asked.interrupt_id, approved=True)
            else:
                assert driver.answer(asked.interrupt_id, next(answers))
        driver.send("thanks")
        while driver.running:
            run(driver, next(iter(driver.running.values())))

    state, native = runner.read_state(driver.snapshot().messages), asyncio.run(_native_state())
    assert [_shown(message) for message in state.pop("messages")] == [
        _shown(message) for message in native.pop("messages")
    ]
    assert state == native == {"mood": "good", "visits": 2}
    assert steps.count("model") == 7
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len({line[0] for line in lines}) == len(steps)
    said = Counter(line[2] for line in lines)
    # Each question runs the tool anew from its beginning, as in LangGraph.
    assert said == {"model": 7, "before_agent": 2, "look": 2, "set_mood": 1, "photo": 1, "charge": 1, "ask_name": 3}
    if OTHER_PYTHON in os.environ:
        assert len({line[1] for line in lines}) == 2
    keys = [line[-1] for line in lines if line[2] in ("look", "charge")]
    assert len(set(keys)) == 3
