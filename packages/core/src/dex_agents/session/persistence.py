"""The session's durable names. A name never changes once sessions are stored under it."""

from __future__ import annotations

from typing import Any

from dex_agents.session.event_values import AgentEvent
from dex_agents.session.message_values import AgentMessageChunk, AgentMessageIndex
from dex_agents.session.plan_values import AgentPlan, ContextSummary, PlanExecutionRequest, TurnSessionSettings
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
    "AGENT_MESSAGE_CHUNKS",
    "AGENT_MESSAGE_INDEX",
    "AGENT_PLAN",
    "AGENT_STATE",
    "AGENT_TOOL_CALLS",
    "AGENT_USAGE",
    "CONTEXT_SUMMARY",
    "FRAMEWORK_RUN_STATE",
    "INTERRUPT_RESOLUTIONS",
    "PENDING_INTERRUPTS",
    "PENDING_PLAN_EXECUTION",
    "PLAN_EXECUTIONS",
    "QUEUED_USER_MESSAGES",
    "SESSION_SETTINGS",
    "STEERED_USER_MESSAGES",
    "TOOL_CALL_CANCELLATIONS",
    "TOOL_CALL_RESULTS",
    "TURN_CANCELLATION_REQUEST",
    "TURN_CONTROL_REQUESTS",
    "TURN_REPLY_SEQUENCE",
    "TURN_SESSION_SETTINGS",
    "session_declarations",
]

#: The session's control state.
AGENT_STATE: Attribute[AgentState] = Attribute("AgentState", AgentState)
#: The window: one of the newest messages per key `message_sequence_key(sequence)`.
AGENT_MESSAGES: AttributeMap[AgentMessage] = AttributeMap("AgentMessages", AgentMessage)
#: Older messages, immutable, by `message_sequence_key` of the chunk's first sequence.
AGENT_MESSAGE_CHUNKS: AttributeMap[AgentMessageChunk] = AttributeMap("AgentMessageChunks", AgentMessageChunk)
#: Where messages are; unset while every message is in the window.
AGENT_MESSAGE_INDEX: Attribute[AgentMessageIndex] = Attribute("AgentMessageIndex", AgentMessageIndex)
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
#: Settings of the next turn; set only when the session has some.
SESSION_SETTINGS: Attribute[dict[str, Any]] = Attribute("SessionSettings", dict[str, Any])
#: The settings the latest turn with settings started with.
TURN_SESSION_SETTINGS: Attribute[TurnSessionSettings] = Attribute("TurnSessionSettings", TurnSessionSettings)
#: The plan; unset until `write_todos` first succeeds.
AGENT_PLAN: Attribute[AgentPlan] = Attribute("AgentPlan", AgentPlan)
#: Approvals of plan revisions by `plan_execution_key(revision)`.
PLAN_EXECUTIONS: ChannelMap[PlanExecutionRequest] = ChannelMap("PlanExecutions", PlanExecutionRequest)
#: The approval that `execute_plan` accepted and no turn has taken yet.
PENDING_PLAN_EXECUTION: Attribute[PlanExecutionRequest] = Attribute("PendingPlanExecution", PlanExecutionRequest)
#: The summary that stands for the oldest messages; set once the session compacts.
CONTEXT_SUMMARY: Attribute[ContextSummary] = Attribute("ContextSummary", ContextSummary)
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
        AGENT_MESSAGE_CHUNKS,
        AGENT_MESSAGE_INDEX,
        FRAMEWORK_RUN_STATE,
        AGENT_TOOL_CALLS,
        PENDING_INTERRUPTS,
        AGENT_USAGE,
        TURN_REPLY_SEQUENCE,
        SESSION_SETTINGS,
        TURN_SESSION_SETTINGS,
        AGENT_PLAN,
        PLAN_EXECUTIONS,
        PENDING_PLAN_EXECUTION,
        CONTEXT_SUMMARY,
        QUEUED_USER_MESSAGES,
        STEERED_USER_MESSAGES,
        INTERRUPT_RESOLUTIONS,
        TURN_CONTROL_REQUESTS,
        TURN_CANCELLATION_REQUEST,
        TOOL_CALL_CANCELLATIONS,
        TOOL_CALL_RESULTS,
        Stream(AGENT_EVENTS.name, AgentEvent, event_stream_capacity_bytes),
    )
