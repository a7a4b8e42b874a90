"""The runner contract: what an agent framework's adapter implements, and what the session gives it.

A runner holds no session state. It rebuilds the framework's input from the stored messages, makes at most one model
call per model step, and runs one deferred tool call at a time; the session stores everything in between. What a runner
can do beyond that it says by implementing one of the small optional protocols.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from dex_agents.runner_contexts import (
    AgentEventWriter,
    AgentTurnContext,
    ContextSummaryRequest,
    DeferredToolExecution,
    ToolTaskCancellation,
    ToolTaskPoll,
)
from dex_agents.runner_outcomes import (
    AgentTurnOutcome,
    ContextSummaryResult,
    DeferredToolOutcome,
    ModelCallMetadata,
    ModelStepContinues,
    ToolCallsRequested,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskPending,
    ToolTaskPollOutcome,
    ToolTaskStarted,
    TurnCompleted,
    TurnRefusedError,
)
from dex_agents.session.tool_values import AgentToolCall, AgentToolCallStatus, DeferredToolCall, ResolvedToolPolicy
from dex_agents.session.values import AgentMessage, AgentUsage, FrameworkMessage

__all__ = [
    "AgentEventWriter",
    "AgentFrameworkRunner",
    "AgentMessage",
    "AgentToolCall",
    "AgentToolCallStatus",
    "AgentTurnContext",
    "AgentTurnOutcome",
    "AgentUsage",
    "ContextCompactor",
    "ContextSummaryRequest",
    "ContextSummaryResult",
    "DeferredToolCall",
    "DeferredToolExecution",
    "DeferredToolOutcome",
    "FrameworkMessage",
    "ModelCallMetadata",
    "ModelStepContinues",
    "PlanModeSupport",
    "ResolvedToolPolicy",
    "ToolCallsRequested",
    "ToolExecutionError",
    "ToolExecutionResult",
    "ToolInputRequested",
    "ToolTaskCancellation",
    "ToolTaskCanceller",
    "ToolTaskPending",
    "ToolTaskPoll",
    "ToolTaskPollOutcome",
    "ToolTaskPoller",
    "ToolTaskStarted",
    "TurnCompleted",
    "TurnRefusedError",
    "UnfinishedTurnMessageBuilder",
]


class AgentFrameworkRunner(Protocol):
    """Runs one agent of one framework for any number of sessions."""

    def build_user_message(self, text: str) -> FrameworkMessage:
        """The framework's form of a user message. Pure: the same text gives the same message.

        The session also calls it for its own notes. It runs inside commits, so it must be quick and must not do I/O.
        """
        ...

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """Make at most one model call and return what came of it.

        Rebuild the input from `turn.messages[*].framework_item` and, within a turn, from the run state and the final
        `turn.tool_calls`. Run no tools. Turn off the framework's and the client's own retries: a failure raises, and
        the session repeats the step from the same committed state. Cancellation is asyncio cancellation.

        Raises:
            TurnRefusedError: The turn cannot succeed; it ends without another attempt.
            Exception: Anything else fails this attempt.
        """
        ...

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one tool call.

        Raises:
            ToolExecutionError: A failure for the model; recorded, not retried.
            Exception: Anything else fails this attempt; the tool's effect decides what follows.
        """
        ...


@runtime_checkable
class UnfinishedTurnMessageBuilder(Protocol):
    """A runner that stores messages during a turn, or wants the exact transcript of a turn that did not finish."""

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        """Messages that complete the stored transcript of a turn that ends without an answer. Pure.

        Every call of `turn.tool_calls` is final. Return what is not stored yet, such as the results of stored calls.
        """
        ...


@runtime_checkable
class ToolTaskPoller(Protocol):
    """A runner whose tools may return `ToolTaskStarted`."""

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask once how a task is. Only read, or deliver an answer idempotently: a crash repeats it."""
        ...


@runtime_checkable
class ToolTaskCanceller(Protocol):
    """A runner that can stop a remote task."""

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        """Stop the task, best effort and idempotent by its ID."""
        ...


@runtime_checkable
class ContextCompactor(Protocol):
    """A runner that can summarise earlier messages."""

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """About how many tokens the next model call's input has."""
        ...

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """The sequence of the last message to summarise, or None when nothing can be cut off."""
        ...

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """Summarise the request's messages with one model call."""
        ...


@runtime_checkable
class PlanModeSupport(Protocol):
    """A runner that offers `write_todos` alone in planning turns."""

    @property
    def supports_plan_mode(self) -> Literal[True]:
        """Always True; a runner without plan mode does not implement this protocol."""
        ...
