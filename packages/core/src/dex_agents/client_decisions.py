"""What a person decides: pending interrupts, and the answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dex_agents.client_connection import SessionConnection
from dex_agents.client_results import AnswerResult, ResolveResult
from dex_agents.session.argument_validation import MAX_DEPTH
from dex_agents.session.changed_arguments import changed_arguments_problem
from dex_agents.session.persistence import PENDING_INTERRUPTS
from dex_agents.session.rpc_values import AnswerQuestionInput, ResolveInterruptInput
from dex_agents.session.rpcs import ANSWER_QUESTION, GET_AGENT_SNAPSHOT, RESOLVE_INTERRUPT
from dex_agents.session.sanitizer import is_deeper_than, sanitize_json_value, sanitize_text
from dex_agents.session.tool_values import AgentInterrupt
from dex_agents.session_ids import check_session_id
from dex_flow import StateView

__all__ = ["SessionDecisions"]


class SessionDecisions(SessionConnection):
    """The part of the session client for people who decide and answer."""

    async def pending_interrupts(self, session_id: str) -> tuple[AgentInterrupt, ...]:
        """What waits for a person, oldest first."""
        return await self._engine.get_attribute(check_session_id(session_id), PENDING_INTERRUPTS) or ()

    async def wait_for_interrupts(
        self, session_id: str, *, count: int = 1, timeout: float | None = None
    ) -> tuple[AgentInterrupt, ...]:
        """Wait until at least `count` interrupts are pending, and return all that are, oldest first.

        Raises:
            TimeoutError: They are not there after `timeout` seconds; says what the session is doing.
            FlowClosedError: The session was stopped, so nobody can decide about them.
        """

        def enough(view: StateView) -> tuple[AgentInterrupt, ...] | None:
            pending = view.get(PENDING_INTERRUPTS) or ()
            return pending if len(pending) >= count else None

        awaited = "a pending interrupt" if count == 1 else f"{count} pending interrupts"
        pending = await self._wait_until(session_id, enough, timeout, awaited)
        if pending:
            await self._check_open(session_id)
        return pending

    async def resolve_interrupt(
        self,
        session_id: str,
        interrupt_id: str,
        *,
        approved: bool,
        rejection_message: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> bool:
        """Approve or reject a pending tool call; False when the decision does not count.

        `resolve_interrupt_with_reason` says why.

        Args:
            session_id: The session.
            interrupt_id: From `pending_interrupts`, a snapshot or an `interrupt_raised` event.
            approved: Whether the call may run.
            rejection_message: What the model is told about a rejected call, exactly; None for a standard text.
            arguments: What the tool runs with in place of the model's arguments, all of them; None leaves them. They
                must fit the tool's JSON Schema, and the model is told of the change.
            request_id: Makes the call repeatable.

        Raises:
            ValueError: A `rejection_message` comes with an approval, or `arguments` come with a rejection, where nobody
                would read them.
        """
        if approved and rejection_message is not None:
            raise ValueError("rejection_message is for approved=False; an approval has none")
        if not approved and arguments is not None:
            raise ValueError("arguments are for approved=True; a rejected call runs with none")
        if is_deeper_than(arguments, MAX_DEPTH):
            return False  # as the session would say, which could not even read them
        return await self._call(
            session_id,
            RESOLVE_INTERRUPT,
            ResolveInterruptInput(
                interrupt_id=sanitize_text(interrupt_id),
                approved=approved,
                rejection_message=None if rejection_message is None else sanitize_text(rejection_message),
                arguments=None if arguments is None else sanitize_json_value(dict(arguments)),
            ),
            request_id,
        )

    async def resolve_interrupt_with_reason(
        self,
        session_id: str,
        interrupt_id: str,
        *,
        approved: bool,
        rejection_message: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> ResolveResult:
        """`resolve_interrupt` with the reason of a refusal.

        The reason is read right after the refusal. It is advice for a person: the refusal itself is exact.
        """
        if await self.resolve_interrupt(
            session_id,
            interrupt_id,
            approved=approved,
            rejection_message=rejection_message,
            arguments=arguments,
            request_id=request_id,
        ):
            return ResolveResult.ACCEPTED
        interrupt = await self._pending_interrupt(session_id, interrupt_id)
        if interrupt is None:
            return ResolveResult.NOT_PENDING
        if interrupt.kind == "question" and approved:
            return ResolveResult.NOT_AN_APPROVAL
        if arguments is not None and await self._invalid_arguments(session_id, interrupt, dict(arguments)):
            return ResolveResult.INVALID_ARGUMENTS
        return ResolveResult.DEADLINE_PASSED

    async def invalid_arguments_reason(
        self, session_id: str, interrupt_id: str, arguments: Mapping[str, Any]
    ) -> str | None:
        """Why a pending call may not run with these arguments in place of the model's; None when it may.

        For a form that checks before it sends. None also when nothing is pending under this ID.
        """
        interrupt = await self._pending_interrupt(session_id, interrupt_id)
        return None if interrupt is None else await self._invalid_arguments(session_id, interrupt, dict(arguments))

    async def _invalid_arguments(
        self, session_id: str, interrupt: AgentInterrupt, arguments: dict[str, Any]
    ) -> str | None:
        snapshot = await self._call(session_id, GET_AGENT_SNAPSHOT, None)
        for record in snapshot.tool_calls:
            if record.tool_call_id == interrupt.tool_call_id:
                return changed_arguments_problem(sanitize_json_value(arguments), record.arguments_schema)
        return None

    async def answer_question(
        self, session_id: str, interrupt_id: str, answer: str, *, request_id: str | None = None
    ) -> bool:
        """Answer a pending question; False when the answer does not count.

        `answer_question_with_reason` says why. `resolve_interrupt` with `approved=False` declines a question.

        Args:
            session_id: The session.
            interrupt_id: From `pending_interrupts`, a snapshot or an `interrupt_raised` event.
            answer: The person's words, or exactly one of the question's choices.
            request_id: Makes the call repeatable.
        """
        answer_input = AnswerQuestionInput(interrupt_id=sanitize_text(interrupt_id), answer=sanitize_text(answer))
        return await self._call(session_id, ANSWER_QUESTION, answer_input, request_id)

    async def answer_question_with_reason(
        self, session_id: str, interrupt_id: str, answer: str, *, request_id: str | None = None
    ) -> AnswerResult:
        """`answer_question` with the reason of a refusal, read right after it: advice for a person."""
        if await self.answer_question(session_id, interrupt_id, answer, request_id=request_id):
            return AnswerResult.ACCEPTED
        repaired = sanitize_text(answer)
        interrupt = await self._pending_interrupt(session_id, interrupt_id)
        if interrupt is None:
            return AnswerResult.NOT_PENDING
        if interrupt.kind != "question":
            return AnswerResult.NOT_A_QUESTION
        if not repaired.strip():
            return AnswerResult.BLANK_ANSWER
        if not interrupt.allows_free_text and repaired not in interrupt.choices:
            return AnswerResult.NOT_A_CHOICE
        return AnswerResult.DEADLINE_PASSED

    async def _pending_interrupt(self, session_id: str, interrupt_id: str) -> AgentInterrupt | None:
        wanted = sanitize_text(interrupt_id)
        pending = await self.pending_interrupts(session_id)
        return next((interrupt for interrupt in pending if interrupt.interrupt_id == wanted), None)
