"""The Step that waits for a person to decide about one tool call."""

from __future__ import annotations

from dex_agents.session.identity import interrupt_id
from dex_agents.session.persistence import INTERRUPT_RESOLUTIONS, TOOL_CALL_CANCELLATIONS
from dex_agents.session.step_types import AWAIT_TOOL_APPROVAL
from dex_agents.session.texts import APPROVAL_DEADLINE_PASSED
from dex_agents.session.tool_calls import finalize_tool_call, find_interrupt, get_record, move_record, tool_step_type
from dex_agents.session.tool_values import AgentInterruptResolution, AgentToolCallRecordStatus, ToolCallCancellation
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.turn_control import reject_unstarted_call
from dex_flow import Decision, InlineStep, StateView, Timer, Transaction, Wait, dead_end, go_to

__all__ = ["AwaitToolApproval"]


class AwaitToolApproval(InlineStep[str]):
    """Waits for the decision on the call with this ID, or for its deadline."""

    next_steps = STEP_GRAPH[AWAIT_TOOL_APPROVAL]

    def wait_for(self, view: StateView, input: str) -> Wait:
        """The call's cancellation, the decision, then the deadline.

        A decision that was accepted in time counts even when the timer is due as well.
        """
        key = interrupt_id(active_turn(session_state(view)), input)
        interrupt = find_interrupt(view, key)
        ends = (TOOL_CALL_CANCELLATIONS.receive(key), INTERRUPT_RESOLUTIONS.receive(key))
        if interrupt is None or interrupt.deadline is None:
            return Wait.any_of(*ends)
        return Wait.any_of(*ends, Timer(interrupt.deadline))

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Run the call, or record that it was rejected."""
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        received = tx.wait_result.received
        end = received[0] if received else None
        if isinstance(end, ToolCallCancellation):
            reject_unstarted_call(tx, turn, record, end.reason)
            return dead_end()
        assert end is None or isinstance(end, AgentInterruptResolution)
        if end is not None and end.approved:
            move_record(
                tx,
                record,
                AgentToolCallRecordStatus.APPROVED,
                executed_arguments=end.arguments,
                arguments_schema=None,
            )
            return go_to(tool_step_type(record.effect), input)
        message = APPROVAL_DEADLINE_PASSED if end is None else end.rejection_message
        finalize_tool_call(tx, turn, record, AgentToolCallRecordStatus.REJECTED, rejection_message=message)
        return dead_end()
