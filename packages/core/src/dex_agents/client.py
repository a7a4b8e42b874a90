"""Talking to sessions from an application: one typed coroutine per RPC, live events, and waits without polling."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Literal

import msgspec

from dex_agents.client_decisions import SessionDecisions
from dex_agents.client_results import ExecutePlanResult, SendResult, StreamedAgentEvent
from dex_agents.client_turns import SessionTurns, refusal_reason
from dex_agents.session.rpc_values import (
    AgentMessagePage,
    AgentSessionStartInput,
    AgentSnapshot,
    DeleteQueuedMessageInput,
    ExecutePlanInput,
    ListAgentMessagesInput,
    SendUserMessageInput,
    UpdateSessionSettingsInput,
)
from dex_agents.session.rpcs import (
    DELETE_QUEUED_MESSAGE,
    EXECUTE_PLAN,
    GET_AGENT_SNAPSHOT,
    LIST_AGENT_MESSAGES,
    SEND_USER_MESSAGE,
    UPDATE_SESSION_SETTINGS,
)
from dex_agents.session.sanitizer import check_text_size, sanitize_json_value, sanitize_text
from dex_agents.session.settings import MAX_SESSION_SETTINGS_BYTES, nesting_problem, validate_session_settings
from dex_agents.session.values import AgentMessage
from dex_agents.session_ids import check_request_id, check_session_id
from dex_flow import StreamEvent, ValueTooLargeError

__all__ = ["AgentSessionClient"]

_ALREADY_STARTED_CHOICES = ("error", "ignore")


class AgentSessionClient(SessionTurns, SessionDecisions):
    """Starts sessions of one Flow type and talks to them; holds no state, so any number may exist in any process.

    Every coroutine raises `dex_flow.FlowNotFoundError` for a session that was not started, `dex_flow.FlowClosedError`
    for a change to one that was stopped, and `ValueError` for a session ID that cannot be one. Texts are repaired on
    the way in: what cannot be stored as Unicode text is replaced.

    A changing call takes a `request_id`: repeat the call with the same one after a lost connection, and the session
    changes once and gives the first answer.

    Args:
        engine: Runs the sessions, or reaches the store they are in.
        flow: What `create_agent_session_flow` or an adapter's factory returned.

    Raises:
        TypeError: The Flow is none of an agent session.
    """

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
            ValueError: `already_started` is neither `error` nor `ignore`, or the settings have impossible turn limits
                or are nested too deeply.
            ValueTooLargeError: They have more than 16 KiB as JSON, or the message has more than 1 MiB.
        """
        if already_started not in _ALREADY_STARTED_CHOICES:
            raise ValueError(f"already_started must be 'error' or 'ignore', not {already_started!r}")
        text = None if initial_message is None else sanitize_text(initial_message)
        check_text_size("initial_message", text or "")
        start_input = AgentSessionStartInput(
            initial_message=text,
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
        return await self._call(
            session_id,
            SEND_USER_MESSAGE,
            SendUserMessageInput(text=sanitize_text(text), plan_mode=plan_mode),
            request_id,
        )

    async def send_user_message_with_reason(
        self, session_id: str, text: str, *, plan_mode: bool = False, request_id: str | None = None
    ) -> SendResult:
        """`send_user_message` with the reason of a refusal."""
        if await self.send_user_message(session_id, text, plan_mode=plan_mode, request_id=request_id):
            return SendResult.ACCEPTED
        return refusal_reason(sanitize_text(text), plan_mode)

    async def delete_queued_message(self, session_id: str, message_id: int, *, request_id: str | None = None) -> bool:
        """Delete a message that still waits for its turn; False when it is gone."""
        return await self._call(
            session_id, DELETE_QUEUED_MESSAGE, DeleteQueuedMessageInput(message_id=message_id), request_id
        )

    async def execute_plan(self, session_id: str, revision: int, *, request_id: str | None = None) -> bool:
        """Approve this revision of the plan, so that a turn carries it out. False when it cannot be now.

        `execute_plan_with_reason` says why.

        Args:
            session_id: The session.
            revision: The revision the user has seen, from a snapshot's `plan`.
            request_id: Makes the call repeatable.
        """
        return await self._call(session_id, EXECUTE_PLAN, ExecutePlanInput(revision=revision), request_id)

    async def execute_plan_with_reason(
        self, session_id: str, revision: int, *, request_id: str | None = None
    ) -> ExecutePlanResult:
        """`execute_plan` with the reason of a refusal, read right after it: advice for a person."""
        if await self.execute_plan(session_id, revision, request_id=request_id):
            return ExecutePlanResult.ACCEPTED
        plan = (await self.get_agent_snapshot(session_id)).plan
        if plan is None or plan.status in ("completed", "cleared"):
            return ExecutePlanResult.NOTHING_TO_EXECUTE
        return ExecutePlanResult.BUSY if plan.revision == revision else ExecutePlanResult.ANOTHER_REVISION

    async def update_session_settings(
        self, session_id: str, session_settings: Mapping[str, Any], *, request_id: str | None = None
    ) -> bool:
        """Replace the session's settings from the next turn on; `{}` clears them.

        Args:
            session_id: The session.
            session_settings: A JSON object the runner reads in every model call. Never put a secret in it.
            request_id: Makes the call repeatable.

        Raises:
            TypeError: The settings are not a JSON object.
            ValueError: They have turn limits that cannot be, or are nested too deeply.
            ValueTooLargeError: They have more than 16 KiB as JSON.
        """
        settings = UpdateSessionSettingsInput(session_settings=_checked_settings(session_settings))
        return await self._call(session_id, UPDATE_SESSION_SETTINGS, settings, request_id)

    async def get_agent_snapshot(self, session_id: str) -> AgentSnapshot:
        """Everything a client needs to show the session, from one committed state."""
        return await self._call(session_id, GET_AGENT_SNAPSHOT, None)

    async def list_agent_messages(
        self, session_id: str, *, before_sequence: int | None = None, limit: int = 50
    ) -> AgentMessagePage:
        """A page of stored messages, oldest first; the newest ones without `before_sequence`.

        Args:
            session_id: The session.
            before_sequence: Only messages before this one; `next_before_sequence` of the page after it.
            limit: Most messages, clamped to 1..200.
        """
        return await self._call(
            session_id, LIST_AGENT_MESSAGES, ListAgentMessagesInput(before_sequence=before_sequence, limit=limit)
        )

    async def get_message(self, session_id: str, sequence: int) -> AgentMessage | None:
        """The stored message with this sequence, or None when there is none (any more)."""
        page = await self.list_agent_messages(session_id, before_sequence=sequence + 1, limit=1)
        return next((message for message in page.messages if message.sequence == sequence), None)

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
    if (problem := nesting_problem(settings)) is not None:
        raise ValueError(f"invalid session_settings: {problem}")
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise TypeError(f"session_settings must be a JSON object: a mapping with text keys, not {settings!r}")
    repaired: dict[str, Any] = sanitize_json_value(dict(settings))
    try:
        size = len(msgspec.json.encode(repaired))
    except TypeError as error:
        raise TypeError(f"session_settings must be a JSON object: {error}") from error
    if size > MAX_SESSION_SETTINGS_BYTES:
        raise ValueTooLargeError("session_settings", size, MAX_SESSION_SETTINGS_BYTES)
    validate_session_settings(repaired)
    return repaired
