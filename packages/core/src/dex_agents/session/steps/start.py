"""Steps between turns: the session's start and the wait for a user message."""

from __future__ import annotations

from dex_agents.session.persistence import (
    AGENT_STATE,
    AGENT_USAGE,
    QUEUED_USER_MESSAGES,
    SESSION_SETTINGS,
    TURN_CONTROL_REQUESTS,
)
from dex_agents.session.rpc_values import AgentSessionStartInput
from dex_agents.session.sanitizer import MAX_USER_TEXT_BYTES, sanitize_text, text_size
from dex_agents.session.settings import settings_problem
from dex_agents.session.step_types import APPLY_TURN_CONTROL, AWAIT_USER_MESSAGE, START_AGENT_SESSION
from dex_agents.session.tool_values import TurnControlRequest
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import UserMessageBuilder, session_state, start_turn
from dex_agents.session.values import AgentState, AgentStatus, AgentUsage
from dex_flow import Decision, InlineStep, StateView, Transaction, Wait, fail, go_to

__all__ = ["AwaitUserMessage", "StartAgentSession"]

INVALID_START_SETTINGS_REASON = "the session was started with invalid session_settings"


class StartAgentSession(InlineStep[AgentSessionStartInput]):
    """Initialises the session; starts a turn when there is an initial message."""

    next_steps = STEP_GRAPH[START_AGENT_SESSION]

    def __init__(self, build_user_message: UserMessageBuilder) -> None:
        self._build_user_message = build_user_message

    def execute(self, tx: Transaction, input: AgentSessionStartInput) -> Decision:
        """Set the first state, or fail a session whose start input cannot be stored."""
        text = sanitize_text(input.initial_message or "")
        if text_size(text) > MAX_USER_TEXT_BYTES:
            return fail(f"initial_message has {text_size(text)} bytes; the limit is {MAX_USER_TEXT_BYTES} bytes")
        problem = settings_problem(input.session_settings)
        if problem is not None:
            return fail(f"{INVALID_START_SETTINGS_REASON}: {problem}")
        if input.session_settings:
            tx.set(SESSION_SETTINGS, input.session_settings)
        now = tx.now
        state = AgentState(status=AgentStatus.WAITING_FOR_USER_MESSAGE, started_at=now, updated_at=now)
        tx.set(AGENT_STATE, state)
        tx.set(AGENT_USAGE, AgentUsage())
        if not text.strip():
            return go_to(AWAIT_USER_MESSAGE)
        return start_turn(tx, state, (text,), self._build_user_message)


class AwaitUserMessage(InlineStep[None]):
    """Waits for one queued message and starts a turn with it; steered messages go first."""

    next_steps = STEP_GRAPH[AWAIT_USER_MESSAGE]

    def __init__(self, build_user_message: UserMessageBuilder) -> None:
        self._build_user_message = build_user_message

    def wait_for(self, view: StateView, input: None) -> Wait:
        """A steer that the turn before did not take, or one queued message."""
        return Wait.any_of(TURN_CONTROL_REQUESTS.receive(), QUEUED_USER_MESSAGES.receive())

    def execute(self, tx: Transaction, input: None) -> Decision:
        """Start the turn."""
        (received,) = tx.wait_result.received
        if isinstance(received, TurnControlRequest):
            return go_to(APPLY_TURN_CONTROL)
        return start_turn(tx, session_state(tx), (received.text,), self._build_user_message)
