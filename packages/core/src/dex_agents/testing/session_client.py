"""The session client of a test: every wait has a deadline, and a wait in vain shows the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from dex_agents.client import AgentSessionClient
from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.persistence import AGENT_STATE, PENDING_INTERRUPTS
from dex_agents.session.rpc_values import AgentSnapshot
from dex_agents.session.tool_values import AgentInterrupt, InterruptKind
from dex_agents.session.values import AgentStatus
from dex_agents.testing.step_history import describe_step_history, read_step_history
from dex_flow import Engine, Flow, StateView, StepHistoryEntry

__all__ = ["AgentSessionTestClient", "SessionWaitTimeoutError"]

Value = TypeVar("Value")

_MANY_EVENTS = 1_000_000


class SessionWaitTimeoutError(AssertionError, TimeoutError):
    """A session did not come to what the test waits for; the message has its snapshot and its step history."""


class AgentSessionTestClient(AgentSessionClient):
    """`AgentSessionClient` with a deadline on every wait, and errors that show the session.

    A wait in vain, also one of the base class, raises `SessionWaitTimeoutError`: a `TimeoutError` and an
    `AssertionError`.

    Args:
        engine: Runs the sessions, or reaches the file they are in.
        flow: Their Flow.
        timeout: Seconds of every wait that says nothing else.
    """

    def __init__(self, engine: Engine, flow: Flow, *, timeout: float = 30.0) -> None:
        super().__init__(engine, flow)
        self._timeout = timeout

    async def wait_for_status(
        self, session_id: str, *statuses: AgentStatus, timeout: float | None = None
    ) -> AgentSnapshot:
        """Wait until the session has one of these statuses, and return a snapshot read right after.

        `wait_until_idle` also waits until nothing is queued.
        """

        def has_status(view: StateView) -> bool:
            state = view.get(AGENT_STATE)
            return state is not None and state.status in statuses

        await self._wait_until(session_id, has_status, timeout, f"the status {' or '.join(statuses)}")
        return await self.get_agent_snapshot(session_id)

    async def wait_for_interrupt(
        self,
        session_id: str,
        *,
        tool_name: str | None = None,
        kind: InterruptKind | None = None,
        timeout: float | None = None,
    ) -> AgentInterrupt:
        """Wait for something that waits for a person, and return the oldest.

        Args:
            session_id: The session.
            tool_name: Only of this tool.
            kind: Only an `approval` or a `question`.
            timeout: Seconds.
        """

        def wanted(view: StateView) -> AgentInterrupt | None:
            for interrupt in view.get(PENDING_INTERRUPTS) or ():
                if tool_name in (None, interrupt.tool_name) and kind in (None, interrupt.kind):
                    return interrupt
            return None

        of_tool = "" if tool_name is None else f" of {tool_name}"
        return await self._wait_until(session_id, wanted, timeout, f"a pending {kind or 'interrupt'}{of_tool}")

    async def approve(
        self,
        session_id: str,
        *,
        tool_name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> AgentInterrupt:
        """Wait for an approval, approve it and return it.

        Args:
            session_id: The session.
            tool_name: Only of this tool.
            arguments: What the tool runs with in place of the model's arguments.
            timeout: Seconds to wait for the approval.

        Raises:
            AssertionError: The decision did not count; says why and shows the session.
        """
        interrupt = await self.wait_for_interrupt(session_id, tool_name=tool_name, kind="approval", timeout=timeout)
        result = await self.resolve_interrupt_with_reason(
            session_id, interrupt.interrupt_id, approved=True, arguments=arguments
        )
        await self._check_accepted(session_id, "the approval", interrupt, result)
        return interrupt

    async def reject(
        self,
        session_id: str,
        rejection_message: str | None = None,
        *,
        tool_name: str | None = None,
        timeout: float | None = None,
    ) -> AgentInterrupt:
        """Wait for an approval, reject it and return it; raises as `approve` does."""
        interrupt = await self.wait_for_interrupt(session_id, tool_name=tool_name, kind="approval", timeout=timeout)
        result = await self.resolve_interrupt_with_reason(
            session_id, interrupt.interrupt_id, approved=False, rejection_message=rejection_message
        )
        await self._check_accepted(session_id, "the rejection", interrupt, result)
        return interrupt

    async def answer(
        self, session_id: str, answer: str, *, tool_name: str | None = None, timeout: float | None = None
    ) -> AgentInterrupt:
        """Wait for a question, answer it and return it; raises as `approve` does."""
        interrupt = await self.wait_for_interrupt(session_id, tool_name=tool_name, kind="question", timeout=timeout)
        result = await self.answer_question_with_reason(session_id, interrupt.interrupt_id, answer)
        await self._check_accepted(session_id, "the answer", interrupt, result)
        return interrupt

    async def read_tool_call_statuses(self, session_id: str) -> list[tuple[str, str]]:
        """Tool name and final status of every finished call of every turn, in the order they became final."""
        events = await self._engine.read_stream(session_id, self._events, limit=_MANY_EVENTS)
        payloads = [decode_event_payload(event.value) for event in events if event.value.type == "tool_call_finished"]
        return [(payload["tool_name"], payload["status"]) for payload in payloads]

    async def read_step_history(self, session_id: str) -> list[StepHistoryEntry]:
        """Every finished Step method, in commit order."""
        return await read_step_history(self._engine, session_id)

    async def describe_session(self, session_id: str) -> str:
        """The session's snapshot and step history, for a person who looks for what went wrong."""
        snapshot = await self.get_agent_snapshot(session_id)
        history = await self.read_step_history(session_id)
        shown = msgspec.json.format(msgspec.json.encode(snapshot), indent=2).decode()
        return f"snapshot: {shown}\nfinished steps:\n{describe_step_history(history)}"

    async def _wait_until(
        self, session_id: str, condition: Callable[[StateView], Value | None], timeout: float | None, awaited: str
    ) -> Value:
        limit = self._timeout if timeout is None else timeout
        return await super()._wait_until(session_id, condition, limit, awaited)

    async def _raise_timeout(self, session_id: str, timeout: float | None, awaited: str) -> NoReturn:
        try:
            await super()._raise_timeout(session_id, timeout, awaited)
        except TimeoutError as error:
            report = await self.describe_session(session_id)
            raise SessionWaitTimeoutError(f"{error}\n{report}") from None

    async def _check_accepted(self, session_id: str, what: str, interrupt: AgentInterrupt, result: str) -> None:
        if result != "accepted":
            report = await self.describe_session(session_id)
            raise AssertionError(f"{what} of {interrupt.tool_name} in session {session_id!r}: {result}\n{report}")
