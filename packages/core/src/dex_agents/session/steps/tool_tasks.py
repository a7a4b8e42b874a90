"""Steps of remote work that a tool started: polling it, and asking it to stop."""

from __future__ import annotations

from datetime import timedelta

from dex_agents.session.execution_port import ToolTaskCancelExecution, ToolTaskPollExecution
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallSnapshot,
    ToolCallSucceeded,
    ToolTaskCancelled,
    ToolTaskOutcome,
    ToolTaskStillPending,
)
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.questions import ask_tool_question
from dex_agents.session.step_options import cancel_task_options, poll_options
from dex_agents.session.step_types import AWAIT_QUESTION_ANSWER, CANCEL_TOOL_TASK, POLL_TOOL_TASK
from dex_agents.session.texts import MISSING_TOOL_TASK_POLLER, TASK_ABANDONED_ERROR
from dex_agents.session.tool_calls import finalize_tool_call, get_record, move_record
from dex_agents.session.tool_input import load_tool_call_snapshot
from dex_agents.session.tool_values import AgentToolCallRecordStatus, ToolEffect
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, session_state
from dex_flow import (
    Activity,
    ActivityStep,
    Decision,
    Proceed,
    StateView,
    Timer,
    Transaction,
    Wait,
    dead_end,
    go_to,
)

__all__ = ["CancelToolTask", "PollToolTask"]

Status = AgentToolCallRecordStatus


class PollToolTask(ActivityStep[str, ToolCallSnapshot, ToolTaskOutcome]):
    """Waits for the interval and asks the runner once how the task of the call with this ID is.

    Args:
        execution: Polls; None when the deployed runner cannot.
        options: The session's options.
    """

    next_steps = STEP_GRAPH[POLL_TOOL_TASK]

    def __init__(self, execution: ToolTaskPollExecution | None, options: AgentSessionOptions) -> None:
        self._execution = execution
        self._session_options = options
        self.options = poll_options(ToolEffect.READ, options.attempt_backoff)

    def wait_for(self, view: StateView, input: str) -> Wait:
        """The poll interval; nothing while an answer waits to be handed over."""
        record = get_record(view, input)
        if record.task_answer_pending:
            return Wait.nothing
        return Wait.any_of(Timer(view.now + timedelta(seconds=record.task_poll_interval_seconds or 1)))

    def before_run(self, tx: Transaction, input: str) -> Proceed | Decision:
        """A runner that lost its poller in a deploy cannot follow the task."""
        if self._execution is not None:
            return Proceed()
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        status = EFFECT_RULES[record.effect].status_when_lost
        finalize_tool_call(tx, turn, record, status, error=MISSING_TOOL_TASK_POLLER)
        return dead_end()

    def load(self, view: StateView, input: str) -> ToolCallSnapshot:
        """The call and what it may read of its turn."""
        return load_tool_call_snapshot(view, input, self._session_options)

    async def run(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskOutcome:
        """The poll."""
        if self._execution is None:
            raise LookupError("the runner cannot poll tasks")
        return await self._execution.poll_tool_task(activity, snapshot)

    def commit(self, tx: Transaction, input: str, outcome: ToolTaskOutcome) -> Decision:
        """Make the record final, poll again, or ask the task's question."""
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        match outcome:
            case ToolCallSucceeded():
                finalize_tool_call(
                    tx,
                    turn,
                    record,
                    Status.SUCCEEDED,
                    output=outcome.output,
                    framework_result=outcome.framework_result,
                )
            case ToolCallFailed():
                finalize_tool_call(
                    tx,
                    turn,
                    record,
                    Status.FAILED,
                    error=outcome.message,
                    framework_result=outcome.framework_result,
                )
            case ToolTaskStillPending():
                move_record(
                    tx,
                    record,
                    Status.WAITING_FOR_TASK,
                    task_poll_interval_seconds=outcome.poll_interval_seconds,
                    input_continuation=outcome.continuation,
                    task_answer_pending=False,
                )
                options = poll_options(record.effect, self._session_options.attempt_backoff)
                return go_to(POLL_TOOL_TASK, input, options=options)
            case ToolCallInputRequested():
                ask_tool_question(tx, turn, record, outcome, self._session_options.interrupt_deadline)
                return go_to(AWAIT_QUESTION_ANSWER, input)
        return dead_end()


class CancelToolTask(ActivityStep[str, ToolCallSnapshot, ToolTaskCancelled]):
    """Asks the runner to stop the abandoned task of the call with this ID, and records that its outcome is unknown.

    Args:
        execution: Stops tasks; None when the runner cannot.
        options: The session's options.
    """

    next_steps = STEP_GRAPH[CANCEL_TOOL_TASK]
    options = cancel_task_options()

    def __init__(self, execution: ToolTaskCancelExecution | None, options: AgentSessionOptions) -> None:
        self._execution = execution
        self._session_options = options

    def before_run(self, tx: Transaction, input: str) -> Proceed | Decision:
        """Record at once when nobody can stop the task."""
        return Proceed() if self._execution is not None else _abandon(tx, input)

    def load(self, view: StateView, input: str) -> ToolCallSnapshot:
        """The call."""
        return load_tool_call_snapshot(view, input, self._session_options)

    async def run(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskCancelled:
        """The request to stop."""
        if self._execution is None:
            raise LookupError("the runner cannot stop tasks")
        return await self._execution.cancel_tool_task(activity, snapshot)

    def commit(self, tx: Transaction, input: str, outcome: ToolTaskCancelled) -> Decision:
        """Make the record final."""
        return _abandon(tx, input)


def _abandon(tx: Transaction, tool_call_id: str) -> Decision:
    finalize_tool_call(
        tx,
        active_turn(session_state(tx)),
        get_record(tx, tool_call_id),
        Status.OUTCOME_UNKNOWN,
        error=TASK_ABANDONED_ERROR,
        cancellation_reason="turn_cancelled",
    )
    return dead_end()
