"""What becomes of the calls a model asked for: a record each, and a Step each unless the call is final at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from dex_agents.session.built_in_tools import (
    ASK_USER,
    BUILT_IN_TOOL_POLICY,
    DURABLE_WAIT,
    WRITE_TODOS,
    InvalidBuiltInArgumentsError,
    read_ask_user_arguments,
    read_durable_wait_arguments,
)
from dex_agents.session.events import emit_timer_started, emit_tool_call_deferred
from dex_agents.session.identity import allocate_tool_call_id, interrupt_id
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import RequestedToolCall
from dex_agents.session.persistence import AGENT_TOOL_CALLS
from dex_agents.session.plans import InvalidTodosError, read_todos, replace_plan, todos_result
from dex_agents.session.questions import question_interrupt, raise_interrupts
from dex_agents.session.sanitizer import sanitize_error_text
from dex_agents.session.step_types import AWAIT_QUESTION_ANSWER, AWAIT_TIMER, AWAIT_TOOL_APPROVAL
from dex_agents.session.texts import TODOS_WRITTEN_TWICE, TOOL_CALL_NOT_RUN_IN_PLANNING_TURN
from dex_agents.session.tool_calls import finalize_tool_call, tool_step_type
from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentToolCallRecord,
    AgentToolCallRecordStatus,
    ResolvedToolPolicy,
)
from dex_agents.session.values import InteractionMode
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
    mode: InteractionMode = InteractionMode.CHAT,
    refusal: str | None = None,
) -> tuple[list[AgentToolCallRecord], list[Movement]]:
    """Store a record for every call the model asked for, and raise what a person has to decide or answer.

    Args:
        tx: The transaction.
        turn_id: The active turn.
        calls: The calls in the model's order.
        first_order: How many calls the turn has so far.
        model_step_number: The model step that asked, from 1.
        options: The session's options.
        mode: The kind of the active turn; a planning one runs `write_todos` alone.
        refusal: Why no call may run, when the turn has reached a limit.

    Returns:
        The records in call order, and one movement per call that is not final yet.
    """
    deferral = _Deferral(tx, turn_id, model_step_number, options, mode)
    # A deploy may take the built-in tool away while a turn plans; an agent's own tool of its name writes no plan.
    plans = WRITE_TODOS in options.built_in_tools
    plan_calls = sum(call.tool_name == WRITE_TODOS for call in calls)
    for order, call in enumerate(calls, first_order):
        if refusal is not None:
            deferral.refuse_call(call, order, refusal)
        elif mode is InteractionMode.PLANNING and not (plans and call.tool_name == WRITE_TODOS):
            deferral.reject_call(call, order, TOOL_CALL_NOT_RUN_IN_PLANNING_TURN)
        elif call.tool_name in options.built_in_tools:
            if call.tool_name == WRITE_TODOS and plan_calls > 1:
                deferral.refuse_call(call, order, TODOS_WRITTEN_TWICE)
            else:
                deferral.defer_built_in_call(call, order)
        else:
            deferral.defer_call(call, order)
    if deferral.interrupts:
        raise_interrupts(tx, turn_id, tuple(deferral.interrupts))
    return deferral.records, deferral.movements


class _Deferral:
    """One response's calls; collects what is done once for all of them."""

    def __init__(
        self,
        tx: Transaction,
        turn_id: str,
        model_step_number: int,
        options: AgentSessionOptions,
        mode: InteractionMode,
    ) -> None:
        self._tx = tx
        self._turn_id = turn_id
        self._model_step_number = model_step_number
        self._options = options
        self._mode = mode
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

    def refuse_call(self, call: RequestedToolCall, order: int, error: str) -> None:
        """A call that fails at once, whatever it is."""
        self._fail(self._new_record(_without_approval(call), order), error)

    def reject_call(self, call: RequestedToolCall, order: int, message: str) -> None:
        """A call that is rejected at once."""
        self._finish(self._new_record(_without_approval(call), order), Status.REJECTED, rejection_message=message)

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
            elif call.tool_name == WRITE_TODOS:
                self._write_todos(record)
            else:
                raise LookupError(f"{call.tool_name!r} is no built-in tool of this release")
        except (InvalidBuiltInArgumentsError, InvalidTodosError) as error:
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

    def _write_todos(self, record: AgentToolCallRecord) -> None:
        plan = replace_plan(self._tx, self._turn_id, read_todos(record.arguments), self._mode)
        self._finish(record, Status.SUCCEEDED, output=todos_result(plan))

    def _new_record(self, call: RequestedToolCall, order: int) -> AgentToolCallRecord:
        tx = self._tx
        requires_approval = call.policy.requires_approval and call.arguments_error is None
        return AgentToolCallRecord(
            tool_call_id=allocate_tool_call_id(
                call.tool_call_id, order, lambda key: tx.get_instance(AGENT_TOOL_CALLS, key) is not None
            ),
            provider_tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            effect=call.policy.effect,
            requires_approval=requires_approval,
            status=Status.APPROVED,
            deferral_order=order,
            model_step_number=self._model_step_number,
            deferred_at=tx.now,
            tool_source_reference=call.tool_source_reference,
            arguments_schema=call.arguments_schema if requires_approval else None,
        )

    def _store(self, record: AgentToolCallRecord, step_type: str) -> None:
        self._tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, record)
        emit_tool_call_deferred(self._tx, self._turn_id, record)
        self.records.append(record)
        self.movements.append(move(step_type, record.tool_call_id))

    def _fail(self, record: AgentToolCallRecord, error: str) -> None:
        self._finish(record, Status.FAILED, error=error)

    def _finish(self, record: AgentToolCallRecord, status: Status, **changes: Any) -> None:
        self._tx.set_instance(AGENT_TOOL_CALLS, record.tool_call_id, record)
        emit_tool_call_deferred(self._tx, self._turn_id, record)
        self.records.append(finalize_tool_call(self._tx, self._turn_id, record, status, **changes))

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


def _without_approval(call: RequestedToolCall) -> RequestedToolCall:
    policy = ResolvedToolPolicy(effect=call.policy.effect, requires_approval=False)
    return replace(call, policy=policy)
