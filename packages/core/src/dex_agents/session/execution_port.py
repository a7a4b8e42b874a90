"""What the session's Steps need from the execution side; injected, so that the session itself does no I/O."""

from __future__ import annotations

from typing import Protocol

from dex_agents.session.outcomes import (
    CompactionSnapshot,
    ContextSummarized,
    ModelStepOutcome,
    ModelStepSnapshot,
    ToolCallSnapshot,
    ToolOutcome,
    ToolTaskCancelled,
    ToolTaskOutcome,
    UnfinishedTurnOutcome,
)
from dex_flow import Activity

__all__ = [
    "CompactionExecution",
    "ModelStepExecution",
    "ToolCallExecution",
    "ToolTaskCancelExecution",
    "ToolTaskPollExecution",
    "UnfinishedTurnExecution",
]


class ModelStepExecution(Protocol):
    """Runs the model step of `RunModel`."""

    async def run_model_step(self, activity: Activity, snapshot: ModelStepSnapshot) -> ModelStepOutcome:
        """Make the model call. An exception fails the attempt; a refusal is an outcome."""
        ...


class CompactionExecution(Protocol):
    """Runs the summary call of `CompactContext`; there is one only when the runner can summarise."""

    async def summarize_context(self, activity: Activity, snapshot: CompactionSnapshot) -> ContextSummarized:
        """Make the summary call. An exception fails the attempt."""
        ...


class ToolCallExecution(Protocol):
    """Runs the tool call of `CallTool` and `CallSingleAttemptTool`."""

    async def run_tool_call(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolOutcome:
        """Run the tool. An exception fails the attempt; a failure for the model is an outcome."""
        ...


class ToolTaskPollExecution(Protocol):
    """Runs the poll of `PollToolTask`; there is one only when the runner can poll."""

    async def poll_tool_task(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskOutcome:
        """Ask the runner how the task is. An exception fails the attempt; a failure for the model is an outcome."""
        ...


class ToolTaskCancelExecution(Protocol):
    """Runs the cancellation of `CancelToolTask`; there is one only when the runner can stop tasks."""

    async def cancel_tool_task(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskCancelled:
        """Ask the runner to stop the task. An exception fails the attempt."""
        ...


class UnfinishedTurnExecution(Protocol):
    """Asks the runner to complete the transcript of a turn that ends without an answer."""

    async def build_unfinished_turn_messages(
        self, activity: Activity, snapshot: ModelStepSnapshot
    ) -> UnfinishedTurnOutcome:
        """Build the messages. A raising builder is an outcome with its error."""
        ...
