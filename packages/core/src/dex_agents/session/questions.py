"""Questions to the user: raised by `ask_user`, by a tool before it takes effect, and by a running task."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from dex_agents.session.events import emit_interrupt_raised
from dex_agents.session.identity import interrupt_id, question_interrupt_id
from dex_agents.session.outcomes import ToolCallInputRequested
from dex_agents.session.persistence import AGENT_TOOL_CALLS, PENDING_INTERRUPTS
from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentInterruptResolution,
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    QuestionAnswer,
)
from dex_agents.session.transition_rules import check_status_move
from dex_flow import Transaction

__all__ = [
    "ask_tool_question",
    "is_acceptable_answer",
    "open_question_id",
    "question_answer",
    "question_interrupt",
    "raise_interrupts",
]


def open_question_id(turn_id: str, record: AgentToolCallRecord) -> str:
    """The interrupt ID of the question a call waits for.

    A call that never ran asks by itself, which `ask_user` does; any other question comes from its tool or its task.
    """
    if record.attempt == 0:
        return interrupt_id(turn_id, record.tool_call_id)
    return question_interrupt_id(turn_id, record.tool_call_id, len(record.input_answers) + 1)


def ask_tool_question(
    tx: Transaction,
    turn_id: str,
    record: AgentToolCallRecord,
    asked: ToolCallInputRequested,
    interrupt_deadline: timedelta | None,
) -> None:
    """Store the question of a tool or a task on its record and raise it.

    Args:
        tx: The transaction.
        turn_id: The active turn.
        record: The asking call as stored.
        asked: The question.
        interrupt_deadline: How long it waits; None for ever.
    """
    check_status_move(record, AgentToolCallRecordStatus.AWAITING_ANSWER)
    asking = replace(
        record,
        status=AgentToolCallRecordStatus.AWAITING_ANSWER,
        is_running=False,
        input_question=asked.question,
        input_choices=asked.choices,
        input_allows_free_text=asked.allows_free_text,
        input_continuation=asked.continuation,
        task_answer_pending=False,
    )
    tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, asking)
    raise_interrupts(tx, turn_id, (question_interrupt(tx, turn_id, asking, interrupt_deadline),))


def question_interrupt(
    tx: Transaction, turn_id: str, record: AgentToolCallRecord, interrupt_deadline: timedelta | None
) -> AgentInterrupt:
    """The interrupt of the question that stands on a record."""
    return AgentInterrupt(
        interrupt_id=open_question_id(turn_id, record),
        kind="question",
        tool_call_id=record.tool_call_id,
        tool_name=record.tool_name,
        arguments=record.arguments,
        raised_at=tx.now,
        deadline=None if interrupt_deadline is None else tx.now + interrupt_deadline,
        question=record.input_question,
        choices=record.input_choices,
        allows_free_text=record.input_allows_free_text,
    )


def raise_interrupts(tx: Transaction, turn_id: str, interrupts: tuple[AgentInterrupt, ...]) -> None:
    """Make interrupts pending, behind those that are."""
    tx.set(PENDING_INTERRUPTS, (*(tx.get(PENDING_INTERRUPTS) or ()), *interrupts))
    for interrupt in interrupts:
        emit_interrupt_raised(tx, turn_id, interrupt)


def is_acceptable_answer(interrupt: AgentInterrupt, answer: str) -> bool:
    """Whether an answer may end this interrupt: a question, not blank, and one of the choices where it must be."""
    if interrupt.kind != "question" or not answer.strip():
        return False
    return not interrupt.choices or interrupt.allows_free_text or answer in interrupt.choices


def question_answer(record: AgentToolCallRecord, resolution: AgentInterruptResolution | None) -> QuestionAnswer:
    """How a tool's or a task's question ended; None is a passed deadline."""
    question = record.input_question or ""
    if resolution is None:
        return QuestionAnswer(question=question, resolution="deadline_passed")
    if not resolution.approved:
        return QuestionAnswer(question=question, resolution="declined", rejection_message=resolution.rejection_message)
    return QuestionAnswer(question=question, resolution="answered", answer=resolution.answer)
