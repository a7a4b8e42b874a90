"""Drives one session by hand: its pure code on the kernel, without an engine, an event loop or a clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from dex_agents.session.event_values import AgentEvent
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    CompactionSnapshot,
    ContextSummarized,
    ModelStepOutcome,
    ModelStepSnapshot,
    ToolCallSnapshot,
    ToolOutcome,
    ToolTaskCancelled,
    ToolTaskOutcome,
    UnfinishedTurnOutcome,
)
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.session.rpc_values import (
    AgentSessionStartInput,
    AgentSnapshot,
    AnswerQuestionInput,
    CancelTurnInput,
    DeleteQueuedMessageInput,
    ExecutePlanInput,
    ResolveInterruptInput,
    SendUserMessageInput,
    SteerUserMessageInput,
    UpdateSessionSettingsInput,
)
from dex_agents.session.rpcs import (
    ANSWER_QUESTION,
    CANCEL_TURN,
    DELETE_QUEUED_MESSAGE,
    EXECUTE_PLAN,
    GET_AGENT_SNAPSHOT,
    RESOLVE_INTERRUPT,
    SEND_USER_MESSAGE,
    STEER_USER_MESSAGE,
    UPDATE_SESSION_SETTINGS,
)
from dex_agents.session.session_flow import build_agent_session_flow
from dex_agents.session.values import FrameworkMessage
from dex_flow import Activity, ActivityStep, AttemptFailure, Flow, Rpc
from dex_flow.codec import decode, encode
from dex_flow.kernel import (
    AttemptFailed,
    AttemptsLost,
    AttemptStarted,
    AttemptSucceeded,
    ClaimedAttempt,
    ClaimReady,
    Command,
    FireTimers,
    FlowHeader,
    InvokeRpc,
    Kernel,
    SkipTimer,
    StartFlow,
    decode_header,
    microseconds,
)
from dex_flow.testing import MemoryStore

__all__ = ["SessionDriver", "plain_user_message"]

Input = TypeVar("Input")
Output = TypeVar("Output")

_SLOTS = 1_000


def plain_user_message(text: str) -> FrameworkMessage:
    """A user message whose framework item is `{"role":"user","text":...}`."""
    item = msgspec.json.encode({"role": "user", "text": text}).decode()
    return FrameworkMessage(role="user", framework_item=item, text=text)


class _NoExecution:
    """The driver's caller plays the runner, so nothing here runs."""

    async def run_model_step(self, activity: Activity, snapshot: ModelStepSnapshot) -> ModelStepOutcome:
        raise AssertionError("a driven session runs no model step; call `succeed` or `fail`")

    async def run_tool_call(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolOutcome:
        raise AssertionError("a driven session runs no tool call; call `succeed` or `fail`")

    async def summarize_context(self, activity: Activity, snapshot: CompactionSnapshot) -> ContextSummarized:
        raise AssertionError("a driven session summarises nothing; call `succeed` or `fail`")

    async def poll_tool_task(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskOutcome:
        raise AssertionError("a driven session polls no task; call `succeed` or `fail`")

    async def cancel_tool_task(self, activity: Activity, snapshot: ToolCallSnapshot) -> ToolTaskCancelled:
        raise AssertionError("a driven session stops no task; call `succeed` or `fail`")

    async def build_unfinished_turn_messages(
        self, activity: Activity, snapshot: ModelStepSnapshot
    ) -> UnfinishedTurnOutcome:
        raise AssertionError("a driven session builds no messages; call `succeed` or `fail`")


class SessionDriver:
    """One session whose attempts the caller ends, in any order and at any time.

    Args:
        options: How the session behaves.
        builds_unfinished_turns: Whether the runner completes the transcript of turns without an answer.
        compacts: Whether the runner summarises older messages.
        polls_tasks: Whether the runner polls tasks.
        cancels_tasks: Whether the runner stops tasks.
        flow_id: The session's ID.
        build_user_message: The runner's pure function.

    Attributes:
        flow: The session's definition.
        store: Everything stored.
        now: Virtual time, microseconds since the epoch.
        running: Claimed and started attempts by Step execution ID.
        starts_claims: Whether a claimed single-attempt Step is started at once; else call `begin`.
        has_worker: Whether a worker takes what is ready; without one nothing is claimed. See `take_work`.
    """

    def __init__(
        self,
        options: AgentSessionOptions | None = None,
        *,
        builds_unfinished_turns: bool = False,
        compacts: bool = True,
        polls_tasks: bool = True,
        cancels_tasks: bool = True,
        flow_id: str = "session",
        build_user_message: Callable[[str], FrameworkMessage] = plain_user_message,
    ) -> None:
        execution = _NoExecution()
        self.flow: Flow = build_agent_session_flow(
            "DrivenAgent",
            build_user_message=build_user_message,
            model_execution=execution,
            tool_execution=execution,
            unfinished_turn_execution=execution if builds_unfinished_turns else None,
            compaction_execution=execution if compacts else None,
            tool_task_poll_execution=execution if polls_tasks else None,
            tool_task_cancel_execution=execution if cancels_tasks else None,
            options=options,
        )
        self.flow_id = flow_id
        self.store = MemoryStore()
        self.now = microseconds(datetime.fromisoformat("2026-01-01T00:00:00Z"))
        self.running: dict[int, ClaimedAttempt] = {}
        self.starts_claims = True
        self.has_worker = True
        self._kernel = Kernel(self.flow)

    # Commands

    def start(self, initial_message: str | None = None, **settings: Any) -> None:
        """Start the session."""
        start = AgentSessionStartInput(initial_message=initial_message, session_settings=settings)
        self.apply(StartFlow(encode(start)))

    def call(self, rpc: Rpc[Input, Output], input: Input) -> Output:
        """Call an RPC."""
        if rpc.read_only:
            output: Output = self._kernel.read_rpc(self.store, self.flow_id, self.now, rpc.name, encode(input))
            return output
        answer: Output = self.apply(InvokeRpc(rpc.name, encode(input)))
        return answer

    def send(self, text: str, *, plan_mode: bool = False) -> bool:
        """Send a user message."""
        return self.call(SEND_USER_MESSAGE, SendUserMessageInput(text=text, plan_mode=plan_mode))

    def resolve(
        self,
        interrupt_id: str,
        approved: bool,
        rejection_message: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> bool:
        """Decide about an interrupt."""
        return self.call(
            RESOLVE_INTERRUPT,
            ResolveInterruptInput(
                interrupt_id=interrupt_id,
                approved=approved,
                rejection_message=rejection_message,
                arguments=arguments,
            ),
        )

    def execute_plan(self, revision: int) -> bool:
        """Approve a revision of the plan."""
        return self.call(EXECUTE_PLAN, ExecutePlanInput(revision=revision))

    def update_settings(self, settings: dict[str, Any] | None) -> bool:
        """Replace the session's settings."""
        return self.call(UPDATE_SESSION_SETTINGS, UpdateSessionSettingsInput(session_settings=settings))

    def answer(self, interrupt_id: str, answer: str) -> bool:
        """Answer a question."""
        return self.call(ANSWER_QUESTION, AnswerQuestionInput(interrupt_id=interrupt_id, answer=answer))

    def steer(self, text: str | None = None, *, message_id: int | None = None) -> bool:
        """Steer the running turn with new text or with a queued message."""
        return self.call(STEER_USER_MESSAGE, SteerUserMessageInput(text=text, message_id=message_id))

    def delete_queued(self, message_id: int) -> bool:
        """Delete a queued message."""
        return self.call(DELETE_QUEUED_MESSAGE, DeleteQueuedMessageInput(message_id=message_id))

    def cancel_turn(self, turn_id: str | None = None) -> bool:
        """Stop a turn, the active one unless told otherwise."""
        return self.call(CANCEL_TURN, CancelTurnInput(turn_id=turn_id))

    def advance(self, seconds: float) -> None:
        """Let time pass; due timers, deadlines and backoffs fire, and what is ready then is claimed."""
        self.now += int(seconds * 1_000_000)
        self.apply(FireTimers())

    def skip_timer(self, step_execution_id: int) -> bool:
        """End a Step's timer wait or backoff now."""
        skipped: bool = self.apply(SkipTimer(step_execution_id))
        return skipped

    # Attempts

    def attempt_of(self, step_type: str, input: Any = None) -> ClaimedAttempt:
        """The running attempt of this Step type, with this input when it is given."""
        found = [
            claim
            for claim in self.running.values()
            if claim.step_type == step_type and (input is None or decode(Any, claim.input) == input)
        ]
        if len(found) != 1:
            running = [(claim.step_type, bytes(claim.input)) for claim in self.running.values()]
            raise LookupError(f"{len(found)} attempts of {step_type} {input!r} run; running are {running}")
        return found[0]

    def begin(self, claim: ClaimedAttempt) -> None:
        """Store the started marker of a claimed single-attempt Step; its `before_run` may decide not to run it."""
        self.running[claim.step_execution_id] = claim._replace(is_started=True)
        self.apply(AttemptStarted(claim.step_execution_id, claim.attempt))
        step = self.header.steps.get(claim.step_execution_id)
        if step is None or step.status != "running":
            self.running.pop(claim.step_execution_id, None)

    def snapshot_of(self, claim: ClaimedAttempt) -> Any:
        """What the attempt's `run` would receive."""
        return self._kernel.load_snapshot(self.store, self.flow_id, self.now, claim.step_type, claim.input)

    def succeed(self, claim: ClaimedAttempt, outcome: Any) -> None:
        """End an attempt with an outcome, passed through its stored form."""
        step = self.flow.step(claim.step_type)
        assert isinstance(step, ActivityStep)
        stored = decode(step.outcome_type, encode(outcome))
        del self.running[claim.step_execution_id]
        self.apply(AttemptSucceeded(claim.step_execution_id, claim.attempt, stored))

    def fail(
        self, claim: ClaimedAttempt, error_type: str = "RuntimeError", message: str = "broken", **details: Any
    ) -> None:
        """End an attempt with an exception."""
        failure = AttemptFailure(error_type=error_type, message=message, **details)
        del self.running[claim.step_execution_id]
        self.apply(AttemptFailed(claim.step_execution_id, claim.attempt, failure))

    def lose_worker(self) -> None:
        """The worker dies with all its attempts, and another one takes over."""
        self.running.clear()
        self.apply(AttemptsLost())

    def stop_worker(self) -> None:
        """The worker dies with all its attempts, and nobody takes over."""
        self.has_worker = False
        self.lose_worker()

    def take_work(self) -> None:
        """A worker comes and takes whatever is ready."""
        self.has_worker = True
        self.apply(ClaimReady())

    def apply(self, command: Command) -> Any:
        """Apply a command like a worker that takes whatever is ready."""
        slots = _SLOTS if self.has_worker else 0
        result = self._kernel.apply(self.store, self.flow_id, self.now, command, claim_slots=slots)
        if result.changes is not None:
            self.store.apply(result.changes)
            for step_execution_id, _ in result.changes.cancelled:
                self.running.pop(step_execution_id, None)
            for claim in result.changes.claimed:
                self.running[claim.step_execution_id] = claim
                if not claim.is_started and self.starts_claims:
                    self.begin(claim)
        if self.has_worker and self.store.has_ready and not isinstance(command, (ClaimReady, FireTimers)):
            self.apply(ClaimReady())
        return result.output

    # What is stored

    @property
    def header(self) -> FlowHeader:
        """The execution's counters and open Steps."""
        assert self.store.header_data is not None
        return decode_header(self.store.header_data)

    @property
    def open_step_types(self) -> list[str]:
        """Types of the open Steps, oldest first."""
        return [step.type for _, step in sorted(self.header.steps.items())]

    def snapshot(self) -> AgentSnapshot:
        """What clients see."""
        return self.call(GET_AGENT_SNAPSHOT, None)

    def events(self) -> list[AgentEvent]:
        """Every event so far."""
        return [decode(AgentEvent, data) for data in self.store.events.get(AGENT_EVENTS.name, [])]

    def event_types(self) -> list[str]:
        """Types of every event so far."""
        return [event.type for event in self.events()]
