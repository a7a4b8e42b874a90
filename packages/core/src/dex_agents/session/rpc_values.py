"""Inputs and outputs of the session's start and of its RPCs."""

from __future__ import annotations

from typing import Any

import msgspec

from dex_agents.session.plan_values import AgentPlan, ContextSummary
from dex_agents.session.tool_values import AgentInterrupt, AgentToolCallRecord
from dex_agents.session.values import AgentMessage, AgentState, AgentUsage, QueuedUserMessage

__all__ = [
    "AgentMessagePage",
    "AgentSessionStartInput",
    "AgentSnapshot",
    "AnswerQuestionInput",
    "CancelTurnInput",
    "DeleteQueuedMessageInput",
    "ExecutePlanInput",
    "ListAgentMessagesInput",
    "ResolveInterruptInput",
    "SendUserMessageInput",
    "SteerUserMessageInput",
    "UpdateSessionSettingsInput",
]


class AgentSessionStartInput(msgspec.Struct, frozen=True, kw_only=True):
    """How a session starts.

    Attributes:
        initial_message: The user message of the first turn; None or blank waits for one.
        session_settings: A JSON object the runner reads in every model call.
    """

    initial_message: str | None = None
    session_settings: dict[str, Any] = {}


class SendUserMessageInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `send_user_message`."""

    text: str
    plan_mode: bool = False


class DeleteQueuedMessageInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `delete_queued_message`."""

    message_id: int


class ResolveInterruptInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Input of `resolve_interrupt`; an unknown field is refused.

    Attributes:
        interrupt_id: The interrupt.
        approved: Whether the call may run; a question is only declined.
        rejection_message: What the model is told when it may not.
        arguments: The arguments to run instead of the model's, a JSON object; only with `approved`.
    """

    interrupt_id: str
    approved: bool
    rejection_message: str | None = None
    arguments: dict[str, Any] | None = None


class ExecutePlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `execute_plan`."""

    revision: int


class UpdateSessionSettingsInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `update_session_settings`: replaces all settings; `{}` clears them."""

    session_settings: dict[str, Any] | None


class AnswerQuestionInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Input of `answer_question`."""

    interrupt_id: str
    answer: str


class SteerUserMessageInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `steer_user_message`; exactly one field is set.

    Attributes:
        message_id: A queued message, from a snapshot's `queued_messages`.
        text: A new message.
    """

    message_id: int | None = None
    text: str | None = None


class CancelTurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `cancel_turn`.

    Attributes:
        turn_id: The turn to stop; None for the active one.
    """

    turn_id: str | None = None


class ListAgentMessagesInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `list_agent_messages`.

    Attributes:
        before_sequence: Only messages before this one; None for the newest.
        limit: Most messages, clamped to 1..200.
    """

    before_sequence: int | None = None
    limit: int = 50


class AgentMessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of messages.

    Attributes:
        messages: Oldest first.
        next_before_sequence: The `before_sequence` of the page before this one; None at the beginning.
        deleted_before_sequence: The oldest stored sequence once earlier messages were deleted, else None.
    """

    messages: tuple[AgentMessage, ...] = ()
    next_before_sequence: int | None = None
    deleted_before_sequence: int | None = None


class AgentSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a client needs to show the session; one committed state.

    Attributes:
        state: None before the session started.
        messages: Every message that is still stored, oldest first.
        pending_interrupts: What waits for a person, oldest first.
        tool_calls: The active turn's calls, in the order the model made them.
        usage: What the session's model calls used so far.
        queued_message_count: How many user messages wait for a turn.
        queued_messages: Those messages, oldest first.
        steered_messages: Messages that will steer the running turn.
        plan: The session's plan.
        context_summary: The latest summary.
        session_settings: The settings of the next turn.
    """

    state: AgentState | None = None
    messages: tuple[AgentMessage, ...] = ()
    pending_interrupts: tuple[AgentInterrupt, ...] = ()
    tool_calls: tuple[AgentToolCallRecord, ...] = ()
    usage: AgentUsage = AgentUsage()
    queued_message_count: int = 0
    queued_messages: tuple[QueuedUserMessage, ...] = ()
    steered_messages: tuple[QueuedUserMessage, ...] = ()
    plan: AgentPlan | None = None
    context_summary: ContextSummary | None = None
    session_settings: dict[str, Any] = {}
