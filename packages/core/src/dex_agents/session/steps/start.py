"""Steps between turns: the session's start and the wait for a user message."""

from __future__ import annotations

from dex_agents.session.definition import SessionDefinition
from dex_agents.session.persistence import (
    AGENT_PLAN,
    AGENT_STATE,
    AGENT_USAGE,
    PENDING_PLAN_EXECUTION,
    PLAN_EXECUTIONS,
    QUEUED_USER_MESSAGES,
    SESSION_SETTINGS,
    TURN_CONTROL_REQUESTS,
)
from dex_agents.session.plan_values import PlanExecutionRequest
from dex_agents.session.plans import can_execute, plan_execution_key, plan_execution_message, turn_mode
from dex_agents.session.rpc_values import AgentSessionStartInput
from dex_agents.session.sanitizer import MAX_USER_TEXT_BYTES, sanitize_json_value, sanitize_text, text_size
from dex_agents.session.settings import INVALID_START_SESSION_SETTINGS_REASON, settings_problem
from dex_agents.session.step_types import APPLY_TURN_CONTROL, AWAIT_USER_MESSAGE, START_AGENT_SESSION
from dex_agents.session.tool_values import TurnControlRequest
from dex_agents.session.transition_rules import STEP_GRAPH
from dex_agents.session.transitions import session_state, start_turn
from dex_agents.session.values import AgentState, AgentStatus, AgentUsage, InteractionMode
from dex_flow import Condition, Decision, InlineStep, StateView, Transaction, Wait, fail, go_to

__all__ = ["AwaitUserMessage", "StartAgentSession"]


class StartAgentSession(InlineStep[AgentSessionStartInput]):
    """Initialises the session; starts a turn when there is an initial message."""

    next_steps = STEP_GRAPH[START_AGENT_SESSION]

    def __init__(self, session: SessionDefinition) -> None:
        self._session = session

    def execute(self, tx: Transaction, input: AgentSessionStartInput) -> Decision:
        """Set the first state, or fail a session whose start input cannot be stored."""
        text = sanitize_text(input.initial_message or "")
        if text_size(text) > MAX_USER_TEXT_BYTES:
            return fail(f"initial_message has {text_size(text)} bytes; the limit is {MAX_USER_TEXT_BYTES} bytes")
        problem = settings_problem(input.session_settings)
        if problem is not None:
            return fail(f"{INVALID_START_SESSION_SETTINGS_REASON}: {problem}")
        if input.session_settings:
            tx.set(SESSION_SETTINGS, sanitize_json_value(input.session_settings))
        now = tx.now
        state = AgentState(status=AgentStatus.WAITING_FOR_USER_MESSAGE, started_at=now, updated_at=now)
        tx.set(AGENT_STATE, state)
        tx.set(AGENT_USAGE, AgentUsage())
        if not text.strip():
            return go_to(AWAIT_USER_MESSAGE)
        return start_turn(tx, state, (text,), self._session)


class AwaitUserMessage(InlineStep[None]):
    """Waits for one queued message or an approval of the plan, and starts a turn; steered messages go first."""

    next_steps = STEP_GRAPH[AWAIT_USER_MESSAGE]

    def __init__(self, session: SessionDefinition) -> None:
        self._session = session

    def wait_for(self, view: StateView, input: None) -> Wait:
        """A steer that the turn before did not take, one queued message, or an approval of the plan's revision."""
        conditions: list[Condition] = [TURN_CONTROL_REQUESTS.receive(), QUEUED_USER_MESSAGES.receive()]
        plan = view.get(AGENT_PLAN)
        if plan is not None and plan.status in ("draft", "active"):
            conditions.append(PLAN_EXECUTIONS.receive(plan_execution_key(plan.revision)))
        return Wait.any_of(*conditions)

    def execute(self, tx: Transaction, input: None) -> Decision:
        """Start the turn."""
        (received,) = tx.wait_result.received
        if isinstance(received, TurnControlRequest):
            return go_to(APPLY_TURN_CONTROL)
        state = session_state(tx)
        if isinstance(received, PlanExecutionRequest):
            return self._execute_plan(tx, state, received.revision)
        mode = turn_mode(tx, plan_mode=received.plan_mode)
        return start_turn(tx, state, (received.text,), self._session, mode=mode)

    def _execute_plan(self, tx: Transaction, state: AgentState, revision: int) -> Decision:
        tx.delete(PENDING_PLAN_EXECUTION)
        if not can_execute(tx, revision):
            # The revision was replaced since; nobody approved what stands there now.
            return go_to(AWAIT_USER_MESSAGE)
        text = plan_execution_message(revision)
        return start_turn(tx, state, (text,), self._session, mode=InteractionMode.EXECUTING)
