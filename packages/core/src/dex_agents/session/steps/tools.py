"""The Steps that run tool calls: one that may be attempted again, one that must not run twice."""

from __future__ import annotations

from msgspec.structs import replace

from dex_agents.session.events import emit_tool_call_started
from dex_agents.session.execution_port import ToolCallExecution
from dex_agents.session.identity import idempotency_key
from dex_agents.session.messages import load_messages
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallSnapshot,
    ToolCallSucceeded,
    ToolCallTaskStarted,
    ToolOutcome,
)
from dex_agents.session.persistence import AGENT_TOOL_CALLS, FRAMEWORK_RUN_STATE
from dex_agents.session.policies import EFFECT_RULES
from dex_agents.session.step_options import repeatable_options, single_attempt_options
from dex_agents.session.step_types import RECORD_TOOL_FAILURE, RECORD_TOOL_OUTCOME_UNKNOWN
from dex_agents.session.texts import MISSING_TOOL_INPUT_SUPPORT, MISSING_TOOL_TASK_POLLER
from dex_agents.session.tool_calls import finalize_tool_call, get_record
from dex_agents.session.tool_values import AgentToolCallRecordStatus
from dex_agents.session.transitions import active_turn, session_state
from dex_flow import Activity, ActivityStep, AttemptFailure, Decision, Proceed, StateView, Transaction, dead_end

__all__ = ["CallSingleAttemptTool", "CallTool"]


class _ToolStep(ActivityStep[str, ToolCallSnapshot, ToolOutcome]):
    """What both Steps share; the input is the tool call ID."""

    next_steps = ()

    def __init__(self, execution: ToolCallExecution, options: AgentSessionOptions) -> None:
        self._execution = execution
        self._session_options = options

    def before_run(self, tx: Transaction, input: str) -> Proceed:
        """Mark the attempt on the record, in the commit that makes its start durable."""
        record = replace(get_record(tx, input), is_running=True, attempt=tx.attempt, started_at=tx.now)
        tx.set_instance(AGENT_TOOL_CALLS, input, record)
        emit_tool_call_started(tx, active_turn(session_state(tx)), record)
        return Proceed()

    def load(self, view: StateView, input: str) -> ToolCallSnapshot:
        """The call and what it may read of its turn."""
        turn = active_turn(session_state(view))
        return ToolCallSnapshot(
            record=get_record(view, input),
            turn_id=turn,
            idempotency_key=idempotency_key(view.flow_id, turn, input),
            messages=load_messages(view) if self._session_options.tool_calls_read_messages else (),
            framework_run_state=view.get(FRAMEWORK_RUN_STATE),
            options=self._session_options,
        )

    async def run(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolOutcome:
        """The tool call."""
        return await self._execution.run_tool_call(activity, snapshot)

    def commit(self, tx: Transaction, input: str, outcome: ToolOutcome) -> Decision:
        """Make the record final."""
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        status = AgentToolCallRecordStatus
        match outcome:
            case ToolCallSucceeded():
                finalize_tool_call(
                    tx,
                    turn,
                    record,
                    status.SUCCEEDED,
                    output=outcome.output,
                    framework_result=outcome.framework_result,
                )
            case ToolCallFailed():
                finalize_tool_call(tx, turn, record, status.FAILED, error=outcome.message)
            case ToolCallInputRequested():
                finalize_tool_call(tx, turn, record, status.FAILED, error=MISSING_TOOL_INPUT_SUPPORT)
            case ToolCallTaskStarted():
                finalize_tool_call(
                    tx,
                    turn,
                    record,
                    EFFECT_RULES[record.effect].status_when_lost,
                    error=MISSING_TOOL_TASK_POLLER,
                    task_id=outcome.task_id,
                )
        return dead_end()

    def on_attempt_failed(self, tx: Transaction, input: str, failure: AttemptFailure) -> None:
        """The attempt is over; another one follows."""
        tx.set_instance(AGENT_TOOL_CALLS, input, replace(get_record(tx, input), is_running=False))


class CallTool(_ToolStep):
    """Runs one `read` or `idempotent_write` call; a failed or lost attempt is followed by another one."""

    def __init__(self, execution: ToolCallExecution, options: AgentSessionOptions) -> None:
        super().__init__(execution, options)
        self.options = repeatable_options(RECORD_TOOL_FAILURE, options.attempt_backoff)


class CallSingleAttemptTool(_ToolStep):
    """Runs one `non_idempotent_write` or `unclassified` call; a crash never repeats it."""

    def __init__(self, execution: ToolCallExecution, options: AgentSessionOptions) -> None:
        super().__init__(execution, options)
        self.options = single_attempt_options(RECORD_TOOL_OUTCOME_UNKNOWN)
