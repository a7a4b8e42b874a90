"""What a model step reads: the only part of a session whose cost grows with its messages."""

from __future__ import annotations

from dex_agents.session.messages import load_messages
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ModelStepSnapshot
from dex_agents.session.persistence import FRAMEWORK_RUN_STATE, SESSION_SETTINGS
from dex_agents.session.tool_calls import turn_records
from dex_agents.session.transitions import active_turn, session_state
from dex_flow import StateView

__all__ = ["load_model_step_snapshot"]


def load_model_step_snapshot(view: StateView, options: AgentSessionOptions) -> ModelStepSnapshot:
    """The active turn's model input from one consistent read."""
    state = session_state(view)
    is_first = state.turn_model_step_count == 0
    return ModelStepSnapshot(
        state=state,
        turn_id=active_turn(state),
        messages=load_messages(view),
        tool_calls=tuple(record.to_tool_call() for record in turn_records(view)) if state.turn_tool_call_count else (),
        framework_run_state=None if is_first else view.get(FRAMEWORK_RUN_STATE),
        options=options,
        session_settings=view.get(SESSION_SETTINGS) or {},
    )
