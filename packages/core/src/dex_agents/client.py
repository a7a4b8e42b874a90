"""Talking to sessions from an application: one typed coroutine per RPC, live events, and waits without polling."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Literal

import msgspec

from dex_agents.client_results import ResolveResult, SendResult, StreamedAgentEvent
from dex_agents.session.event_values import AgentEvent
from dex_agents.session.persistence import AGENT_EVENTS, AGENT_STATE, PENDING_INTERRUPTS, QUEUED_USER_MESSAGES
from dex_agents.session.rpc_values import (
    AgentMessagePage,
    AgentSessionStartInput,
    AgentSnapshot,
    DeleteQueuedMessageInput,
    ListAgentMessagesInput,
    ResolveInterruptInput,
    SendUserMessageInput,
)
from dex_agents.session.rpcs import (
    DELETE_QUEUED_MESSAGE,
    GET_AGENT_SNAPSHOT,
    LIST_AGENT_MESSAGES,
    RESOLVE_INTERRUPT,
    SEND_USER_MESSAGE,
)
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_text
from dex_agents.session.settings import MAX_SESSION_SETTINGS_BYTES
from dex_agents.session.tool_values import AgentInterrupt
from dex_agents.session.values import AgentMessage, AgentState, AgentStatus
from dex_agents.session_ids import check_request_id, check_session_id
from dex_flow import Engine, Flow, StateView, Stream, StreamEvent, ValueTooLargeError

__all__ = ["AgentSessionClient"]


class AgentSessionClient:
    """Starts sessions of one Flow type and talks to them; holds no state, so any number may exist in any process.

    Every coroutine raises `dex_flow.FlowNotFoundError` for a session that was not started, `dex_flow.FlowClosedError`
    for a change to one that was stopped, and `ValueError` for a session ID that cannot be one. Texts are repaired on
    the way in: what cannot be stored as Unicode text is replaced.

    A changing call takes a `request_id`: repeat the call with the same one after a lost connection, and the session
    changes once and gives the first answer.

    Args:
        engine: Runs the sessions, or reaches the store they are in.
        flow: What `create_agent_session_flow` or an adapter's factory returned.
    """

    def __init__(self, engine: Engine, flow: Flow) -> None:
        if not isinstance(flow, Flow) or SEND_USER_MESSAGE.name not in flow.rpcs:
            raise TypeError(f"{flow!r} is not an agent session flow; build one with create_agent_session_flow")
        self._engine = engine
        self._flow = flow
        self._events: Stream[AgentEvent] = flow.streams[AGENT_EVENTS.name]

    async def start_session(
        self,
        session_id: str,
        *,
        initial_message: str | None = None,
        session_settings: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        already_started: Literal["error", "ignore"] = "error",
    ) -> bool:
        """Start a session; True when this call started it.

        Args:
            session_id: Any non-empty text of at most 256 characters.
            initial_message: The first turn's user message; None or blank text waits for one.
            session_settings: A JSON object the runner reads in every model call. Never put a secret in it.
            request_id: Makes the call repeatable.
            already_started: `ignore` returns False for a session that exists.

        Raises:
            FlowAlreadyStartedError: The session exists.
            TypeError: The settings are not a JSON object.
            ValueTooLargeError: They have more than 16 KiB as JSON.
        """
        start_input = AgentSessionStartInput(
            initial_message=None if initial_message is None else sanitize_text(initial_message),
            session_settings=_checked_settings({} if session_settings is None else session_settings),
        )
        return await self._engine.start_flow(
            self._flow,
            check_session_id(session_id),
            start_input,
            request_id=check_request_id(request_id),
            already_started=already_started,
        )

    async def send_user_message(
        self, session_id: str, text: str, *, plan_mode: bool = False, request_id: str | None = None
    ) -> bool:
        """Send a user message; one sent during a turn starts the next turn. False when it is refused.

        `send_user_message_with_reason` says why.
        """
        return await self._engine.invoke_rpc(
            self._flow,
            check_session_id(session_id),
            SEND_USER_MESSAGE,
            SendUserMessageInput(text=sanitize_text(text), plan_mode=plan_mode),
            request_id=check_request_id(request_id),
        )

    async def send_user_message_with_reason(
        self, session_id: str, text: str, *, plan_mode: bool = False, request_id: str | None = None
    ) -> SendResult:
        """`send_user_message` with the reason of a refusal."""
        if await self.send_user_message(session_id, text, plan_mode=plan_mode, request_id=request_id):
            return SendResult.ACCEPTED
        if not sanitize_text(text).strip():
            return SendResult.BLANK_TEXT
        return SendResult.PLAN_MODE_UNAVAILABLE if plan_mode else SendResult.REFUSED

    async def delete_queued_message(self, session_id: str, message_id: int, *, request_id: str | None = None) -> bool:
        """Delete a message that still waits for its turn; False when it is gone."""
        return await self._engine.invoke_rpc(
            self._flow,
            check_session_id(session_id),
            DELETE_QUEUED_MESSAGE,
            DeleteQueuedMessageInput(message_id=message_id),
            request_id=check_request_id(request_id),
        )

    async def resolve_interrupt(
        self,
        session_id: str,
        interrupt_id: str,
        *,
        approved: bool,
        rejection_message: str | None = None,
        request_id: str | None = None,
    ) -> bool:
        """Approve or reject a pending tool call; False when the decision does not count.

        `resolve_interrupt_with_reason` says why.

        Args:
            session_id: The session.
            interrupt_id: From `pending_interrupts`, a snapshot or an `interrupt_raised` event.
            approved: Whether the call may run.
            rejection_message: What the model is told about a rejected call, exactly; None for a standard text.
            request_id: Makes the call repeatable.
        """
        return await self._engine.invoke_rpc(
            self._flow,
            check_session_id(session_id),
            RESOLVE_INTERRUPT,
            ResolveInterruptInput(
                interrupt_id=sanitize_text(interrupt_id),
                approved=approved,
                rejection_message=None if rejection_message is None else sanitize_text(rejection_message),
            ),
            request_id=check_request_id(request_id),
        )

    async def resolve_interrupt_with_reason(
        self,
        session_id: str,
        interrupt_id: str,
        *,
        approved: bool,
        rejection_message: str | None = None,
        request_id: str | None = None,
    ) -> ResolveResult:
        """`resolve_interrupt` with the reason of a refusal.

        The reason is read right after the refusal. It is advice for a person: the refusal itself is exact.
        """
        if await self.resolve_interrupt(
            session_id, interrupt_id, approved=approved, rejection_message=rejection_message, request_id=request_id
        ):
            return ResolveResult.ACCEPTED
        wanted = sanitize_text(interrupt_id)
        for interrupt in await self.pending_interrupts(session_id):
            if interrupt.interrupt_id == wanted:
                is_question = interrupt.kind == "question"
                return ResolveResult.NOT_AN_APPROVAL if is_question and approved else ResolveResult.DEADLINE_PASSED
        return ResolveResult.NOT_PENDING

    async def get_agent_snapshot(self, session_id: str) -> AgentSnapshot:
        """Everything a client needs to show the session, from one committed state."""
        return await self._engine.invoke_rpc(self._flow, check_session_id(session_id), GET_AGENT_SNAPSHOT, None)

    async def list_agent_messages(
        self, session_id: str, *, before_sequence: int | None = None, limit: int = 50
    ) -> AgentMessagePage:
        """A page of stored messages, oldest first; the newest ones without `before_sequence`.

        Args:
            session_id: The session.
            before_sequence: Only messages before this one; `next_before_sequence` of the page after it.
            limit: Most messages, clamped to 1..200.
        """
        return await self._engine.invoke_rpc(
            self._flow,
            check_session_id(session_id),
            LIST_AGENT_MESSAGES,
            ListAgentMessagesInput(before_sequence=before_sequence, limit=limit),
        )

    async def get_message(self, session_id: str, sequence: int) -> AgentMessage | None:
        """The stored message with this sequence, or None when there is none (any more)."""
        page = await self.list_agent_messages(session_id, before_sequence=sequence + 1, limit=1)
        return next((message for message in page.messages if message.sequence == sequence), None)

    async def pending_interrupts(self, session_id: str) -> tuple[AgentInterrupt, ...]:
        """What waits for a person, oldest first."""
        return await self._engine.get_attribute(check_session_id(session_id), PENDING_INTERRUPTS) or ()

    async def wait_for_interrupts(
        self, session_id: str, *, count: int = 1, timeout: float | None = None
    ) -> tuple[AgentInterrupt, ...]:
        """Wait until at least `count` interrupts are pending, and return all that are, oldest first.

        Raises:
            TimeoutError: They are not there after `timeout` seconds.
        """

        def enough(view: StateView) -> tuple[AgentInterrupt, ...] | None:
            pending = view.get(PENDING_INTERRUPTS) or ()
            return pending if len(pending) >= count else None

        return await self._engine.wait_until(check_session_id(session_id), enough, timeout=timeout)

    async def wait_until_idle(self, session_id: str, *, timeout: float | None = None) -> AgentState:
        """Wait until no turn is active and no message waits for one, and return that state.

        A turn that waits for a decision is active. `last_turn_error` says whether the latest turn failed.

        Raises:
            TimeoutError: The session is still busy after `timeout` seconds.
        """

        def idle(view: StateView) -> AgentState | None:
            state = view.get(AGENT_STATE)
            if state is None or state.status != AgentStatus.WAITING_FOR_USER_MESSAGE:
                return None
            return None if view.count_messages(QUEUED_USER_MESSAGES) else state

        return await self._engine.wait_until(check_session_id(session_id), idle, timeout=timeout)

    def stream_events(self, session_id: str, *, after: int = 0) -> AsyncGenerator[StreamedAgentEvent, None]:
        """Live events above position `after`, retained ones first, until the consumer stops or the session ends.

        Events are best effort: old ones are trimmed. Rebuild from `get_agent_snapshot` when positions have a gap.

        Args:
            session_id: The session.
            after: The position of the last event the consumer has; 0 for none.
        """
        return self._follow(self._engine.follow_stream(check_session_id(session_id), self._events, after=after))

    async def _follow(self, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[StreamedAgentEvent, None]:
        try:
            async for event in events:
                yield StreamedAgentEvent(event.position, event.value)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()


def _checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise TypeError(f"session_settings must be a JSON object: a mapping with text keys, not {settings!r}")
    repaired: dict[str, Any] = sanitize_json_value(dict(settings))
    try:
        size = len(msgspec.json.encode(repaired))
    except TypeError as error:
        raise TypeError(f"session_settings must be a JSON object: {error}") from error
    if size > MAX_SESSION_SETTINGS_BYTES:
        raise ValueTooLargeError("session_settings", size, MAX_SESSION_SETTINGS_BYTES)
    return repaired
