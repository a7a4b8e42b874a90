"""The Step that waits for a person to decide about one tool call."""

from __future__ import annotations

from dex_agents.session.identity import interrupt_id
from dex_agents.session.persistence import INTERRUPT_RESOLUTIONS
from dex_agents.session.step_types import CALL_SINGLE_ATTEMPT_TOOL, CALL_TOOL
from dex_agents.session.texts import APPROVAL_DEADLINE_PASSED
from dex_agents.session.tool_calls import finalize_tool_call, find_interrupt, get_record, move_record, tool_step_type
from dex_agents.session.tool_values import AgentInterruptResolution, AgentToolCallRecordStatus
from dex_agents.session.transitions import active_turn, session_state
from dex_flow import Decision, InlineStep, StateView, Timer, Transaction, Wait, dead_end, go_to

__all__ = ["AwaitToolApproval"]


class AwaitToolApproval(InlineStep[str]):
    """Waits for the decision on the call with this ID, or for its deadline."""

    next_steps = (CALL_TOOL, CALL_SINGLE_ATTEMPT_TOOL)

    def wait_for(self, view: StateView, input: str) -> Wait:
        """The decision, then the deadline: one that was accepted in time counts even when the timer is due as well."""
        key = interrupt_id(active_turn(session_state(view)), input)
        interrupt = find_interrupt(view, key)
        decision = INTERRUPT_RESOLUTIONS.receive(key)
        if interrupt is None or interrupt.deadline is None:
            return Wait.any_of(decision)
        return Wait.any_of(decision, Timer(interrupt.deadline))

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Run the call, or record that it was rejected."""
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        decisions: tuple[AgentInterruptResolution, ...] = tx.wait_result.received
        if decisions and decisions[0].approved:
            move_record(tx, record, AgentToolCallRecordStatus.APPROVED)
            return go_to(tool_step_type(record.effect), input)
        message = decisions[0].rejection_message if decisions else APPROVAL_DEADLINE_PASSED
        finalize_tool_call(tx, turn, record, AgentToolCallRecordStatus.REJECTED, rejection_message=message)
        return dead_end()
