"""The Step that waits for the answer to one question."""

from __future__ import annotations

from msgspec.structs import replace

from dex_agents.session.built_in_tools import ask_user_result
from dex_agents.session.identity import interrupt_id
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.persistence import AGENT_TOOL_CALLS, INTERRUPT_RESOLUTIONS, TOOL_CALL_CANCELLATIONS
from dex_agents.session.questions import open_question_id, question_answer
from dex_agents.session.step_options import poll_options
from dex_agents.session.step_types import AWAIT_QUESTION_ANSWER, POLL_TOOL_TASK
from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED
from dex_agents.session.tool_calls import (
    drop_interrupt,
    finalize_tool_call,
    find_interrupt,
    get_record,
    reject_tool_call,
    tool_step_type,
)
from dex_agents.session.tool_values import (
    AgentInterruptResolution,
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    ToolCallCancellation,
)
from dex_agents.session.transition_rules import STEP_GRAPH, check_status_move
from dex_agents.session.transitions import active_turn, session_state
from dex_agents.session.turn_control import reject_unstarted_call
from dex_flow import Condition, Decision, InlineStep, StateView, Timer, Transaction, Wait, dead_end, go_to

__all__ = ["AwaitQuestionAnswer"]

Status = AgentToolCallRecordStatus


class AwaitQuestionAnswer(InlineStep[str]):
    """Waits for the answer to the question of the call with this ID, or for its deadline."""

    next_steps = STEP_GRAPH[AWAIT_QUESTION_ANSWER]

    def __init__(self, options: AgentSessionOptions) -> None:
        self._session_options = options

    def wait_for(self, view: StateView, input: str) -> Wait:
        """The call's cancellation, the answer, then the deadline; steering never cancels a task's question."""
        turn = active_turn(session_state(view))
        record = get_record(view, input)
        key = open_question_id(turn, record)
        conditions: list[Condition] = []
        if record.task_id is None:
            conditions.append(TOOL_CALL_CANCELLATIONS.receive(interrupt_id(turn, input)))
        conditions.append(INTERRUPT_RESOLUTIONS.receive(key))
        interrupt = find_interrupt(view, key)
        if interrupt is not None and interrupt.deadline is not None:
            conditions.append(Timer(interrupt.deadline))
        return Wait.any_of(*conditions)

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Hand the answer to whoever asked, or record that there is none."""
        turn = active_turn(session_state(tx))
        record = get_record(tx, input)
        received = tx.wait_result.received
        end = received[0] if received else None
        if isinstance(end, ToolCallCancellation):
            reject_unstarted_call(tx, turn, record, end.reason)
            return dead_end()
        assert end is None or isinstance(end, AgentInterruptResolution)
        if record.task_id is not None:
            return self._return_to_task(tx, turn, record, end)
        if end is None or not end.approved:
            message = QUESTION_DEADLINE_PASSED if end is None else end.rejection_message or QUESTION_DECLINED
            reject_tool_call(tx, turn, record, rejection_message=message)
            return dead_end()
        if record.attempt == 0:
            finalize_tool_call(tx, turn, record, Status.SUCCEEDED, output=ask_user_result(end.answer or ""))
            return dead_end()
        _store_answer(tx, record, end, Status.APPROVED)
        return go_to(tool_step_type(record.effect), input)

    def _return_to_task(
        self, tx: Transaction, turn: str, record: AgentToolCallRecord, end: AgentInterruptResolution | None
    ) -> Decision:
        if end is None:
            key = open_question_id(turn, record)
            drop_interrupt(tx, turn, key, rejection_message=QUESTION_DEADLINE_PASSED)
        _store_answer(tx, record, end, Status.WAITING_FOR_TASK)
        options = poll_options(record.effect, self._session_options.attempt_backoff)
        return go_to(POLL_TOOL_TASK, record.tool_call_id, options=options)


def _store_answer(
    tx: Transaction, record: AgentToolCallRecord, end: AgentInterruptResolution | None, status: Status
) -> None:
    """Keep how the question ended where the next run or poll reads it; its continuation stays for that one."""
    check_status_move(record, status)
    answered = replace(
        record,
        status=status,
        input_answers=(*record.input_answers, question_answer(record, end)),
        input_question=None,
        input_choices=(),
        input_allows_free_text=True,
        task_answer_pending=status is Status.WAITING_FOR_TASK,
    )
    tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, answered)
