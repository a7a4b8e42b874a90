"""The Step of a durable wait."""

from __future__ import annotations

from datetime import timedelta

from dex_agents.session.built_in_tools import durable_wait_result, read_durable_wait_arguments
from dex_agents.session.identity import interrupt_id
from dex_agents.session.persistence import TOOL_CALL_CANCELLATIONS
from dex_agents.session.step_types import AWAIT_TIMER
from dex_agents.session.tool_calls import finalize_tool_call, get_record
from dex_agents.session.tool_values import AgentToolCallRecordStatus
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.turn_control import reject_unstarted_call
from dex_flow import Decision, InlineStep, StateView, Timer, Transaction, Wait, dead_end

__all__ = ["AwaitTimer"]


class AwaitTimer(InlineStep[str]):
    """Waits until the record's `wait_until`, or for the call's cancellation."""

    next_steps = STEP_GRAPH[AWAIT_TIMER]

    def wait_for(self, view: StateView, input: str) -> Wait:
        """The time, then the cancellation: a wait that is over keeps its result."""
        record = get_record(view, input)
        if record.wait_until is None:
            raise LookupError(f"tool call {input!r} waits for no time")
        turn = active_turn(session_state(view))
        cancelled = TOOL_CALL_CANCELLATIONS.receive(interrupt_id(turn, input))
        return Wait.any_of(Timer(record.wait_until), cancelled)

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Record that the wait is over, or that it was cancelled."""
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        if tx.wait_result.received:
            (cancellation,) = tx.wait_result.received
            reject_unstarted_call(tx, turn, record, cancellation.reason)
        else:
            # The wait was accepted under the limit of its time; a lower one of today does not undo that.
            arguments = read_durable_wait_arguments(record.arguments, timedelta.max)
            output = durable_wait_result(arguments)
            finalize_tool_call(tx, turn, record, AgentToolCallRecordStatus.SUCCEEDED, output=output)
        return dead_end()
