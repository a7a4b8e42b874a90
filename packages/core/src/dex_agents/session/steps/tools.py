"""The Steps that run tool calls: one that may be attempted again, one that must not run twice."""

from __future__ import annotations

from msgspec.structs import replace

from dex_agents.session.events import emit_tool_call_started, emit_tool_task_started
from dex_agents.session.execution_port import ToolCallExecution
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallSnapshot,
    ToolCallSucceeded,
    ToolCallTaskStarted,
    ToolOutcome,
)
from dex_agents.session.persistence import AGENT_TOOL_CALLS
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.questions import ask_tool_question
from dex_agents.session.sanitizer import sanitize_error_text
from dex_agents.session.step_options import poll_options, repeatable_options, single_attempt_options
from dex_agents.session.step_types import (
    AWAIT_QUESTION_ANSWER,
    CALL_SINGLE_ATTEMPT_TOOL,
    CALL_TOOL,
    CANCEL_TOOL_TASK,
    POLL_TOOL_TASK,
    RECORD_TOOL_FAILURE,
    RECORD_TOOL_OUTCOME_UNKNOWN,
)
from dex_agents.session.texts import MISSING_TOOL_TASK_POLLER
from dex_agents.session.tool_calls import finalize_tool_call, get_record, move_record
from dex_agents.session.tool_input import load_tool_call_snapshot
from dex_agents.session.tool_values import AgentToolCallRecord, AgentToolCallRecordStatus
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.turn_control import (
    pending_turn_control,
    record_without_further_attempt,
    reject_unstarted_call,
    request_turn_control,
)
from dex_flow import (
    Activity,
    ActivityStep,
    AttemptFailure,
    Decision,
    Proceed,
    StateView,
    Transaction,
    dead_end,
    go_to,
)

__all__ = ["CallSingleAttemptTool", "CallTool"]

Status = AgentToolCallRecordStatus


class _ToolStep(ActivityStep[str, ToolCallSnapshot, ToolOutcome]):
    """What both Steps share; the input is the tool call ID."""

    def __init__(self, execution: ToolCallExecution, options: AgentSessionOptions, *, follows_tasks: bool) -> None:
        self._execution = execution
        self._session_options = options
        self._follows_tasks = follows_tasks

    def before_run(self, tx: Transaction, input: str) -> Proceed | Decision:
        """Mark the attempt on the record, in the commit that makes its start durable; a stopped turn starts none."""
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        reason = pending_turn_control(tx, turn)
        if reason is not None:
            if tx.attempt == 1:
                reject_unstarted_call(tx, turn, record, reason)
            else:
                record_without_further_attempt(tx, turn, record, reason)
            return dead_end()
        started = replace(
            record,
            is_running=True,
            attempt=tx.attempt,
            step_execution_id=tx.step_execution_id,
            last_attempt_error=None,
            started_at=tx.now,
        )
        tx.set_instance(AGENT_TOOL_CALLS, input, started)
        emit_tool_call_started(tx, turn, started)
        return Proceed()

    def load(self, view: StateView, input: str) -> ToolCallSnapshot:
        """The call and what it may read of its turn."""
        return load_tool_call_snapshot(view, input, self._session_options)

    async def run(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolOutcome:
        """The tool call."""
        return await self._execution.run_tool_call(activity, snapshot)

    def commit(self, tx: Transaction, input: str, outcome: ToolOutcome) -> Decision:
        """Make the record final, ask the tool's question, or follow its task."""
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
            case ToolCallInputRequested():
                return self._ask(tx, turn, record, outcome)
            case ToolCallTaskStarted():
                return self._follow_task(tx, turn, record, outcome)
        return dead_end()

    def _ask(
        self, tx: Transaction, turn: str, record: AgentToolCallRecord, outcome: ToolCallInputRequested
    ) -> Decision:
        reason = pending_turn_control(tx, turn)
        if reason is not None:
            # A tool asks before it takes effect, so only an attempt before this one can have.
            reject_unstarted_call(tx, turn, record, reason)
            return dead_end()
        ask_tool_question(tx, turn, record, outcome, self._session_options.interrupt_deadline)
        return go_to(AWAIT_QUESTION_ANSWER, record.tool_call_id)

    def _follow_task(
        self, tx: Transaction, turn: str, record: AgentToolCallRecord, outcome: ToolCallTaskStarted
    ) -> Decision:
        if not self._follows_tasks:
            status = EFFECT_RULES[record.effect].status_when_lost
            finalize_tool_call(tx, turn, record, status, error=MISSING_TOOL_TASK_POLLER, task_id=outcome.task_id)
            return dead_end()
        started = move_record(
            tx,
            record,
            Status.WAITING_FOR_TASK,
            is_running=False,
            task_id=outcome.task_id,
            task_poll_interval_seconds=outcome.poll_interval_seconds,
            input_continuation=None,
        )
        emit_tool_task_started(tx, turn, started)
        if pending_turn_control(tx, turn) == "turn_cancelled":
            return go_to(CANCEL_TOOL_TASK, record.tool_call_id)
        options = poll_options(record.effect, self._session_options.attempt_backoff)
        return go_to(POLL_TOOL_TASK, record.tool_call_id, options=options)

    def on_attempt_failed(self, tx: Transaction, input: str, failure: AttemptFailure) -> None:
        """The attempt is over; another one follows, unless the turn is being stopped."""
        error = sanitize_error_text(f"{failure.error_type}: {failure.message}")
        record = replace(get_record(tx, input), is_running=False, last_attempt_error=error, earlier_attempt_failed=True)
        tx.set_instance(AGENT_TOOL_CALLS, input, record)
        reason = pending_turn_control(tx, active_turn(session_state(tx)))
        if reason is not None:
            # The Step that waits for the turn's results ends the pending retry, instead of its backoff.
            request_turn_control(tx, reason)


class CallTool(_ToolStep):
    """Runs one `read` or `idempotent_write` call; a failed or lost attempt is followed by another one."""

    next_steps = STEP_GRAPH[CALL_TOOL]

    def __init__(self, execution: ToolCallExecution, options: AgentSessionOptions, *, follows_tasks: bool) -> None:
        super().__init__(execution, options, follows_tasks=follows_tasks)
        self.options = repeatable_options(RECORD_TOOL_FAILURE, options.attempt_backoff)


class CallSingleAttemptTool(_ToolStep):
    """Runs one `non_idempotent_write` or `unclassified` call; a crash never repeats it."""

    next_steps = STEP_GRAPH[CALL_SINGLE_ATTEMPT_TOOL]

    def __init__(self, execution: ToolCallExecution, options: AgentSessionOptions, *, follows_tasks: bool) -> None:
        super().__init__(execution, options, follows_tasks=follows_tasks)
        self.options = single_attempt_options(RECORD_TOOL_OUTCOME_UNKNOWN)
