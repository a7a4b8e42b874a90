"""What a model step reads: the only part of a session whose cost grows with its messages."""

from __future__ import annotations

from dex_agents.session.definition import SessionDefinition
from dex_agents.session.message_store import first_stored_sequence, load_messages
from dex_agents.session.outcomes import CompactionSnapshot, ModelStepSnapshot
from dex_agents.session.persistence import AGENT_PLAN, CONTEXT_SUMMARY, FRAMEWORK_RUN_STATE
from dex_agents.session.settings import turn_settings
from dex_agents.session.tool_calls import turn_records
from dex_agents.session.transitions import active_turn, session_state
from dex_flow import StateView

__all__ = ["load_compaction_snapshot", "load_model_step_snapshot"]


def load_model_step_snapshot(view: StateView, session: SessionDefinition) -> ModelStepSnapshot:
    """The active turn's model input from one consistent read.

    A runner that cannot read a summary gets every message that is still stored.
    """
    state = session_state(view)
    turn = active_turn(state)
    is_first = state.turn_model_step_count == 0
    summary = view.get(CONTEXT_SUMMARY) if session.reads_summaries else None
    return ModelStepSnapshot(
        state=state,
        turn_id=turn,
        messages=load_messages(view, 0 if summary is None else summary.last_sequence),
        tool_calls=tuple(record.to_tool_call() for record in turn_records(view)) if state.turn_tool_call_count else (),
        framework_run_state=None if is_first else view.get(FRAMEWORK_RUN_STATE),
        options=session.options,
        session_settings=turn_settings(view, turn),
        context_summary=summary,
        plan=view.get(AGENT_PLAN),
        first_stored_sequence=first_stored_sequence(view),
    )


def load_compaction_snapshot(view: StateView, session: SessionDefinition, through_sequence: int) -> CompactionSnapshot:
    """The messages between the current summary and `through_sequence`, and that summary."""
    turn = active_turn(session_state(view))
    summary = view.get(CONTEXT_SUMMARY)
    messages = load_messages(view, 0 if summary is None else summary.last_sequence)
    return CompactionSnapshot(
        turn_id=turn,
        messages=tuple(message for message in messages if message.sequence <= through_sequence),
        previous_summary=summary,
        session_settings=turn_settings(view, turn),
        options=session.options,
    )
