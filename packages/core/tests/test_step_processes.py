"""Steps in processes of their own: what the session is told, and what the test is told when one of them breaks."""

from __future__ import annotations

import sys
from itertools import repeat
from pathlib import Path

import pytest

from dex_agents.testing import ProcessFailedError, SessionDriver, SessionOfStepProcesses, cold_step_processes

ANSWERS = """
import os
from dex_agents import FrameworkMessage, TurnCompleted
from dex_agents.testing import plain_user_message, run_step_program

class Runner:
    def build_user_message(self, text):
        return plain_user_message(text)

    async def run_model_step(self, turn):
        text = f"{turn.messages[-1].text} {os.environ['WORD']}"
        message = FrameworkMessage(framework_item="{}", role="assistant", text=text)
        return TurnCompleted(new_messages=(message,))

    async def execute_deferred_tool_call(self, call):
        raise AssertionError

if __name__ == "__main__":
    run_step_program(Runner)
"""
BREAKS = "raise SystemExit('nobody is here')"


def session_of(directory: Path, program: str) -> SessionOfStepProcesses:
    path = directory / "program.py"
    path.write_text(program)
    run_process = cold_step_processes(path, {"WORD": "there"}, repeat(sys.executable))
    return SessionOfStepProcesses(directory, run_process, SessionDriver())


@pytest.mark.processes
def test_a_process_gives_the_outcome_of_its_step(tmp_path: Path) -> None:
    session = session_of(tmp_path, ANSWERS)
    session.driver.start("hello")
    session.run_steps()
    session.driver.send("again")
    session.run_steps()
    assert [message.text for message in session.driver.snapshot().messages] == [
        "hello",
        "hello there",
        "again",
        "again there",
    ]
    assert session.step_types == ["RunModel", "RunModel"]


@pytest.mark.processes
def test_a_process_that_breaks_says_what_it_printed(tmp_path: Path) -> None:
    session = session_of(tmp_path, BREAKS)
    session.driver.start("hello")
    with pytest.raises(ProcessFailedError, match="ended with 1, not with 0; it said:\nnobody is here"):
        session.run_steps()
    assert session.driver.open_step_types == ["RunModel"]
