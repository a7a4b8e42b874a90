"""What becomes of the calls a model asked for: a record each, and a Step each unless the call is final at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from dex_agents.session.built_in_tools import (
    ASK_USER,
    BUILT_IN_TOOL_POLICY,
    DURABLE_WAIT,
    InvalidBuiltInArgumentsError,
    read_ask_user_arguments,
    read_durable_wait_arguments,
)
from dex_agents.session.events import emit_timer_started, emit_tool_call_deferred
from dex_agents.session.identity import allocate_tool_call_id, interrupt_id
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import RequestedToolCall
from dex_agents.session.persistence import AGENT_TOOL_CALLS
from dex_agents.session.questions import question_interrupt, raise_interrupts
from dex_agents.session.sanitizer import sanitize_error_text
from dex_agents.session.step_types import AWAIT_QUESTION_ANSWER, AWAIT_TIMER, AWAIT_TOOL_APPROVAL
from dex_agents.session.tool_calls import finalize_tool_call, tool_step_type
from dex_agents.session.tool_values import AgentInterrupt, AgentToolCallRecord, AgentToolCallRecordStatus
from dex_flow import Movement, Transaction, move

__all__ = ["defer_tool_calls"]

Status = AgentToolCallRecordStatus


def defer_tool_calls(
    tx: Transaction,
    turn_id: str,
    calls: Sequence[RequestedToolCall],
    *,
    first_order: int,
    model_step_number: int,
    options: AgentSessionOptions,
) -> tuple[list[AgentToolCallRecord], list[Movement]]:
    """Store a record for every call the model asked for, and raise what a person has to decide or answer.

    Args:
        tx: The transaction.
        turn_id: The active turn.
        calls: The calls in the model's order.
        first_order: How many calls the turn has so far.
        model_step_number: The model step that asked, from 1.
        options: The session's options.

    Returns:
        The records in call order, and one movement per call that is not final yet.
    """
    deferral = _Deferral(tx, turn_id, model_step_number, options)
    for order, call in enumerate(calls, first_order):
        if call.tool_name in options.built_in_tools:
            deferral.defer_built_in_call(call, order)
        else:
            deferral.defer_call(call, order)
    if deferral.interrupts:
        raise_interrupts(tx, turn_id, tuple(deferral.interrupts))
    return deferral.records, deferral.movements


class _Deferral:
    """One response's calls; collects what is done once for all of them."""

    def __init__(self, tx: Transaction, turn_id: str, model_step_number: int, options: AgentSessionOptions) -> None:
        self._tx = tx
        self._turn_id = turn_id
        self._model_step_number = model_step_number
        self._options = options
        self.records: list[AgentToolCallRecord] = []
        self.movements: list[Movement] = []
        self.interrupts: list[AgentInterrupt] = []

    def defer_call(self, call: RequestedToolCall, order: int) -> None:
        """A call of the agent's own tools."""
        record = self._new_record(call, order)
        if call.arguments_error is not None:
            self._fail(record, call.arguments_error)
        elif record.requires_approval:
            record = replace(record, status=Status.AWAITING_APPROVAL)
            self._store(record, AWAIT_TOOL_APPROVAL)
            self.interrupts.append(self._approval(record, self._options.interrupt_deadline))
        else:
            self._store(record, tool_step_type(record.effect))

    def defer_built_in_call(self, call: RequestedToolCall, order: int) -> None:
        """A call of a tool that the session runs itself; the runner's policy does not count."""
        record = self._new_record(replace(call, policy=BUILT_IN_TOOL_POLICY), order)
        if call.arguments_error is not None:
            self._fail(record, call.arguments_error)
            return
        try:
            if call.tool_name == ASK_USER:
                self._ask_user(record)
            elif call.tool_name == DURABLE_WAIT:
                self._wait(record)
            else:
                raise LookupError(f"{call.tool_name!r} is no built-in tool of this release")
        except InvalidBuiltInArgumentsError as error:
            self._fail(record, sanitize_error_text(str(error)))

    def _ask_user(self, record: AgentToolCallRecord) -> None:
        arguments = read_ask_user_arguments(record.arguments)
        asking = replace(
            record,
            status=Status.AWAITING_ANSWER,
            input_question=arguments.question,
            input_choices=arguments.choices,
            input_allows_free_text=arguments.allows_free_text,
        )
        self._store(asking, AWAIT_QUESTION_ANSWER)
        self.interrupts.append(question_interrupt(self._tx, self._turn_id, asking, self._options.interrupt_deadline))

    def _wait(self, record: AgentToolCallRecord) -> None:
        arguments = read_durable_wait_arguments(record.arguments, self._options.max_durable_wait)
        wait_until = self._tx.now + timedelta(seconds=arguments.duration_seconds)
        waiting = replace(record, status=Status.WAITING_FOR_TIMER, wait_until=wait_until)
        self._store(waiting, AWAIT_TIMER)
        emit_timer_started(self._tx, self._turn_id, waiting, arguments.reason)

    def _new_record(self, call: RequestedToolCall, order: int) -> AgentToolCallRecord:
        tx = self._tx
        return AgentToolCallRecord(
            tool_call_id=allocate_tool_call_id(
                call.tool_call_id, order, lambda key: tx.get_instance(AGENT_TOOL_CALLS, key) is not None
            ),
            provider_tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            effect=call.policy.effect,
            requires_approval=call.policy.requires_approval and call.arguments_error is None,
            status=Status.APPROVED,
            deferral_order=order,
            model_step_number=self._model_step_number,
            deferred_at=tx.now,
            tool_source_reference=call.tool_source_reference,
        )

    def _store(self, record: AgentToolCallRecord, step_type: str) -> None:
        self._tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, record)
        emit_tool_call_deferred(self._tx, self._turn_id, record)
        self.records.append(record)
        self.movements.append(move(step_type, record.tool_call_id))

    def _fail(self, record: AgentToolCallRecord, error: str) -> None:
        self._tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, record)
        emit_tool_call_deferred(self._tx, self._turn_id, record)
        self.records.append(finalize_tool_call(self._tx, self._turn_id, record, Status.FAILED, error=error))

    def _approval(self, record: AgentToolCallRecord, deadline: timedelta | None) -> AgentInterrupt:
        now = self._tx.now
        return AgentInterrupt(
            interrupt_id=interrupt_id(self._turn_id, record.tool_call_id),
            kind="approval",
            tool_call_id=record.tool_call_id,
            tool_name=record.tool_name,
            arguments=record.arguments,
            raised_at=now,
            deadline=None if deadline is None else now + deadline,
        )
