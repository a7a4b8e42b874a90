"""Building the Flow of a runner's sessions."""

from __future__ import annotations

from typing import Any

from dex_agents.execution.compaction import RunnerCompactionExecution
from dex_agents.execution.model_step import RunnerModelStepExecution
from dex_agents.execution.tool_call import RunnerToolCallExecution
from dex_agents.execution.tool_task import RunnerToolTaskCancelExecution, RunnerToolTaskPollExecution
from dex_agents.execution.unfinished_turn import RunnerUnfinishedTurnExecution
from dex_agents.message_receipts import send_user_message_with_receipt
from dex_agents.runner import (
    AgentFrameworkRunner,
    ContextCompactor,
    ToolTaskCanceller,
    ToolTaskPoller,
    UnfinishedTurnMessageBuilder,
)
from dex_agents.runner_checks import check_capabilities, check_runner
from dex_agents.session import persistence, rpcs
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.session_flow import build_agent_session_flow
from dex_flow import Flow

__all__ = ["AgentSessionFlow", "create_agent_session_flow"]


class AgentSessionFlow(Flow):
    """The Flow of one runner's sessions, with its durable names and RPCs as attributes.

    Read committed values with `engine.get_attribute(session_id, flow.agent_state)`, and call
    `engine.invoke_rpc(flow, session_id, flow.get_agent_snapshot, None)`; `AgentSessionClient` wraps both.

    Args:
        runner: Makes the model calls and runs the tools.
        flow_type: Durable name of the Flow type.
        options: How its sessions behave.

    Raises:
        TypeError: The runner breaks its contract in a way its class shows; names the method.
        DefinitionError: The Flow type is not non-empty text.
    """

    agent_state = persistence.AGENT_STATE
    agent_messages = persistence.AGENT_MESSAGES
    agent_message_chunks = persistence.AGENT_MESSAGE_CHUNKS
    agent_message_index = persistence.AGENT_MESSAGE_INDEX
    agent_plan = persistence.AGENT_PLAN
    context_summary = persistence.CONTEXT_SUMMARY
    session_settings = persistence.SESSION_SETTINGS
    agent_tool_calls = persistence.AGENT_TOOL_CALLS
    pending_interrupts = persistence.PENDING_INTERRUPTS
    agent_usage = persistence.AGENT_USAGE
    framework_run_state = persistence.FRAMEWORK_RUN_STATE
    queued_user_messages = persistence.QUEUED_USER_MESSAGES
    steered_user_messages = persistence.STEERED_USER_MESSAGES
    turn_cancellation_request = persistence.TURN_CANCELLATION_REQUEST

    send_user_message = rpcs.SEND_USER_MESSAGE
    steer_user_message = rpcs.STEER_USER_MESSAGE
    delete_queued_message = rpcs.DELETE_QUEUED_MESSAGE
    cancel_turn = rpcs.CANCEL_TURN
    resolve_interrupt = rpcs.RESOLVE_INTERRUPT
    answer_question = rpcs.ANSWER_QUESTION
    execute_plan = rpcs.EXECUTE_PLAN
    update_session_settings = rpcs.UPDATE_SESSION_SETTINGS
    get_agent_snapshot = rpcs.GET_AGENT_SNAPSHOT
    list_agent_messages = rpcs.LIST_AGENT_MESSAGES

    def __init__(self, runner: AgentFrameworkRunner, flow_type: str, options: AgentSessionOptions) -> None:
        check_runner(runner)
        check_capabilities(runner, options)
        unfinished_turn = (
            RunnerUnfinishedTurnExecution(runner) if isinstance(runner, UnfinishedTurnMessageBuilder) else None
        )
        polling = RunnerToolTaskPollExecution(runner) if isinstance(runner, ToolTaskPoller) else None
        cancelling = RunnerToolTaskCancelExecution(runner) if isinstance(runner, ToolTaskCanceller) else None
        definition = build_agent_session_flow(
            flow_type,
            build_user_message=runner.build_user_message,
            model_execution=RunnerModelStepExecution(runner),
            tool_execution=RunnerToolCallExecution(runner),
            unfinished_turn_execution=unfinished_turn,
            tool_task_poll_execution=polling,
            tool_task_cancel_execution=cancelling,
            compaction_execution=RunnerCompactionExecution(runner) if isinstance(runner, ContextCompactor) else None,
            options=options,
        )
        send = definition.rpcs[rpcs.SEND_USER_MESSAGE.name]
        super().__init__(
            flow_type,
            steps=tuple(definition.steps.values()),
            start_step=definition.start_step,
            declarations=tuple(definition.declarations.values()),
            rpcs=(*definition.rpcs.values(), send_user_message_with_receipt(send, runner.build_user_message)),
            compatibility=definition.compatibility,
        )
        self.runner = runner
        self.options = options
        self.agent_events = self.streams[persistence.AGENT_EVENTS.name]


def create_agent_session_flow(runner: AgentFrameworkRunner, flow_type: str, **options: Any) -> AgentSessionFlow:
    """Build the Flow of a runner's sessions; adapters wrap this in a factory of their own.

    Args:
        runner: Implements the runner contract.
        flow_type: Durable name of the Flow type; sessions are stored under it, so it never changes.
        options: The fields of `AgentSessionOptions`.

    Raises:
        TypeError: The runner lacks a method or one is wrongly sync or async, or an option is unknown or has the wrong
            type; names it.
        ValueError: An option has a value it cannot have; names it.
        DefinitionError: The Flow type is not non-empty text.
    """
    return AgentSessionFlow(runner, flow_type, AgentSessionOptions(**options))
