"""The I/O of `PollToolTask` and `CancelToolTask`: one attempt of asking how remote work is, or of stopping it."""

from __future__ import annotations

from collections.abc import Callable

from dex_agents.execution.attempt_log import log_failed_attempt, log_failure_for_model
from dex_agents.execution.event_writer import BufferedAgentEventWriter
from dex_agents.execution.heartbeats import BackgroundHeartbeats
from dex_agents.execution.runner_calls import await_runner
from dex_agents.runner import (
    AgentEventWriter,
    ToolExecutionError,
    ToolTaskCancellation,
    ToolTaskCanceller,
    ToolTaskPoll,
    ToolTaskPoller,
)
from dex_agents.session.ingress import failed_tool_call, tool_task_outcome
from dex_agents.session.outcomes import ToolCallSnapshot, ToolTaskCancelled, ToolTaskOutcome
from dex_agents.session.persistence import AGENT_EVENTS
from dex_flow import Activity

__all__ = ["RunnerToolTaskCancelExecution", "RunnerToolTaskPollExecution"]


class RunnerToolTaskPollExecution:
    """A `ToolTaskPollExecution` that asks a runner.

    Args:
        poller: Polls the tasks; shared by all sessions of the Flow type.
    """

    def __init__(self, poller: ToolTaskPoller) -> None:
        self._poller = poller

    async def poll_tool_task(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskOutcome:
        """Run one attempt of a poll.

        Raises:
            RunnerContractError: The runner returned what the contract does not allow; names the field.
            Exception: Whatever else the runner raised; the attempt failed, and another poll follows or the effect
                decides.
        """
        with (
            BackgroundHeartbeats(activity) as heartbeats,
            BufferedAgentEventWriter(activity, AGENT_EVENTS, snapshot.turn_id) as events,
        ):
            poll = _build_poll(activity, snapshot, events, heartbeats.heartbeat)
            turn_id, tool_name = snapshot.turn_id, snapshot.record.tool_name
            try:
                with log_failed_attempt("tool task poll", activity, turn_id, tool_name, passed_on=ToolExecutionError):
                    outcome = await await_runner("poll_tool_task", self._poller.poll_tool_task(poll))
                    return tool_task_outcome(outcome, tool_name, snapshot.options)
            except ToolExecutionError as error:
                log_failure_for_model(error, activity, turn_id, tool_name)
                return failed_tool_call(error, snapshot.options)


def _build_poll(
    activity: Activity, snapshot: ToolCallSnapshot, events: AgentEventWriter, heartbeat: Callable[[], None]
) -> ToolTaskPoll:
    record = snapshot.record
    return ToolTaskPoll(
        flow_id=activity.flow_id,
        turn_id=snapshot.turn_id,
        tool_call=record.to_tool_call(),
        idempotency_key=snapshot.idempotency_key,
        attempt=activity.attempt,
        step_execution_id=activity.step_execution_id,
        events=events,
        heartbeat=heartbeat,
        deadline=activity.deadline,
        input_answers=record.input_answers,
        pending_answer=record.input_answers[-1] if record.task_answer_pending else None,
    )


class RunnerToolTaskCancelExecution:
    """A `ToolTaskCancelExecution` that asks a runner.

    Args:
        canceller: Stops the tasks; shared by all sessions of the Flow type.
    """

    def __init__(self, canceller: ToolTaskCanceller) -> None:
        self._canceller = canceller

    async def cancel_tool_task(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskCancelled:
        """Run one attempt of a cancellation.

        Raises:
            Exception: Whatever the runner raised, a `ToolExecutionError` too: no model waits for this call any more.
        """
        cancellation = ToolTaskCancellation(
            flow_id=activity.flow_id,
            turn_id=snapshot.turn_id,
            tool_call=snapshot.record.to_tool_call(),
            idempotency_key=snapshot.idempotency_key,
            attempt=activity.attempt,
            deadline=activity.deadline,
        )
        with (
            BackgroundHeartbeats(activity),
            log_failed_attempt("tool task cancellation", activity, snapshot.turn_id, snapshot.record.tool_name),
        ):
            await await_runner("cancel_tool_task", self._canceller.cancel_tool_task(cancellation))
        return ToolTaskCancelled()
