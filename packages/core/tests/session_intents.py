"""What people, the model, tools and time do to a session, and what it has to answer each of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from dex_agents.session.outcomes import (
    ContextSummarized,
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepNeedsCompaction,
    ModelStepOutcome,
    ModelStepRefused,
    ModelStepToolCallsRequested,
    RequestedToolCall,
)
from dex_agents.session.texts import (
    APPROVAL_DEADLINE_PASSED,
)
from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentToolCallRecord,
    CancellationReason,
)
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.values import (
    AgentState,
    AgentUsage,
    FrameworkMessage,
)
from dex_flow.kernel import microseconds

from .session_call_model import CallModel, Phase
from .session_context_model import AttemptModel, ContextModel
from .session_plans_model import PlanModel
from .session_settings_model import SettingsModel
from .session_stored_messages import StoredMessages
from .session_strategies import MAX_CONTINUATIONS, Configuration, Edit

__all__ = ["Decision", "SessionIntents"]


class Decision(NamedTuple):
    """What a person just decided about an interrupt, as its event has to say it."""

    interrupt_id: str
    approved: bool
    answered: bool
    message: str | None
    changes: bool = False


class SessionIntents:
    """Everything the promises are about, and what everybody did about it so far.

    Args:
        configuration: What the session and its runner can do.
        clock: Virtual time, microseconds since the epoch.
    """

    def __init__(self, configuration: Configuration, clock: Callable[[], int]) -> None:
        self.configuration = configuration
        self.reached: Counter[str] = Counter()
        self.commits = 0
        self.queued: list[str] = []
        self.steered: list[str] = []
        self.turn: str | None = None
        self.calls: list[CallModel] = []
        self.unbuilt_turns: set[str] = set()
        self.pending: dict[str, AgentInterrupt] = {}
        window, chunk = configuration.window
        retained = configuration.retained_message_limit if configuration.compacts else None
        self.messages = StoredMessages(window, chunk, retained, self.reached)
        self.plans = PlanModel(configuration)
        self.context = ContextModel(clock)
        self.settings = SettingsModel(configuration, clock)
        self.model_attempts = AttemptModel(clock)
        self.usage = AgentUsage()
        self._clock = clock
        self._turn_count = 0
        self._is_cancelled = False
        self._model_result: str | None = None
        self._failed_turns: dict[str, str] = {}
        self._last_turn: tuple[str, str] | None = None
        self._model_steps = 0
        self._continuations = 0
        self._unfinished: tuple[FrameworkMessage, ...] | None = None
        self._limit_error: str | None = None
        self._turn_messages = 0
        self._requested: deque[RequestedToolCall] = deque()
        self._response: tuple[RequestedToolCall, ...] = ()
        self._expected_messages: list[tuple[str | None, str, str]] = []
        self._interrupts: dict[str, CallModel] = {}
        self._resolved: set[str] = set()
        self._due_interrupts: set[str] = set()
        self._decision: Decision | None = None
        self._records: dict[str, AgentToolCallRecord] = {}
        self._state: AgentState | None = None

    @property
    def control(self) -> CancellationReason | None:
        """Why the active turn has to end at its next boundary."""
        if self.turn is None:
            return None
        return "turn_cancelled" if self._is_cancelled else "steered" if self.steered else None

    def call(self, tool_call_id: str) -> CallModel:
        """The active turn's call with this ID."""
        (found,) = [call for call in self.calls if call.tool_call_id == tool_call_id]
        return found

    def interrupts_so_far(self) -> list[str]:
        """IDs of every interrupt of the session."""
        return list(self._interrupts)

    # People

    def send(self, text: str, plan_mode: bool = False) -> bool:
        is_taken = bool(text.strip()) and self.plans.sends(text, plan_mode)
        if is_taken:
            self.queued.append(text)
        return is_taken

    def execute_plan(self, revision: int) -> bool:
        is_free = self.turn is None and not self.queued and not self.steered
        return self.plans.executes(revision, is_free=is_free)

    def update_settings(self, settings: dict[str, Any] | None, is_valid: bool) -> bool:
        if is_valid:
            assert settings is not None
            self.settings.settings = settings
        return is_valid

    def steer_text(self, text: str) -> bool:
        if not text.strip():
            return False
        if self.turn is None:
            self.queued.append(text)
        else:
            self._steer(text)
        return True

    def steer_queued(self, index: int | None) -> bool:
        if index is None or self.turn is None:
            return False
        self._steer(self.queued.pop(index))
        return True

    def _steer(self, text: str) -> None:
        self.steered.append(text)
        self._control_calls()

    def _control_calls(self) -> None:
        assert self.control is not None
        for call in self.calls:
            if call.is_open:
                self.reached[f"{self.control}: {call.phase.value}"] += 1
                call.control(self.control)

    def delete(self, index: int | None) -> bool:
        if index is not None:
            del self.queued[index]
        return index is not None

    def cancel(self, turn_id: str | None) -> bool:
        if self.turn is None or turn_id not in (None, self.turn):
            return False
        if not self._is_cancelled:
            self._is_cancelled = True
            self._control_calls()
        return True

    def resolve(self, interrupt_id: str, approved: bool, message: str | None, edit: Edit | None = None) -> bool:
        interrupt = self._open_interrupt(interrupt_id)
        if interrupt is None or (interrupt.kind == "question" and approved):
            return False
        call, is_change = self._interrupts[interrupt_id], False
        if edit is not None:
            if not approved or not edit.can_be_read or (call.has_schema and not edit.fits_schema):
                return False
            is_change = edit.changes(call.arguments)
            call.executed_arguments = edit.arguments if is_change else None
            self.reached["arguments changed"] += is_change
        words = message if message is not None and message.strip() and not approved else None
        self._decision = Decision(interrupt_id, approved, False, words, is_change)
        if interrupt.kind == "approval":
            call.decided(approved, words)
        else:
            call.question_ended("declined", words, self._clock())
        return True

    def answer(self, interrupt_id: str, answer: str) -> bool:
        interrupt = self._open_interrupt(interrupt_id)
        if interrupt is None or interrupt.kind != "question" or not answer.strip():
            return False
        if interrupt.choices and not interrupt.allows_free_text and answer not in interrupt.choices:
            return False
        self._decision = Decision(interrupt_id, True, True, None)
        self._interrupts[interrupt_id].question_ended("answered", answer, self._clock())
        return True

    def _open_interrupt(self, interrupt_id: str) -> AgentInterrupt | None:
        interrupt = self.pending.get(interrupt_id)
        if interrupt is None or (interrupt.deadline is not None and microseconds(interrupt.deadline) <= self._clock()):
            return None
        return interrupt

    # Time

    def time_passes(self) -> None:
        """The clock moved, and what is due fires."""
        for call in self.calls:
            if call.ends_at is not None and call.ends_at <= self._clock():
                self.due(call)

    def due(self, call: CallModel) -> None:
        """The call's time or its interrupt's deadline has come."""
        waits = (Phase.TIMER, Phase.APPROVAL, Phase.QUESTION, Phase.TASK_QUESTION)
        if call.phase not in waits:
            return
        call.ends_at = None
        self.reached[f"due: {call.phase.value}"] += 1
        self._due_interrupts.update(key for key in self.pending if self._interrupts[key] is call)
        if call.phase is Phase.TIMER:
            call.end(Status.SUCCEEDED)
        elif call.phase is Phase.APPROVAL:
            call.decided(False, APPROVAL_DEADLINE_PASSED)
        else:
            call.question_ended("deadline_passed", None, self._clock())

    # The model and the builder

    def _uses(self, usage: AgentUsage) -> None:
        self.usage = self.usage.add(usage)
        self.settings.used(usage)

    def model_ends(self, outcome: ModelStepOutcome) -> None:
        self._uses(outcome.usage)
        if isinstance(outcome, ModelStepCompleted | ModelStepToolCallsRequested | ModelStepContinued):
            for message in outcome.new_messages:
                self._expect_message(message.role, message.text)
        match outcome:
            case ModelStepCompleted():
                self._model_result = "turn_completed"
            case ModelStepRefused():
                self._model_result = "turn_failed"
            case ModelStepNeedsCompaction():
                self.context.wanted(outcome.through_sequence)
            case ModelStepToolCallsRequested():
                self._model_steps += 1
                self._response = outcome.tool_calls
                self._requested.extend(outcome.tool_calls)
                if self.settings.refusal is None:
                    self.plans.model_asks(outcome.tool_calls)
                else:
                    self._limit_error = f"TurnLimitReachedError: {self.settings.refusal}"
                    self._model_result = "turn_failed"
            case ModelStepContinued():
                self._model_steps += 1
                self._continuations += 1
                if self.control is None and self.settings.refusal is not None:
                    self._limit_error = f"TurnLimitReachedError: {self.settings.refusal}"
                    self._model_result = "turn_failed"
                elif self._continuations > MAX_CONTINUATIONS and self.control is None:
                    self._model_result = "turn_failed"

    def summarized(self, outcome: ContextSummarized) -> None:
        self._uses(outcome.usage)
        self.context.summarized(outcome)
        self.messages.summarized = self.context.last_sequence

    def model_attempt_fails(self, *, may_retry: bool, is_lost: bool) -> None:
        if not self.model_attempts.fails(may_retry=may_retry, is_lost=is_lost):
            self._model_result = "turn_failed"

    def builder_ends(self, messages: tuple[FrameworkMessage, ...] | None) -> None:
        """The unfinished turn's messages are built; None when the builder raised."""
        self._unfinished = messages

    def _expect_message(self, role: str, text: str) -> None:
        self._expected_messages.append((self.turn, role, text))
        self._turn_messages += 1
