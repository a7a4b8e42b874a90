"""Values of the session as they are stored and sent: its state, messages and usage. The wire is snake_case JSON."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

__all__ = [
    "AgentMessage",
    "AgentMessageToolCall",
    "AgentState",
    "AgentStatus",
    "AgentUsage",
    "AgentUserMessage",
    "FrameworkMessage",
    "InteractionMode",
    "MessageRole",
    "QueuedUserMessage",
    "TurnError",
    "TurnReplySequence",
    "message_sequence_key",
]

STATE_FORMAT_VERSION = 1

MessageRole = Literal["user", "assistant", "tool"]


class AgentStatus(StrEnum):
    """What the session does now."""

    WAITING_FOR_USER_MESSAGE = "waiting_for_user_message"  #: no turn is active
    RUNNING_MODEL = "running_model"  #: a model call runs or is about to
    RUNNING_TOOLS = "running_tools"  #: tool calls run or wait for a decision
    COMPACTING_CONTEXT = "compacting_context"  #: earlier messages are being summarised


class InteractionMode(StrEnum):
    """What kind of turn runs."""

    CHAT = "chat"  #: an ordinary turn
    PLANNING = "planning"  #: a turn that may only write the plan
    EXECUTING = "executing"  #: a turn that carries out an approved plan


class TurnError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn failed.

    Attributes:
        turn_id: The failed turn.
        type: Name of the error's class.
        message: Its text, repaired and shortened for storage.
    """

    turn_id: str
    type: str
    message: str


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """The session's control state.

    Attributes:
        status: What the session does now.
        interaction_mode: Kind of the active turn, `chat` between turns.
        turn_count: Turns started so far; turn IDs are `turn-<n>`.
        active_turn_id: The running turn, None between turns.
        last_message_sequence: Sequence of the newest stored message, 0 when there is none.
        last_turn_error: Why the latest failed turn failed; cleared when a later turn completes.
        started_at: When the session started.
        updated_at: When this value was last written.
        turn_model_step_count: Finished model steps of the active turn, 0 between turns.
        turn_tool_call_count: Tool calls the active turn made so far.
        turn_started_at: When the active turn started.
        turn_model_calls: Model calls of the active turn so far, as its runner counts them.
        turn_total_tokens: Tokens of those calls, as far as they are known.
        turn_limit_reached: Name of the limit the active turn reached; its next model call is its last.
        turn_compaction_error: Why summarising failed in the active turn; it goes on without while it fits.
        turn_continuation_count: Model steps of the active turn that asked for another model step without tool calls.
        format_version: Version of the stored session values.
    """

    status: AgentStatus
    started_at: datetime
    updated_at: datetime
    interaction_mode: InteractionMode = InteractionMode.CHAT
    turn_count: int = 0
    active_turn_id: str | None = None
    last_message_sequence: int = 0
    last_turn_error: TurnError | None = None
    turn_model_step_count: int = 0
    turn_tool_call_count: int = 0
    turn_continuation_count: int = 0
    turn_started_at: datetime | None = None
    turn_model_calls: int = 0
    turn_total_tokens: int = 0
    turn_limit_reached: str | None = None
    turn_compaction_error: str | None = None
    format_version: int = STATE_FORMAT_VERSION


# A model step reads every message of its session. They hold plain values only, which form no cycles, so the garbage
# collector need not look at thousands of them again and again.
class AgentMessageToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool call of an assistant message, for people and telemetry.

    Attributes:
        tool_call_id: The call's ID: the session's own on a stored message, the provider's on one a runner returns.
        tool_name: Name of the tool.
        arguments: The arguments as JSON object text.
    """

    tool_call_id: str
    tool_name: str
    arguments: str


class FrameworkMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message as a runner hands it to the session.

    Attributes:
        role: Who wrote it.
        framework_item: The framework's own form as JSON text; the only field a runner rebuilds model input from.
        text: The visible text.
        reasoning_text: The model's visible reasoning.
        tool_calls: The tool calls of an assistant message.
        tool_call_id: The call a tool message answers, by the session's ID.
    """

    role: MessageRole
    framework_item: str
    text: str = ""
    reasoning_text: str | None = None
    tool_calls: tuple[AgentMessageToolCall, ...] = ()
    tool_call_id: str | None = None


class AgentMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored message. Everything but `framework_item` is a projection for people and telemetry.

    Attributes:
        sequence: Position in the session, from 1 without gaps.
        turn_id: The turn that stored it.
        role: Who wrote it.
        framework_item: The framework's own form as opaque JSON text.
        text: The visible text.
        reasoning_text: The model's visible reasoning.
        tool_calls: The tool calls of an assistant message.
        tool_call_id: The call a tool message answers, by the session's ID.
        created_at: When it was stored.
    """

    sequence: int
    turn_id: str
    role: MessageRole
    framework_item: str
    created_at: datetime
    text: str = ""
    reasoning_text: str | None = None
    tool_calls: tuple[AgentMessageToolCall, ...] = ()
    tool_call_id: str | None = None


class AgentUserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message the user sent.

    Attributes:
        text: What the user wrote, repaired, never blank.
        plan_mode: Whether the turn it starts only plans.
        message_id: Its ID in the channel it waited in; None where the value is still in the channel.
        sent_at: When the session accepted it.
    """

    text: str
    sent_at: datetime
    plan_mode: bool = False
    message_id: int | None = None


class QueuedUserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting user message as snapshots list it.

    Attributes:
        message_id: The ID that deletes it.
        text: What the user wrote.
        plan_mode: Whether the turn it starts only plans.
        sent_at: When the session accepted it.
    """

    message_id: int
    text: str
    sent_at: datetime
    plan_mode: bool = False


class AgentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Model calls and tokens. Unknown counts are 0; a cancelled model call's usage is not counted."""

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0

    def add(self, other: AgentUsage) -> AgentUsage:
        """The sum of both, field by field."""
        return AgentUsage(
            model_calls=self.model_calls + other.model_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )


class TurnReplySequence(msgspec.Struct, frozen=True, kw_only=True):
    """Where the latest turn's replies start.

    Attributes:
        turn_id: That turn.
        sequence: The first sequence after the turn's user messages.
    """

    turn_id: str
    sequence: int


def message_sequence_key(sequence: int) -> str:
    """The key of a message in `AgentMessages`: 12 digits, so that keys sort like sequences."""
    return f"{sequence:012d}"
