"""Runs one Step of a session and ends: what a process does that shares nothing with the one before it."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dex_agents.execution.compaction import RunnerCompactionExecution
from dex_agents.execution.model_step import RunnerModelStepExecution
from dex_agents.execution.tool_call import RunnerToolCallExecution
from dex_agents.execution.tool_task import RunnerToolTaskCancelExecution, RunnerToolTaskPollExecution
from dex_agents.execution.unfinished_turn import RunnerUnfinishedTurnExecution
from dex_agents.runner import AgentFrameworkRunner
from dex_agents.session import step_types
from dex_flow import Stream

__all__ = ["StepRequest", "run_step_program"]


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """The Step that a process shall run; written for it with `pickle`.

    Attributes:
        flow_id: The session.
        step_type: Its type; one that a runner runs.
        step_execution_id: The Step execution.
        attempt: From 1.
        snapshot: What the attempt's `run` receives.
    """

    flow_id: str
    step_type: str
    step_execution_id: int
    attempt: int
    snapshot: Any


class _LoneAttempt:
    """An attempt without an engine: nobody listens to its events, and it never times out."""

    deadline: datetime | None = None
    heartbeat_checkpoint: str | None = None

    def __init__(self, request: StepRequest) -> None:
        self.flow_id = request.flow_id
        self.step_execution_id = request.step_execution_id
        self.attempt = request.attempt

    def emit(self, stream: Stream[Any], event: Any) -> None: ...

    def heartbeat(self) -> None: ...

    async def save_heartbeat_checkpoint(self, text: str) -> None: ...


def run_step_program(build_runner: Callable[[], AgentFrameworkRunner]) -> None:
    """Run the Step of the file that the program's first argument names; write its outcome into the second one's.

    Args:
        build_runner: The agent's runner, built anew in every process.

    Raises:
        ValueError: It is no Step that a runner runs.
        Exception: Whatever ends the attempt without an outcome.
    """
    request: StepRequest = pickle.loads(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[2]).write_bytes(pickle.dumps(asyncio.run(_run(build_runner(), request))))


async def _run(runner: Any, request: StepRequest) -> Any:
    attempt, snapshot = _LoneAttempt(request), request.snapshot
    match request.step_type:
        case step_types.RUN_MODEL:
            return await RunnerModelStepExecution(runner).run_model_step(attempt, snapshot)
        case step_types.CALL_TOOL | step_types.CALL_SINGLE_ATTEMPT_TOOL:
            return await RunnerToolCallExecution(runner).run_tool_call(attempt, snapshot)
        case step_types.POLL_TOOL_TASK:
            return await RunnerToolTaskPollExecution(runner).poll_tool_task(attempt, snapshot)
        case step_types.CANCEL_TOOL_TASK:
            return await RunnerToolTaskCancelExecution(runner).cancel_tool_task(attempt, snapshot)
        case step_types.COMPACT_CONTEXT:
            return await RunnerCompactionExecution(runner).summarize_context(attempt, snapshot)
        case step_types.RECORD_TURN_FAILURE | step_types.APPLY_TURN_CONTROL:
            return await RunnerUnfinishedTurnExecution(runner).build_unfinished_turn_messages(attempt, snapshot)
    raise ValueError(f"no runner runs a Step of type {request.step_type}")
