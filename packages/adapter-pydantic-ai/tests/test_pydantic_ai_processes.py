"""One process for every Step, hopping between versions of the framework: nothing lives outside the stored session."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pydantic_ai
import pydantic_ai_step_program
import pytest
from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelMessage
from pydantic_ai_sessions import comparable
from pydantic_ai_step_program import DRAFT, build_agent, build_runner

from dex_agents.session.outcomes import ModelStepRefused
from dex_agents.session.step_types import RUN_MODEL
from dex_agents.testing import (
    SessionDriver,
    SessionOfStepProcesses,
    StepProcess,
    cold_step_processes,
    forked_step_processes,
)
from dex_agents_pydantic_ai.framework_messages import load_history

#: A Python with an older version of the framework and these packages.
OTHER_PYTHON = "DEX_PYDANTIC_AI_OTHER_PYTHON"
STEPS = ["model", "tool", "tool", "model", "tool", "model", "tool", "model", "tool", "model", "model", "model"]
PROGRAM = Path(pydantic_ai_step_program.__file__)


def switching_processes(log: Path, first: str, then: str, switch_at: int) -> StepProcess:
    """Runs Steps in one Python up to a number of them, and in another one from there on."""
    pythons = chain(repeat(first, switch_at), repeat(then))
    return cold_step_processes(PROGRAM, {pydantic_ai_step_program.LOG: str(log)}, pythons)


class HoppingSession:
    """Both turns of the session, or what comes before one is refused.

    Attributes:
        kinds: The kinds of the Steps that ran.
        refusal: Why a turn could not go on.
    """

    def __init__(self, directory: Path, run_process: StepProcess) -> None:
        self.driver = SessionDriver(builds_unfinished_turns=True, build_user_message=build_runner().build_user_message)
        self._session = SessionOfStepProcesses(directory, run_process, self.driver)

    def play(self) -> None:
        self.driver.start("hello")
        self._session.run_steps()
        if self.refusal is None:
            (interrupt,) = self.driver.snapshot().pending_interrupts
            assert self.driver.resolve(interrupt.interrupt_id, approved=True)
            self._session.run_steps()
        if self.refusal is None:
            self.driver.send("thanks")
            self._session.run_steps()

    @property
    def kinds(self) -> list[str]:
        return ["model" if step_type == RUN_MODEL else "tool" for step_type in self._session.step_types]

    @property
    def refusal(self) -> ModelStepRefused | None:
        return next((outcome for outcome in self._session.outcomes if isinstance(outcome, ModelStepRefused)), None)

    def history(self) -> list[ModelMessage]:
        return load_history(self.driver.snapshot().messages)


def _native_history() -> list[ModelMessage]:
    async def main() -> list[ModelMessage]:
        agent = build_agent(asks_approval=False)
        first = await agent.run("hello", deps="session")
        second = await agent.run("thanks", deps="session", message_history=first.all_messages())
        return second.all_messages()

    return asyncio.run(main())


def _without_system_prompts(messages: Sequence[ModelMessage]) -> list[Any]:
    """A session adds system prompts to every request instead of storing them."""
    return [(kind, [part for part in parts if part[0] != "SystemPromptPart"]) for kind, parts in comparable(messages)]


def _said(messages: Sequence[ModelMessage]) -> list[tuple[str, str]]:
    """What was said, in the words that all versions of the framework have for it."""
    kinds = {"user-prompt", "text", "thinking", "tool-call", "tool-return", "retry-prompt", "retry-feedback"}
    parts = (part for message in messages for part in message.parts if part.part_kind in kinds)
    said: list[tuple[str, str]] = []
    for part in parts:
        kind = "result" if "return" in part.part_kind or "retry" in part.part_kind else part.part_kind
        content = getattr(part, "args", None) or getattr(part, "content", "")
        text = str([_plain(one) for one in content] if isinstance(content, list) else content)
        said.append((kind, text.removesuffix("\n\nFix the errors and try again.")))  # older versions say that too
    return said


def _plain(content: Any) -> Any:
    return (content.media_type, content.data) if isinstance(content, BinaryContent) else content


def _lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()]


def _keys(log: Path) -> list[str]:
    return [line[-1] for line in _lines(log) if line[2] in ("look", "flaky", "refund")]


KEYS = ["session/turn-1/c1", "session/turn-1/c3", "session/turn-1/c4", "session/turn-1/c5"]


@pytest.mark.processes
def test_every_step_in_a_process_of_its_own_gives_the_history_of_a_native_run(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with forked_step_processes(PROGRAM, {pydantic_ai_step_program.LOG: str(log)}) as run_process:
        session = HoppingSession(tmp_path, run_process)
        session.play()
    assert session.kinds == STEPS
    assert _without_system_prompts(session.history()) == _without_system_prompts(_native_history())
    assert len({line[0] for line in _lines(log)}) == len(_lines(log)) == len(STEPS) - 1  # photo says nothing
    assert _keys(log) == KEYS


def _other_python() -> str:
    if OTHER_PYTHON not in os.environ:
        pytest.skip(f"{OTHER_PYTHON} names no Python with an older version")
    return os.environ[OTHER_PYTHON]


@pytest.mark.processes
@pytest.mark.timeout(600)  # a dozen processes import two versions of the framework, on whatever machine
@pytest.mark.parametrize("switch_at", [1, 5, 7, 10])
def test_a_newer_version_continues_what_an_older_one_began(tmp_path: Path, switch_at: int) -> None:
    log = tmp_path / "log.txt"
    session = HoppingSession(tmp_path, switching_processes(log, _other_python(), sys.executable, switch_at))
    session.play()
    assert session.refusal is None
    assert session.kinds == STEPS
    assert _said(session.history()) == _said(_native_history())
    assert len({line[1] for line in _lines(log)}) == 2
    assert _keys(log) == KEYS


@pytest.mark.processes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("switch_at", [5, 10])
def test_an_older_version_refuses_what_it_cannot_read_and_names_the_newer_one(tmp_path: Path, switch_at: int) -> None:
    """Behind the first retry the newer version has written what the older one has no words for."""
    log = tmp_path / "log.txt"
    session = HoppingSession(tmp_path, switching_processes(log, sys.executable, _other_python(), switch_at))
    session.play()
    assert session.refusal is not None
    assert session.refusal.error_type == "IncompatibleFrameworkVersionError"
    assert f"Pydantic AI {pydantic_ai.__version__} wrote" in session.refusal.message
    assert f"{pydantic_ai.__version__} or newer" in session.refusal.message
    assert session.driver.running == {}
    assert DRAFT not in [said for _, said in _said(session.history())] or switch_at == 10
