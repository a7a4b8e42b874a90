"""The session as a Flow: its Steps, durable names and RPCs put together."""

from __future__ import annotations

from typing import Any

from dex_agents.session.definition import SessionDefinition, UserMessageBuilder
from dex_agents.session.execution_port import (
    CompactionExecution,
    ModelStepExecution,
    ToolCallExecution,
    ToolTaskCancelExecution,
    ToolTaskPollExecution,
    UnfinishedTurnExecution,
)
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.persistence import session_declarations
from dex_agents.session.rpcs import session_rpcs
from dex_agents.session.steps import (
    ApplyTurnControl,
    ApplyTurnControlNote,
    ApplyTurnControlWithRunnerMessages,
    AwaitQuestionAnswer,
    AwaitTimer,
    AwaitToolApproval,
    AwaitUserMessage,
    CallSingleAttemptTool,
    CallTool,
    CancelToolTask,
    CompactContext,
    FinishTurnCancellation,
    PollToolTask,
    RecordCompactionFailure,
    RecordToolFailure,
    RecordToolOutcomeUnknown,
    RecordTurnFailure,
    RecordTurnFailureNote,
    RecordTurnFailureWithRunnerMessages,
    ResumeTurn,
    RunModel,
    StartAgentSession,
)
from dex_flow import Flow, Step

__all__ = ["build_agent_session_flow"]


def build_agent_session_flow(
    flow_type: str,
    *,
    build_user_message: UserMessageBuilder,
    model_execution: ModelStepExecution,
    tool_execution: ToolCallExecution,
    unfinished_turn_execution: UnfinishedTurnExecution | None = None,
    compaction_execution: CompactionExecution | None = None,
    tool_task_poll_execution: ToolTaskPollExecution | None = None,
    tool_task_cancel_execution: ToolTaskCancelExecution | None = None,
    options: AgentSessionOptions | None = None,
) -> Flow:
    """Build the session Flow.

    Args:
        flow_type: Durable name of the Flow type.
        build_user_message: The runner's pure function.
        model_execution: Runs model steps.
        tool_execution: Runs tool calls.
        unfinished_turn_execution: Completes the transcript of turns without an answer, for runners that can.
        compaction_execution: Summarises older messages, for runners that can.
        tool_task_poll_execution: Polls tasks that tools started, for runners that can.
        tool_task_cancel_execution: Stops abandoned tasks, for runners that can.
        options: How the sessions behave.

    Raises:
        DefinitionError: `flow_type` is not a valid name.
    """
    options = options or AgentSessionOptions()
    session = SessionDefinition(build_user_message, options, reads_summaries=compaction_execution is not None)
    follows_tasks = tool_task_poll_execution is not None
    steps: list[Step[Any]] = [
        StartAgentSession(session),
        AwaitUserMessage(session),
        RunModel(model_execution, session),
        CompactContext(compaction_execution, session),
        RecordCompactionFailure(),
        AwaitToolApproval(),
        AwaitQuestionAnswer(options),
        AwaitTimer(),
        CallTool(tool_execution, options, follows_tasks=follows_tasks),
        CallSingleAttemptTool(tool_execution, options, follows_tasks=follows_tasks),
        PollToolTask(tool_task_poll_execution, options),
        CancelToolTask(tool_task_cancel_execution, options),
        ResumeTurn(),
        FinishTurnCancellation(),
        RecordToolFailure(),
        RecordToolOutcomeUnknown(),
        # Also for a runner that builds no messages: `cancel_turn` names them, and a deploy may find one open.
        RecordTurnFailureNote(session),
        ApplyTurnControlNote(session),
    ]
    if unfinished_turn_execution is None:
        steps += [RecordTurnFailure(session), ApplyTurnControl(session)]
    else:
        steps += [
            RecordTurnFailureWithRunnerMessages(unfinished_turn_execution, session),
            ApplyTurnControlWithRunnerMessages(unfinished_turn_execution, session),
        ]
    return Flow(
        flow_type,
        steps=steps,
        start_step=StartAgentSession,
        declarations=session_declarations(options.event_stream_capacity_bytes),
        rpcs=session_rpcs(plan_mode_enabled=options.plan_mode_enabled),
    )
