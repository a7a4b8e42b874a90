"""Steps that end steered and cancelled turns."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents.session.definition import SessionDefinition
from dex_agents.session.events import TURN_CANCELLED, TURN_STEERED, emit_turn_cancelled, emit_turn_steered
from dex_agents.session.execution_port import UnfinishedTurnExecution
from dex_agents.session.model_input import load_model_step_snapshot
from dex_agents.session.outcomes import ModelStepSnapshot, UnfinishedTurnOutcome
from dex_agents.session.persistence import (
    STEERED_USER_MESSAGES,
    TURN_CANCELLATION_REQUEST,
    TURN_CONTROL_REQUESTS,
)
from dex_agents.session.plans import turn_mode
from dex_agents.session.step_options import unfinished_turn_options
from dex_agents.session.step_types import (
    APPLY_TURN_CONTROL,
    APPLY_TURN_CONTROL_NOTE,
    AWAIT_USER_MESSAGE,
    FINISH_TURN_CANCELLATION,
)
from dex_agents.session.tool_calls import turn_records
from dex_agents.session.tool_values import CancellationReason
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import (
    active_turn,
    clear_turn,
    reply_count,
    session_state,
    start_turn,
)
from dex_agents.session.turn_control import cancel_waiting_calls, pending_turn_control
from dex_agents.session.unfinished_turn_note import build_turn_control_note
from dex_agents.session.values import AgentState, AgentStatus, FrameworkMessage
from dex_flow import (
    Activity,
    ActivityStep,
    Decision,
    InlineStep,
    Proceed,
    StateView,
    Transaction,
    dead_end,
    go_to,
    go_to_many,
)

__all__ = [
    "ApplyTurnControl",
    "ApplyTurnControlNote",
    "ApplyTurnControlWithRunnerMessages",
    "FinishTurnCancellation",
]


class ApplyTurnControl(InlineStep[None]):
    """Ends the steered or cancelled turn with a note of what ran, and starts a turn with the steered messages."""

    next_steps = STEP_GRAPH[APPLY_TURN_CONTROL]

    def __init__(self, session: SessionDefinition) -> None:
        self._session = session

    def execute(self, tx: Transaction, input: None) -> Decision:
        """Apply what is steered and cancelled."""
        return _apply_turn_control(tx, None, self._session, self.step_type)


class ApplyTurnControlNote(ApplyTurnControl):
    """The same, when the runner's messages could not be built."""

    next_steps = STEP_GRAPH[APPLY_TURN_CONTROL_NOTE]


class ApplyTurnControlWithRunnerMessages(ActivityStep[None, ModelStepSnapshot, UnfinishedTurnOutcome]):
    """Like `ApplyTurnControl`, and stores the turn's exact transcript instead of a note."""

    step_type = APPLY_TURN_CONTROL
    next_steps = STEP_GRAPH[APPLY_TURN_CONTROL]
    options = unfinished_turn_options(APPLY_TURN_CONTROL_NOTE)

    def __init__(self, execution: UnfinishedTurnExecution, session: SessionDefinition) -> None:
        self._execution = execution
        self._session = session

    def before_run(self, tx: Transaction, input: None) -> Proceed | Decision:
        """Without an active turn there is no transcript to complete."""
        if session_state(tx).active_turn_id is None:
            return _apply_turn_control(tx, None, self._session, self.step_type)
        return Proceed()

    def load(self, view: StateView, input: None) -> ModelStepSnapshot:
        """The turn, with every record final."""
        return load_model_step_snapshot(view, self._session)

    async def run(self, activity: Activity, snapshot: ModelStepSnapshot) -> UnfinishedTurnOutcome:
        """Build the messages."""
        return await self._execution.build_unfinished_turn_messages(activity, snapshot)

    def commit(self, tx: Transaction, input: None, outcome: UnfinishedTurnOutcome) -> Decision:
        """Apply what is steered and cancelled; a builder that raised leaves the note."""
        messages = outcome.messages if outcome.error is None else None
        return _apply_turn_control(tx, messages, self._session, self.step_type)


def _apply_turn_control(
    tx: Transaction,
    unfinished_messages: Sequence[FrameworkMessage] | None,
    session: SessionDefinition,
    step_type: str,
) -> Decision:
    state = session_state(tx)
    reason = None if state.active_turn_id is None else pending_turn_control(tx, state.active_turn_id)
    if state.active_turn_id is not None and reason is None:
        raise LookupError(f"nothing steers or cancels {state.active_turn_id}")
    steered = tx.receive(STEERED_USER_MESSAGES, tx.count_messages(STEERED_USER_MESSAGES))
    if reason is not None:
        state = _end_turn(tx, state, reason, len(steered), unfinished_messages, session, step_type)
    tx.purge_messages(TURN_CONTROL_REQUESTS)
    if not steered:
        return go_to(AWAIT_USER_MESSAGE)
    mode = turn_mode(tx, plan_mode=any(message.plan_mode for message in steered))
    return start_turn(tx, state, [message.text for message in steered], session, mode=mode)


def _end_turn(
    tx: Transaction,
    state: AgentState,
    reason: CancellationReason,
    steered_count: int,
    unfinished_messages: Sequence[FrameworkMessage] | None,
    session: SessionDefinition,
    step_type: str,
) -> AgentState:
    turn = active_turn(state)
    records = turn_records(tx) if state.turn_tool_call_count else ()
    if unfinished_messages is None:
        note = build_turn_control_note(reason, records)
        unfinished_messages = () if note is None else (session.user_message(note),)
    last_sequence = session.messages.append(tx, turn, state.last_message_sequence, unfinished_messages, records)
    message_count = reply_count(tx, turn, last_sequence)
    if reason == "turn_cancelled":
        ending = TURN_CANCELLED
        tx.delete(TURN_CANCELLATION_REQUEST)
        emit_turn_cancelled(tx, turn, message_count)
    else:
        ending = TURN_STEERED
        emit_turn_steered(tx, turn, steered_count, message_count)
    error = state.last_turn_error
    if error is not None and error.turn_id == turn:
        # The user stopped the turn before its failure was recorded, so it did not end as a failed one.
        error = None
    return clear_turn(
        tx,
        state,
        records,
        ending=ending,
        step_type=step_type,
        last_message_sequence=last_sequence,
        last_turn_error=error,
    )


class FinishTurnCancellation(InlineStep[str]):
    """What `cancel_turn` of the turn with this ID has to record; begun in the commit that accepted it."""

    next_steps = STEP_GRAPH[FINISH_TURN_CANCELLATION]

    def execute(self, tx: Transaction, input: str) -> Decision:
        """End the turn, or end what waits in it, so that `ResumeTurn` ends it once the running tools are done."""
        state = session_state(tx)
        if state.active_turn_id != input:
            return dead_end()
        if state.status is not AgentStatus.RUNNING_TOOLS:
            return go_to(APPLY_TURN_CONTROL)
        movements = cancel_waiting_calls(tx, input)
        return go_to_many(*movements) if movements else dead_end()
