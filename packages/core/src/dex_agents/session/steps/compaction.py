"""Steps of context compaction: one summary call, and what follows when it keeps failing."""

from __future__ import annotations

from msgspec.structs import replace

from dex_agents.session.definition import SessionDefinition
from dex_agents.session.events import emit_compaction_finished, emit_compaction_started, emit_model_call_retrying
from dex_agents.session.execution_port import CompactionExecution
from dex_agents.session.model_input import load_compaction_snapshot
from dex_agents.session.outcomes import CompactionSnapshot, ContextSummarized
from dex_agents.session.persistence import AGENT_STATE, CONTEXT_SUMMARY
from dex_agents.session.plan_values import CompactContextInput, ContextSummary
from dex_agents.session.sanitizer import sanitize_error_text
from dex_agents.session.step_options import repeatable_options
from dex_agents.session.step_types import (
    APPLY_TURN_CONTROL,
    COMPACT_CONTEXT,
    RECORD_COMPACTION_FAILURE,
    RUN_MODEL,
)
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, add_usage, session_state
from dex_agents.session.turn_control import pending_turn_control
from dex_agents.session.values import AgentStatus
from dex_flow import (
    Activity,
    ActivityStep,
    AttemptFailure,
    Decision,
    InlineStep,
    Proceed,
    StateView,
    Transaction,
    go_to,
)

__all__ = ["CompactContext", "RecordCompactionFailure"]


class CompactContext(ActivityStep[CompactContextInput, CompactionSnapshot, ContextSummarized]):
    """Summarises the messages after the current summary with one call of the model.

    Args:
        execution: Summarises; None when the deployed runner cannot.
        session: The Flow type's rules.
    """

    next_steps = STEP_GRAPH[COMPACT_CONTEXT]

    def __init__(self, execution: CompactionExecution | None, session: SessionDefinition) -> None:
        self._execution = execution
        self._session = session
        self.options = repeatable_options(RECORD_COMPACTION_FAILURE, session.options.attempt_backoff)

    def before_run(self, tx: Transaction, input: CompactContextInput) -> Proceed | Decision:
        """A steered or cancelled turn is not compacted; neither is one whose runner lost the method in a deploy."""
        state = session_state(tx)
        turn = active_turn(state)
        if pending_turn_control(tx, turn) is not None:
            return go_to(APPLY_TURN_CONTROL)
        if self._execution is None:
            tx.set(AGENT_STATE, replace(state, status=AgentStatus.RUNNING_MODEL, updated_at=tx.now))
            return go_to(RUN_MODEL)
        if tx.attempt == 1:
            emit_compaction_started(tx, turn, input.through_sequence)
        return Proceed()

    def load(self, view: StateView, input: CompactContextInput) -> CompactionSnapshot:
        """The messages to summarise."""
        return load_compaction_snapshot(view, self._session, input.through_sequence)

    async def run(self, activity: Activity, snapshot: CompactionSnapshot) -> ContextSummarized:
        """The summary call."""
        if self._execution is None:
            raise LookupError("the runner cannot summarise")
        return await self._execution.summarize_context(activity, snapshot)

    def commit(self, tx: Transaction, input: CompactContextInput, outcome: ContextSummarized) -> Decision:
        """Store the summary and go back to the model step."""
        state = session_state(tx)
        turn = active_turn(state)
        previous = tx.get(CONTEXT_SUMMARY)
        summary = ContextSummary(
            generation=1 if previous is None else previous.generation + 1,
            text=outcome.text,
            last_sequence=input.through_sequence,
            created_at=tx.now,
        )
        tx.set(CONTEXT_SUMMARY, summary)
        emit_compaction_finished(tx, turn, summary)
        state = add_usage(tx, turn, state, outcome.usage)
        tx.set(AGENT_STATE, replace(state, status=AgentStatus.RUNNING_MODEL, updated_at=tx.now))
        self._session.messages.apply_retention(tx, state.last_message_sequence)
        return go_to(RUN_MODEL)

    def on_attempt_failed(self, tx: Transaction, input: CompactContextInput, failure: AttemptFailure) -> None:
        """Say that the summary call is tried again."""
        emit_model_call_retrying(tx, active_turn(session_state(tx)), failure)


class RecordCompactionFailure(InlineStep[CompactContextInput]):
    """Goes on without a summary; the model step fails the turn when its input does not fit any more."""

    next_steps = STEP_GRAPH[RECORD_COMPACTION_FAILURE]

    def execute(self, tx: Transaction, input: CompactContextInput) -> Decision:
        """Keep why summarising failed."""
        failure = tx.recovery_error
        if failure is None:
            raise LookupError("a compaction failure was recorded without a failure")
        failed = replace(
            session_state(tx),
            status=AgentStatus.RUNNING_MODEL,
            turn_compaction_error=sanitize_error_text(f"{failure.error_type}: {failure.message}"),
            updated_at=tx.now,
        )
        tx.set(AGENT_STATE, failed)
        return go_to(RUN_MODEL)
