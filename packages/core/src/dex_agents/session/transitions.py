"""What several Steps do to a turn: start it, count its usage, clear it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from dex_agents.session.definition import SessionDefinition
from dex_agents.session.events import emit_turn_started, emit_usage_recorded
from dex_agents.session.identity import turn_id
from dex_agents.session.persistence import (
    AGENT_STATE,
    AGENT_TOOL_CALLS,
    AGENT_USAGE,
    FRAMEWORK_RUN_STATE,
    TOOL_CALL_RESULTS,
    TURN_REPLY_SEQUENCE,
)
from dex_agents.session.plans import activate_plan
from dex_agents.session.settings import copy_settings_for_turn
from dex_agents.session.step_types import RUN_MODEL
from dex_agents.session.tool_values import AgentToolCallRecord
from dex_agents.session.transition_rules import check_turn_ending
from dex_agents.session.values import (
    AgentState,
    AgentStatus,
    AgentUsage,
    InteractionMode,
    TurnReplySequence,
)
from dex_flow import Decision, StateView, Transaction, go_to

__all__ = ["active_turn", "add_usage", "clear_turn", "reply_count", "session_state", "start_turn"]


def session_state(view: StateView) -> AgentState:
    """The session's state, which exists from the first commit on."""
    state = view.get(AGENT_STATE)
    if state is None:
        raise LookupError(f"session {view.flow_id!r} has no state")
    return state


def active_turn(state: AgentState) -> str:
    """The ID of the active turn."""
    if state.active_turn_id is None:
        raise LookupError("the session has no active turn")
    return state.active_turn_id


def start_turn(
    tx: Transaction,
    state: AgentState,
    texts: Sequence[str],
    session: SessionDefinition,
    *,
    mode: InteractionMode = InteractionMode.CHAT,
) -> Decision:
    """Store the user messages, start the next turn and go to its first model step.

    Args:
        tx: The transaction.
        state: The state without an active turn.
        texts: The turn's user messages, in order; more than one when the user steered more than once.
        session: The Flow type's rules.
        mode: The kind of turn.
    """
    turn_number = state.turn_count + 1
    turn = turn_id(turn_number)
    messages = [session.user_message(text) for text in texts]
    sequence = session.messages.append(tx, turn, state.last_message_sequence, messages)
    tx.set(TURN_REPLY_SEQUENCE, TurnReplySequence(turn_id=turn, sequence=sequence + 1))
    copy_settings_for_turn(tx, turn)
    tx.set(
        AGENT_STATE,
        replace(
            state,
            status=AgentStatus.RUNNING_MODEL,
            interaction_mode=mode,
            turn_count=turn_number,
            active_turn_id=turn,
            last_message_sequence=sequence,
            turn_started_at=tx.now,
            updated_at=tx.now,
        ),
    )
    emit_turn_started(tx, turn, state.last_message_sequence + 1)
    if mode is InteractionMode.EXECUTING:
        activate_plan(tx, turn)
    return go_to(RUN_MODEL)


def add_usage(tx: Transaction, turn: str, state: AgentState, usage: AgentUsage) -> AgentState:
    """Count a model call's usage; a step without a model call counts nothing.

    Returns:
        The state with the turn's share counted, which the caller stores.
    """
    if usage == AgentUsage():
        return state
    session = (tx.get(AGENT_USAGE) or AgentUsage()).add(usage)
    tx.set(AGENT_USAGE, session)
    emit_usage_recorded(tx, turn, usage, session)
    return replace(
        state,
        turn_model_calls=state.turn_model_calls + usage.model_calls,
        turn_total_tokens=state.turn_total_tokens + usage.total_tokens,
    )


def reply_count(view: StateView, turn: str, last_sequence: int) -> int:
    """How many messages follow the turn's user messages."""
    start = view.get(TURN_REPLY_SEQUENCE)
    if start is None or start.turn_id != turn:
        raise LookupError(f"where the replies of {turn} start is not stored")
    return last_sequence - start.sequence + 1


def clear_turn(
    tx: Transaction,
    state: AgentState,
    records: Sequence[AgentToolCallRecord],
    *,
    ending: str,
    step_type: str,
    **changes: Any,
) -> AgentState:
    """End the active turn and leave nothing of it but its messages.

    Args:
        tx: The transaction.
        state: The state with the turn still active.
        records: The turn's records, all final.
        ending: The event that says how the turn ends.
        step_type: The Step that ends it.
        changes: Further fields of the state.

    Raises:
        TurnEndingError: `TURN_ENDINGS` does not let the Step end a turn so.
    """
    check_turn_ending(ending, step_type)
    for record in records:
        tx.delete_instance(AGENT_TOOL_CALLS, record.tool_call_id)
    if records:
        tx.purge_messages(TOOL_CALL_RESULTS)
    if state.turn_model_step_count:
        tx.delete(FRAMEWORK_RUN_STATE)
    cleared = replace(
        state,
        status=AgentStatus.WAITING_FOR_USER_MESSAGE,
        interaction_mode=InteractionMode.CHAT,
        active_turn_id=None,
        turn_model_step_count=0,
        turn_continuation_count=0,
        turn_tool_call_count=0,
        turn_started_at=None,
        turn_model_calls=0,
        turn_total_tokens=0,
        turn_limit_reached=None,
        turn_compaction_error=None,
        updated_at=tx.now,
        **changes,
    )
    tx.set(AGENT_STATE, cleared)
    return cleared
