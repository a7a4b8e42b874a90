"""Steps of the model loop: one model call, and the way back to it once its tool calls are final."""

from __future__ import annotations

from msgspec.structs import replace

from dex_agents.session.deferral import defer_tool_calls
from dex_agents.session.definition import SessionDefinition
from dex_agents.session.events import (
    TURN_COMPLETED,
    emit_model_call_retrying,
    emit_turn_completed,
    emit_turn_limit_reached,
)
from dex_agents.session.execution_port import ModelStepExecution
from dex_agents.session.model_input import load_model_step_snapshot
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepNeedsCompaction,
    ModelStepOutcome,
    ModelStepRefused,
    ModelStepSnapshot,
    ModelStepToolCallsRequested,
)
from dex_agents.session.persistence import AGENT_STATE, FRAMEWORK_RUN_STATE, TOOL_CALL_RESULTS, TURN_CONTROL_REQUESTS
from dex_agents.session.plan_values import CompactContextInput
from dex_agents.session.settings import turn_settings
from dex_agents.session.step_options import repeatable_options
from dex_agents.session.step_types import (
    APPLY_TURN_CONTROL,
    AWAIT_USER_MESSAGE,
    COMPACT_CONTEXT,
    RECORD_TURN_FAILURE,
    RESUME_TURN,
    RUN_MODEL,
)
from dex_agents.session.tool_calls import turn_records
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, add_usage, clear_turn, reply_count, session_state
from dex_agents.session.turn_control import pending_turn_control, wake_waiting_calls
from dex_agents.session.turn_limits import TurnLimits, crossed_limit, limits_in_force, reached_limit_text
from dex_agents.session.values import AgentState, AgentStatus, TurnError
from dex_flow import (
    Activity,
    ActivityStep,
    AttemptFailure,
    Decision,
    InlineStep,
    Proceed,
    StateView,
    Transaction,
    Wait,
    go_to,
    go_to_many,
    move,
)

__all__ = ["ResumeTurn", "RunModel"]

CONTINUATION_LIMIT = "max_model_step_continuations"


class RunModel(ActivityStep[None, ModelStepSnapshot, ModelStepOutcome]):
    """Runs one model step of the active turn and applies what came of it."""

    next_steps = STEP_GRAPH[RUN_MODEL]

    def __init__(self, execution: ModelStepExecution, session: SessionDefinition) -> None:
        self._execution = execution
        self._session = session
        self.options = repeatable_options(RECORD_TURN_FAILURE, session.options.attempt_backoff)

    def before_run(self, tx: Transaction, input: None) -> Proceed | Decision:
        """A steered or cancelled turn makes no further model call; one that reached a limit makes its last."""
        state = session_state(tx)
        turn = active_turn(state)
        if pending_turn_control(tx, turn) is not None:
            return go_to(APPLY_TURN_CONTROL)
        if state.turn_limit_reached is None:
            crossed = crossed_limit(state, self._limits(tx, turn), tx.now)
            if crossed is not None:
                tx.set(AGENT_STATE, replace(state, turn_limit_reached=crossed.name, updated_at=tx.now))
                emit_turn_limit_reached(tx, turn, crossed.name, crossed.value)
        return Proceed()

    def load(self, view: StateView, input: None) -> ModelStepSnapshot:
        """The model input."""
        return load_model_step_snapshot(view, self._session)

    async def run(self, activity: Activity, snapshot: ModelStepSnapshot) -> ModelStepOutcome:
        """The model call."""
        return await self._execution.run_model_step(activity, snapshot)

    def commit(self, tx: Transaction, input: None, outcome: ModelStepOutcome) -> Decision:
        """Store what the model said and go on, or end the turn."""
        state = session_state(tx)
        turn = active_turn(state)
        state = add_usage(tx, turn, state, outcome.usage)
        match outcome:
            case ModelStepCompleted():
                return self._complete(tx, state, turn, outcome)
            case ModelStepToolCallsRequested():
                return self._run_tools(tx, state, turn, outcome)
            case ModelStepContinued():
                return self._continue(tx, state, turn, outcome)
            case ModelStepRefused():
                error = TurnError(turn_id=turn, type=outcome.error_type, message=outcome.message)
                return _fail_turn(tx, state, error)
            case ModelStepNeedsCompaction():
                compacting = replace(state, status=AgentStatus.COMPACTING_CONTEXT, updated_at=tx.now)
                tx.set(AGENT_STATE, compacting)
                return go_to(COMPACT_CONTEXT, CompactContextInput(through_sequence=outcome.through_sequence))

    def on_attempt_failed(self, tx: Transaction, input: None, failure: AttemptFailure) -> None:
        """Say that the model call is tried again."""
        emit_model_call_retrying(tx, active_turn(session_state(tx)), failure)

    def _complete(self, tx: Transaction, state: AgentState, turn: str, outcome: ModelStepCompleted) -> Decision:
        records = turn_records(tx) if state.turn_tool_call_count else ()
        last_sequence = self._session.messages.append(
            tx, turn, state.last_message_sequence, outcome.new_messages, records
        )
        emit_turn_completed(tx, turn, reply_count(tx, turn, last_sequence))
        clear_turn(
            tx,
            state,
            records,
            ending=TURN_COMPLETED,
            step_type=RUN_MODEL,
            last_message_sequence=last_sequence,
            last_turn_error=None,
        )
        return go_to(AWAIT_USER_MESSAGE)

    def _run_tools(
        self, tx: Transaction, state: AgentState, turn: str, outcome: ModelStepToolCallsRequested
    ) -> Decision:
        step_number = state.turn_model_step_count + 1
        limit_text = self._limit_text(tx, state, turn)
        records, movements = defer_tool_calls(
            tx,
            turn,
            outcome.tool_calls,
            first_order=state.turn_tool_call_count,
            model_step_number=step_number,
            mode=state.interaction_mode,
            options=self._session.options,
            refusal=limit_text,
        )
        last_sequence = self._session.messages.append(
            tx, turn, state.last_message_sequence, outcome.new_messages, records
        )
        tx.set(FRAMEWORK_RUN_STATE, outcome.framework_run_state)
        asked = replace(
            state,
            status=AgentStatus.RUNNING_TOOLS,
            turn_model_step_count=step_number,
            turn_tool_call_count=state.turn_tool_call_count + len(records),
            last_message_sequence=last_sequence,
            updated_at=tx.now,
        )
        if limit_text is not None:
            return _fail_turn(tx, asked, _limit_error(turn, limit_text))
        tx.set(AGENT_STATE, asked)
        return go_to_many(*movements, move(RESUME_TURN, len(records)))

    def _continue(self, tx: Transaction, state: AgentState, turn: str, outcome: ModelStepContinued) -> Decision:
        last_sequence = self._session.messages.append(tx, turn, state.last_message_sequence, outcome.new_messages)
        count = state.turn_continuation_count + 1
        continued = replace(
            state,
            turn_model_step_count=state.turn_model_step_count + 1,
            turn_continuation_count=count,
            last_message_sequence=last_sequence,
            updated_at=tx.now,
        )
        tx.set(FRAMEWORK_RUN_STATE, outcome.framework_run_state)
        tx.set(AGENT_STATE, continued)
        limit = self._session.options.max_model_step_continuations
        if pending_turn_control(tx, turn) is not None:
            return go_to(APPLY_TURN_CONTROL)
        limit_text = self._limit_text(tx, state, turn)
        if limit_text is not None:
            return _fail_turn(tx, continued, _limit_error(turn, limit_text))
        if count <= limit:
            return go_to(RUN_MODEL)
        emit_turn_limit_reached(tx, turn, CONTINUATION_LIMIT, limit)
        error = TurnError(
            turn_id=turn,
            type="ModelStepContinuationLimitError",
            message=f"{count} model steps of the turn gave neither an answer nor tool calls; the limit is {limit} "
            f"({CONTINUATION_LIMIT})",
        )
        return _fail_turn(tx, continued, error)

    def _limits(self, view: StateView, turn: str) -> TurnLimits:
        return limits_in_force(self._session.options.turn_limits, turn_settings(view, turn))

    def _limit_text(self, view: StateView, state: AgentState, turn: str) -> str | None:
        """What a call is told that the turn's last model call asked for; None before a limit is reached."""
        return None if state.turn_limit_reached is None else reached_limit_text(state, self._limits(view, turn))


def _limit_error(turn: str, text: str) -> TurnError:
    return TurnError(turn_id=turn, type="TurnLimitReachedError", message=text)


def _fail_turn(tx: Transaction, state: AgentState, error: TurnError) -> Decision:
    # No call is open any more, which a cancellation has to see.
    failed = replace(state, status=AgentStatus.RUNNING_MODEL, last_turn_error=error, updated_at=tx.now)
    tx.set(AGENT_STATE, failed)
    return go_to(RECORD_TURN_FAILURE)


class ResumeTurn(InlineStep[int]):
    """Waits until every call of the latest model step is final, and goes to the next model step.

    It is also where a steer or a cancellation reaches the calls of a turn.
    """

    next_steps = STEP_GRAPH[RESUME_TURN]

    def wait_for(self, view: StateView, input: int) -> Wait:
        """As many results as there are calls, or a steer or cancellation."""
        return Wait.any_of(TOOL_CALL_RESULTS.receive(input), TURN_CONTROL_REQUESTS.receive())

    def execute(self, tx: Transaction, input: int) -> Decision:
        """Go on with the turn, end what waits in it, or end it."""
        state = session_state(tx)
        turn = active_turn(state)
        reason = pending_turn_control(tx, turn)
        if tx.wait_result.index == 1:
            if reason is not None:
                wake_waiting_calls(tx, turn, reason)
            return go_to(RESUME_TURN, input)
        # Also before the turn ends: a cancellation must see that no call is open any more.
        tx.set(AGENT_STATE, replace(state, status=AgentStatus.RUNNING_MODEL, updated_at=tx.now))
        return go_to(RUN_MODEL if reason is None else APPLY_TURN_CONTROL)
