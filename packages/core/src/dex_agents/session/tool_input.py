"""What an attempt of a tool call, a poll or a cancellation reads."""

from __future__ import annotations

from dex_agents.session.identity import idempotency_key
from dex_agents.session.message_store import load_messages
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ToolCallSnapshot
from dex_agents.session.persistence import CONTEXT_SUMMARY, FRAMEWORK_RUN_STATE
from dex_agents.session.tool_calls import get_record
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.values import AgentMessage
from dex_flow import StateView

__all__ = ["load_tool_call_snapshot"]


def load_tool_call_snapshot(view: StateView, tool_call_id: str, options: AgentSessionOptions) -> ToolCallSnapshot:
    """The call and what it may read of its turn."""
    turn = active_turn(session_state(view))
    return ToolCallSnapshot(
        record=get_record(view, tool_call_id),
        turn_id=turn,
        idempotency_key=idempotency_key(view.flow_id, turn, tool_call_id),
        messages=_messages(view) if options.tool_calls_read_messages else (),
        framework_run_state=view.get(FRAMEWORK_RUN_STATE),
        options=options,
    )


def _messages(view: StateView) -> tuple[AgentMessage, ...]:
    summary = view.get(CONTEXT_SUMMARY)
    return load_messages(view, 0 if summary is None else summary.last_sequence)
