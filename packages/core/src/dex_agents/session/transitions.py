"""What several Steps do to a turn: start it, count its usage, clear it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from dex_agents.session.events import emit_turn_started, emit_usage_recorded
from dex_agents.session.identity import turn_id
from dex_agents.session.ingress import repair_message
from dex_agents.session.messages import append_messages
from dex_agents.session.persistence import (
    AGENT_STATE,
    AGENT_TOOL_CALLS,
    AGENT_USAGE,
    FRAMEWORK_RUN_STATE,
    TOOL_CALL_RESULTS,
    TURN_REPLY_SEQUENCE,
)
from dex_agents.session.step_types import RUN_MODEL
from dex_agents.session.tool_values import AgentToolCallRecord
from dex_agents.session.transition_rules import check_turn_ending
from dex_agents.session.values import (
    AgentState,
    AgentStatus,
    AgentUsage,
    FrameworkMessage,
    InteractionMode,
    TurnReplySequence,
)
from dex_flow import Decision, StateView, Transaction, go_to

__all__ = ["UserMessageBuilder", "active_turn", "add_usage", "clear_turn", "reply_count", "session_state", "start_turn"]

UserMessageBuilder: TypeAlias = Callable[[str], FrameworkMessage]


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
    tx: Transaction, state: AgentState, texts: Sequence[str], build_user_message: UserMessageBuilder
) -> Decision:
    """Store the user messages, start the next turn and go to its first model step.

    Args:
        tx: The transaction.
        state: The state without an active turn.
        texts: The turn's user messages, in order; more than one when the user steered more than once.
        build_user_message: The runner's pure function.
    """
    turn_number = state.turn_count + 1
    turn = turn_id(turn_number)
    messages = [repair_message(build_user_message(text), None) for text in texts]
    sequence = append_messages(tx, turn, state.last_message_sequence, messages)
    tx.set(TURN_REPLY_SEQUENCE, TurnReplySequence(turn_id=turn, sequence=sequence + 1))
    tx.set(
        AGENT_STATE,
        replace(
            state,
            status=AgentStatus.RUNNING_MODEL,
            turn_count=turn_number,
            active_turn_id=turn,
            last_message_sequence=sequence,
            updated_at=tx.now,
        ),
    )
    emit_turn_started(tx, turn, state.last_message_sequence + 1)
    return go_to(RUN_MODEL)


def add_usage(tx: Transaction, turn: str, usage: AgentUsage) -> None:
    """Count a model call's usage; a step without a model call counts nothing."""
    if usage == AgentUsage():
        return
    session = (tx.get(AGENT_USAGE) or AgentUsage()).add(usage)
    tx.set(AGENT_USAGE, session)
    emit_usage_recorded(tx, turn, usage, session)


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
        updated_at=tx.now,
        **changes,
    )
    tx.set(AGENT_STATE, cleared)
    return cleared
