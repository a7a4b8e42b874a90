"""The I/O of `CallTool` and `CallSingleAttemptTool`: one attempt of one tool call."""

from __future__ import annotations

from collections.abc import Callable

from dex_agents.execution.attempt_log import log_failed_attempt, log_failure_for_model
from dex_agents.execution.event_writer import BufferedAgentEventWriter
from dex_agents.execution.heartbeats import BackgroundHeartbeats
from dex_agents.execution.runner_calls import await_runner
from dex_agents.runner import (
    AgentEventWriter,
    AgentFrameworkRunner,
    DeferredToolExecution,
    ToolExecutionError,
    ToolTaskPoller,
)
from dex_agents.session.ingress import failed_tool_call, tool_outcome
from dex_agents.session.outcomes import ToolCallSnapshot, ToolOutcome
from dex_agents.session.persistence import AGENT_EVENTS
from dex_flow import Activity

__all__ = ["RunnerToolCallExecution"]


class RunnerToolCallExecution:
    """A `ToolCallExecution` that asks a runner.

    Args:
        runner: Runs the tools; shared by all sessions of the Flow type.
    """

    def __init__(self, runner: AgentFrameworkRunner) -> None:
        self._runner = runner
        self._supports_tool_tasks = isinstance(runner, ToolTaskPoller)

    async def run_tool_call(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolOutcome:
        """Run one attempt of a tool call.

        Raises:
            RunnerContractError: The runner returned what the contract does not allow; names the field.
            Exception: Whatever else the runner raised; the attempt failed and the tool's effect decides what follows.
        """
        with (
            BackgroundHeartbeats(activity) as heartbeats,
            BufferedAgentEventWriter(activity, AGENT_EVENTS, snapshot.turn_id) as events,
        ):
            call = self._build_call(activity, snapshot, events, heartbeats.heartbeat)
            turn_id, tool_name = snapshot.turn_id, snapshot.record.tool_name
            try:
                with log_failed_attempt("tool call", activity, turn_id, tool_name, passed_on=ToolExecutionError):
                    outcome = await await_runner(
                        "execute_deferred_tool_call", self._runner.execute_deferred_tool_call(call)
                    )
                    return tool_outcome(outcome, tool_name, snapshot.options)
            except ToolExecutionError as error:
                log_failure_for_model(error, activity, turn_id, tool_name)
                return failed_tool_call(error, snapshot.options)

    def _build_call(
        self,
        activity: Activity,
        snapshot: ToolCallSnapshot,
        events: AgentEventWriter,
        heartbeat: Callable[[], None],
    ) -> DeferredToolExecution:
        return DeferredToolExecution(
            flow_id=activity.flow_id,
            turn_id=snapshot.turn_id,
            tool_call=snapshot.record.to_tool_call(),
            idempotency_key=snapshot.idempotency_key,
            attempt=activity.attempt,
            step_execution_id=activity.step_execution_id,
            events=events,
            heartbeat=heartbeat,
            save_heartbeat_checkpoint=activity.save_heartbeat_checkpoint,
            heartbeat_checkpoint=activity.heartbeat_checkpoint,
            deadline=activity.deadline,
            input_answers=snapshot.record.input_answers,
            supports_tool_tasks=self._supports_tool_tasks,
            framework_run_state=snapshot.framework_run_state,
            messages=snapshot.messages,
        )
