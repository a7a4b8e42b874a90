"""One process for every Step, killed behind it, hopping between versions: nothing lives outside the stored session."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import langgraph_step_program
import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from langgraph_step_program import build_graph, build_runner

from dex_agents import AgentSessionOptions, ToolEffect
from dex_agents.session.step_types import RUN_MODEL
from dex_agents.testing import (
    SessionDriver,
    SessionOfStepProcesses,
    StepProcess,
    cold_step_processes,
    forked_step_processes,
)

#: A Python with another version of LangGraph and these packages; every second Step runs in it.
OTHER_PYTHON = "DEX_LANGGRAPH_OTHER_PYTHON"


@contextmanager
def killed_step_processes(log: Path) -> Iterator[StepProcess]:
    """With another Python, cold starts alternate between the two; otherwise the processes are forked."""
    program = Path(langgraph_step_program.__file__)
    environment = {langgraph_step_program.LOG: str(log)}
    if OTHER_PYTHON in os.environ:
        pythons = cycle([sys.executable, os.environ[OTHER_PYTHON]])
        yield cold_step_processes(program, environment, pythons, exit_code=-signal.SIGKILL)
        return
    with forked_step_processes(program, environment, exit_code=-signal.SIGKILL) as run_process:
        yield run_process


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
    runner = build_runner()
    options = AgentSessionOptions(tool_calls_read_messages=True, default_tool_effect=ToolEffect.READ)
    driver = SessionDriver(options, builds_unfinished_turns=True, build_user_message=runner.build_user_message)
    answers = iter(["Ada", "Lovelace"])
    with killed_step_processes(log) as run_process:
        session = SessionOfStepProcesses(tmp_path, run_process, driver)
        driver.start("hello")
        session.run_steps()
        while pending := driver.snapshot().pending_interrupts:
            if pending[0].question is None:
                assert driver.resolve(pending[0].interrupt_id, approved=True)
            else:
                assert driver.answer(pending[0].interrupt_id, next(answers))
            session.run_steps()
        driver.send("thanks")
        session.run_steps()

    state, native = runner.read_state(driver.snapshot().messages), asyncio.run(_native_state())
    assert [_shown(message) for message in state.pop("messages")] == [
        _shown(message) for message in native.pop("messages")
    ]
    assert state == native == {"mood": "good", "visits": 2}
    assert session.step_types.count(RUN_MODEL) == 7
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len({line[0] for line in lines}) == len(session.step_types)
    said = Counter(line[2] for line in lines)
    # Each question runs the tool anew from its beginning, as in LangGraph.
    assert said == {"model": 7, "before_agent": 2, "look": 2, "set_mood": 1, "photo": 1, "charge": 1, "ask_name": 3}
    if OTHER_PYTHON in os.environ:
        assert len({line[1] for line in lines}) == 2
    keys = [line[-1] for line in lines if line[2] in ("look", "charge")]
    assert len(set(keys)) == 3
