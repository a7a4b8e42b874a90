"""The tools of a case, in no framework's words. Each takes one optional text and does what its script says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dex_agents import QuestionAnswer, ToolEffect, ToolInputRequested, ToolTaskPending, ToolTaskStarted
from dex_agents.testing import FileGate, InvocationLog

__all__ = ["ScriptedQuestion", "ScriptedTask", "ScriptedTool", "ScriptedToolFailure", "ToolGatePlace"]

ToolGatePlace: TypeAlias = Literal["before_effect", "after_effect"]

#: The file with what tools really did, in the case's directory.
TOOL_LOG = "tools.jsonl"


class ScriptedToolFailure(Exception):
    """A failure that the model shall read. An adapter turns it into what its framework's tools raise for that."""


@dataclass(frozen=True, kw_only=True)
class ScriptedQuestion:
    """What a tool asks the user before it takes its effect, or its remote work while it is polled.

    Attributes:
        question: What the user reads.
        choices: Answers to choose from.
        allows_free_text: Whether the answer may be none of them.
    """

    question: str
    choices: tuple[str, ...] = ()
    allows_free_text: bool = True


@dataclass(frozen=True, kw_only=True)
class ScriptedTask:
    """Remote work that a tool starts; for adapters with `Capability.TOOL_TASKS`.

    Attributes:
        task_id: The remote system's handle.
        pending_polls: How many polls find it unfinished.
        poll_interval_seconds: Wanted time between polls; long, because cases end it themselves.
        broken_polls: How many polls raise `ConnectionResetError` before one is answered.
        failure: Text of the failure for the model with which the work ends.
        question: What the first poll asks the user; for adapters with `Capability.TOOL_QUESTIONS` too.
    """

    task_id: str
    pending_polls: int = 1
    poll_interval_seconds: float = 3_600.0
    broken_polls: int = 0
    failure: str | None = None
    question: ScriptedQuestion | None = None


@dataclass(frozen=True, kw_only=True)
class ScriptedTool:
    """One tool: a function `(value: str = "")` of the framework, which returns what `run` returns.

    Attributes:
        name: What the model calls.
        directory: The case's directory, for gates and the log of what really ran.
        effect: What it does to the world.
        requires_approval: Whether a person approves each call; None leaves it to the effect.
        has_session_policy: Whether effect and approval are given as the session's policy. Without, the adapter declares
            `requires_approval` in its framework's way (`Capability.FRAMEWORK_APPROVALS`).
        description: What the model reads.
        returns: What the function returns.
        make_result: Makes what it returns, in place of `returns`.
        echoes_value: Whether it returns `<name>:<value>` instead.
        failure: Text of the failure it raises for the model.
        broken_runs: How many runs raise `ConnectionResetError` behind the effect before one returns.
        gate: Name of a `FileGate` at which it waits.
        gate_place: Whether it waits before or behind its effect.
        is_blocking: Whether it is a plain function that blocks its thread (`Capability.BLOCKING_TOOLS`).
        questions: What it asks the user before its effect, one after the other. The answers, joined by `, `, are the
            value it runs with (`Capability.TOOL_QUESTIONS`).
        task: The remote work it starts (`Capability.TOOL_TASKS`): `run` returns `ToolTaskStarted`.
        requires_value: Whether the parameter has no default, so that the schema requires it.
    """

    name: str
    directory: Path
    effect: ToolEffect = ToolEffect.READ
    requires_approval: bool | None = False
    has_session_policy: bool = True
    description: str = "Does what its test says."
    returns: Any = "done"
    make_result: Callable[[], Any] | None = None
    echoes_value: bool = False
    failure: str | None = None
    broken_runs: int = 0
    gate: str | None = None
    gate_place: ToolGatePlace = "after_effect"
    is_blocking: bool = False
    questions: tuple[ScriptedQuestion, ...] = ()
    task: ScriptedTask | None = None
    requires_value: bool = False

    @property
    def log(self) -> InvocationLog:
        """What the case's tools really did: event `effect`, key `<tool>`; event `key`, key `<idempotency key>`."""
        return InvocationLog(self.directory / TOOL_LOG)

    async def run(self, value: str, *, idempotency_key: str) -> Any:
        """Do what the tool does.

        Args:
            value: Its argument.
            idempotency_key: The call's key, read the way the adapter documents it for tools.

        Raises:
            ScriptedToolFailure: A failure for the model.
            ConnectionResetError: The tool broke.
        """
        gate = None if self.gate is None else FileGate(self.directory, self.gate)
        if gate is not None and self.gate_place == "before_effect":
            await gate.pass_through()
        self._take_effect(value, idempotency_key)
        if gate is not None and self.gate_place == "after_effect":
            await gate.pass_through()
        return self._result(value)

    def run_blocking(self, value: str, *, idempotency_key: str) -> Any:
        """`run` for a plain function; it refuses to block an event loop.

        Raises:
            AssertionError: It was called on an event loop.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise AssertionError("[blocking-tool-off-the-event-loop] a blocking tool was run on the event loop")
        gate = None if self.gate is None else FileGate(self.directory, self.gate)
        if gate is not None and self.gate_place == "before_effect":
            gate.pass_through_blocking()
        self._take_effect(value, idempotency_key)
        if gate is not None and self.gate_place == "after_effect":
            gate.pass_through_blocking()
        return self._result(value)

    def poll_task(self, answers: Sequence[QuestionAnswer] = ()) -> ToolTaskPending | ToolInputRequested | str:
        """Ask once how the remote work is.

        Args:
            answers: How its questions ended, oldest first.

        Returns:
            `ToolTaskPending`, `ToolInputRequested`, or the finished work's text: `returns`, or the tool's name with the
            answer to its question.

        Raises:
            ScriptedToolFailure: The work failed.
            ConnectionResetError: The poll broke.
            ValueError: The tool has no task.
        """
        task = self._task()
        self.log.record(task.task_id, "poll")
        if self.log.count("poll")[task.task_id] <= task.broken_polls:
            raise ConnectionResetError(f"the poll of {self.name} broke")
        if task.question is not None and not answers:
            asked = task.question
            return ToolInputRequested(
                question=asked.question, choices=asked.choices, allows_free_text=asked.allows_free_text
            )
        self.log.record(task.task_id, "answered_poll")
        if self.log.count("answered_poll")[task.task_id] <= task.pending_polls:
            return ToolTaskPending(poll_interval_seconds=task.poll_interval_seconds)
        if task.failure is not None:
            raise ScriptedToolFailure(task.failure)
        if answers:
            return f"{self.name}:{answers[-1].answer or answers[-1].resolution}"
        return str(self.returns)

    def cancel_task(self) -> None:
        """Stop the remote work.

        Raises:
            ValueError: The tool has no task.
        """
        self.log.record(self._task().task_id, "cancel")

    def _task(self) -> ScriptedTask:
        if self.task is None:
            raise ValueError(f"the tool {self.name} has no task")
        return self.task

    def _take_effect(self, value: str, idempotency_key: str) -> None:
        self.log.record(self.name, "effect")
        self.log.record(value, "value")
        self.log.record(idempotency_key, "key")

    def _result(self, value: str) -> Any:
        if self.log.count("effect")[self.name] <= self.broken_runs:
            raise ConnectionResetError(f"{self.name} broke")
        if self.failure is not None:
            raise ScriptedToolFailure(self.failure)
        if self.task is not None:
            return ToolTaskStarted(task_id=self.task.task_id, poll_interval_seconds=self.task.poll_interval_seconds)
        if self.make_result is not None:
            return self.make_result()
        return f"{self.name}:{value}" if self.echoes_value else self.returns
