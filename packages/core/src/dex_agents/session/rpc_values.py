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
    "ListAgentMessagesInput",
    "ResolveInterruptInput",
    "SendUserMessageInput",
    "SteerUserMessageInput",
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
    """Input of `resolve_interrupt`.

    An unknown field is refused, so that a client that believes it changed the arguments is told otherwise.
    """

    interrupt_id: str
    approved: bool
    rejection_message: str | None = None


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
        messages: Every stored message, oldest first.
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
