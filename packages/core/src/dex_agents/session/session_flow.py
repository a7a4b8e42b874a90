"""The session as a Flow: its Steps, durable names and RPCs put together."""

from __future__ import annotations

from typing import Any

from dex_agents.session.execution_port import ModelStepExecution, ToolCallExecution, UnfinishedTurnExecution
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.persistence import session_declarations
from dex_agents.session.rpcs import SESSION_RPCS
from dex_agents.session.steps import (
    AwaitToolApproval,
    AwaitUserMessage,
    CallSingleAttemptTool,
    CallTool,
    RecordToolFailure,
    RecordToolOutcomeUnknown,
    RecordTurnFailure,
    RecordTurnFailureNote,
    RecordTurnFailureWithRunnerMessages,
    ResumeTurn,
    RunModel,
    StartAgentSession,
)
from dex_agents.session.transitions import UserMessageBuilder
from dex_flow import Flow, Step

__all__ = ["build_agent_session_flow"]


def build_agent_session_flow(
    flow_type: str,
    *,
    build_user_message: UserMessageBuilder,
    model_execution: ModelStepExecution,
    tool_execution: ToolCallExecution,
    unfinished_turn_execution: UnfinishedTurnExecution | None = None,
    options: AgentSessionOptions | None = None,
) -> Flow:
    """Build the session Flow.

    Args:
        flow_type: Durable name of the Flow type.
        build_user_message: The runner's pure function.
        model_execution: Runs model steps.
        tool_execution: Runs tool calls.
        unfinished_turn_execution: Completes the transcript of failed turns, for runners that can.
        options: How the sessions behave.

    Raises:
        DefinitionError: `flow_type` is not a valid name.
    """
    options = options or AgentSessionOptions()
    steps: list[Step[Any]] = [
        StartAgentSession(build_user_message),
        AwaitUserMessage(build_user_message),
        RunModel(model_execution, options),
        AwaitToolApproval(),
        CallTool(tool_execution, options),
        CallSingleAttemptTool(tool_execution, options),
        ResumeTurn(),
        RecordToolFailure(),
        RecordToolOutcomeUnknown(),
    ]
    if unfinished_turn_execution is None:
        steps.append(RecordTurnFailure(build_user_message))
    else:
        steps += [
            RecordTurnFailureWithRunnerMessages(unfinished_turn_execution, build_user_message, options),
            RecordTurnFailureNote(build_user_message),
        ]
    return Flow(
        flow_type,
        steps=steps,
        start_step=StartAgentSession,
        declarations=session_declarations(options.event_stream_capacity_bytes),
        rpcs=SESSION_RPCS,
    )
