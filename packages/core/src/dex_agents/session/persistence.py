"""The session's durable names. A name never changes once sessions are stored under it."""

from __future__ import annotations

from typing import Any

from dex_agents.session.event_values import AgentEvent
from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentInterruptResolution,
    AgentToolCallRecord,
    ToolCallCancellation,
    ToolCallCompleted,
    TurnCancellationRequest,
    TurnControlRequest,
)
from dex_agents.session.values import AgentMessage, AgentState, AgentUsage, AgentUserMessage, TurnReplySequence
from dex_flow import Attribute, AttributeMap, Channel, ChannelMap, Declaration, Stream

__all__ = [
    "AGENT_EVENTS",
    "AGENT_MESSAGES",
    "AGENT_STATE",
    "AGENT_TOOL_CALLS",
    "AGENT_USAGE",
    "FRAMEWORK_RUN_STATE",
    "INTERRUPT_RESOLUTIONS",
    "PENDING_INTERRUPTS",
    "QUEUED_USER_MESSAGES",
    "SESSION_SETTINGS",
    "STEERED_USER_MESSAGES",
    "TOOL_CALL_CANCELLATIONS",
    "TOOL_CALL_RESULTS",
    "TURN_CANCELLATION_REQUEST",
    "TURN_CONTROL_REQUESTS",
    "TURN_REPLY_SEQUENCE",
    "session_declarations",
]

#: The session's control state.
AGENT_STATE: Attribute[AgentState] = Attribute("AgentState", AgentState)
#: One message per key `message_sequence_key(sequence)`.
AGENT_MESSAGES: AttributeMap[AgentMessage] = AttributeMap("AgentMessages", AgentMessage)
#: The framework's opaque run state; set only between the model steps of a turn.
FRAMEWORK_RUN_STATE: Attribute[str] = Attribute("FrameworkRunState", str)
#: The active turn's records by durable tool call ID.
AGENT_TOOL_CALLS: AttributeMap[AgentToolCallRecord] = AttributeMap("AgentToolCalls", AgentToolCallRecord)
#: What waits for a person, in the order it was raised.
PENDING_INTERRUPTS: Attribute[tuple[AgentInterrupt, ...]] = Attribute("PendingInterrupts", tuple[AgentInterrupt, ...])
#: Cumulative usage.
AGENT_USAGE: Attribute[AgentUsage] = Attribute("AgentUsage", AgentUsage)
#: Where the latest turn's replies start.
TURN_REPLY_SEQUENCE: Attribute[TurnReplySequence] = Attribute("TurnReplySequence", TurnReplySequence)
#: Settings the runner reads; set only when the session was started with some.
SESSION_SETTINGS: Attribute[dict[str, Any]] = Attribute("SessionSettings", dict[str, Any])
#: Messages that wait for a turn.
QUEUED_USER_MESSAGES: Channel[AgentUserMessage] = Channel("QueuedUserMessages", AgentUserMessage)
#: Accepted decisions by interrupt ID.
INTERRUPT_RESOLUTIONS: ChannelMap[AgentInterruptResolution] = ChannelMap(
    "InterruptResolutions", AgentInterruptResolution
)
#: Messages that steer the running turn, or start the next one after it.
STEERED_USER_MESSAGES: Channel[AgentUserMessage] = Channel("SteeredUserMessages", AgentUserMessage)
#: Internal: wakes the Step that has to act on a steer or a cancellation.
TURN_CONTROL_REQUESTS: Channel[TurnControlRequest] = Channel("TurnControlRequests", TurnControlRequest)
#: The turn that `cancel_turn` stopped, until it has ended.
TURN_CANCELLATION_REQUEST: Attribute[TurnCancellationRequest] = Attribute(
    "TurnCancellationRequest", TurnCancellationRequest
)
#: Internal: ends a call's wait, by the call's interrupt ID.
TOOL_CALL_CANCELLATIONS: ChannelMap[ToolCallCancellation] = ChannelMap("ToolCallCancellations", ToolCallCancellation)
#: Internal: one message per record that became final.
TOOL_CALL_RESULTS: Channel[ToolCallCompleted] = Channel("ToolCallResults", ToolCallCompleted)
#: Live events. Its capacity is an option of the Flow.
AGENT_EVENTS: Stream[AgentEvent] = Stream("AgentEvents", AgentEvent)


def session_declarations(event_stream_capacity_bytes: int) -> tuple[Declaration[Any], ...]:
    """Every declaration of a session Flow, with its own stream capacity."""
    return (
        AGENT_STATE,
        AGENT_MESSAGES,
        FRAMEWORK_RUN_STATE,
        AGENT_TOOL_CALLS,
        PENDING_INTERRUPTS,
        AGENT_USAGE,
        TURN_REPLY_SEQUENCE,
        SESSION_SETTINGS,
        QUEUED_USER_MESSAGES,
        STEERED_USER_MESSAGES,
        INTERRUPT_RESOLUTIONS,
        TURN_CONTROL_REQUESTS,
        TURN_CANCELLATION_REQUEST,
        TOOL_CALL_CANCELLATIONS,
        TOOL_CALL_RESULTS,
        Stream(AGENT_EVENTS.name, AgentEvent, event_stream_capacity_bytes),
    )
