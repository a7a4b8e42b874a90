"""Steps that end a failed turn: its error is kept, and the model is told what its tool calls did."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dex_agents.session.definition import SessionDefinition
from dex_agents.session.events import TURN_FAILED, emit_turn_failed
from dex_agents.session.execution_port import UnfinishedTurnExecution
from dex_agents.session.model_input import load_model_step_snapshot
from dex_agents.session.outcomes import ModelStepSnapshot, UnfinishedTurnOutcome
from dex_agents.session.persistence import AGENT_STATE
from dex_agents.session.sanitizer import sanitize_error_text, sanitize_name
from dex_agents.session.step_options import unfinished_turn_options
from dex_agents.session.step_types import AWAIT_USER_MESSAGE, RECORD_TURN_FAILURE, RECORD_TURN_FAILURE_NOTE, RUN_MODEL
from dex_agents.session.tool_calls import turn_records
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, clear_turn, session_state
from dex_agents.session.unfinished_turn_note import build_turn_failure_note
from dex_agents.session.values import AgentState, FrameworkMessage, TurnError
from dex_flow import Activity, ActivityStep, Decision, InlineStep, Proceed, StateView, Transaction, go_to

__all__ = ["RecordTurnFailure", "RecordTurnFailureNote", "RecordTurnFailureWithRunnerMessages"]


class RecordTurnFailure(InlineStep[None]):
    """Records the error, stores the failure note when the turn made tool calls, and ends the turn."""

    next_steps = STEP_GRAPH[RECORD_TURN_FAILURE]

    def __init__(self, session: SessionDefinition) -> None:
        self._session = session

    def execute(self, tx: Transaction, input: None) -> Decision:
        """End the turn."""
        return _end_failed_turn(tx, _with_error(tx), (), self._session, self.step_type)


class RecordTurnFailureNote(RecordTurnFailure):
    """Ends the turn with the note alone, when the runner's messages could not be built."""


class RecordTurnFailureWithRunnerMessages(ActivityStep[None, ModelStepSnapshot, UnfinishedTurnOutcome]):
    """Like `RecordTurnFailure`, and first stores what the runner needs to complete the turn's transcript."""

    step_type = RECORD_TURN_FAILURE
    next_steps = STEP_GRAPH[RECORD_TURN_FAILURE]

    def __init__(self, execution: UnfinishedTurnExecution, session: SessionDefinition) -> None:
        self._execution = execution
        self._session = session
        self.options = unfinished_turn_options(RECORD_TURN_FAILURE_NOTE)

    def before_run(self, tx: Transaction, input: None) -> Proceed:
        """Keep the turn's error where this Step's own failure cannot hide it."""
        tx.set(AGENT_STATE, _with_error(tx))
        return Proceed()

    def load(self, view: StateView, input: None) -> ModelStepSnapshot:
        """The turn, with every record final."""
        return load_model_step_snapshot(view, self._session)

    async def run(self, activity: Activity, snapshot: ModelStepSnapshot) -> UnfinishedTurnOutcome:
        """Build the messages."""
        return await self._execution.build_unfinished_turn_messages(activity, snapshot)

    def commit(self, tx: Transaction, input: None, outcome: UnfinishedTurnOutcome) -> Decision:
        """End the turn; a builder that raised leaves the note alone."""
        return _end_failed_turn(tx, session_state(tx), outcome.messages, self._session, self.step_type)


def _with_error(tx: Transaction) -> AgentState:
    """The state with the turn's error: from the failed model step, or set before by a refused one."""
    state = session_state(tx)
    failure = tx.recovery_error
    if failure is None or failure.step_type != RUN_MODEL:
        return state
    error = TurnError(
        turn_id=active_turn(state),
        type=sanitize_name(failure.error_type),
        message=sanitize_error_text(failure.message),
    )
    return replace(state, last_turn_error=error, updated_at=tx.now)


def _end_failed_turn(
    tx: Transaction,
    state: AgentState,
    unfinished_messages: Iterable[FrameworkMessage],
    session: SessionDefinition,
    step_type: str,
) -> Decision:
    turn = active_turn(state)
    error = state.last_turn_error
    if error is None or error.turn_id != turn:
        raise LookupError(f"{turn} failed without an error")
    records = turn_records(tx) if state.turn_tool_call_count else ()
    last_sequence = session.messages.append(tx, turn, state.last_message_sequence, unfinished_messages, records)
    if records:
        note = session.user_message(build_turn_failure_note(records))
        last_sequence = session.messages.append(tx, turn, last_sequence, (note,))
    emit_turn_failed(tx, turn, f"{error.type}: {error.message}")
    clear_turn(tx, state, records, ending=TURN_FAILED, step_type=step_type, last_message_sequence=last_sequence)
    return go_to(AWAIT_USER_MESSAGE)
