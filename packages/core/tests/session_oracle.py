"""What a session promises, checked after every commit against what people, the model and tools did.

The caller says what it is about to do, before it does it; the oracle answers what the session has to answer, and then
checks each commit: its events in order, what it stored, and what it let run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dex_agents.session.event_values import AgentEvent, decode_event_payload
from dex_agents.session.plan_values import AgentPlan, ContextSummary
from dex_agents.session.rpc_values import AgentSnapshot
from dex_agents.session.texts import (
    APPROVAL_DEADLINE_PASSED,
    NOTE_PREFIX,
    QUESTION_DEADLINE_PASSED,
    TURN_CANCELLED_NOTE_HEADER,
    TURN_FAILURE_NOTE_FOOTER,
    TURN_FAILURE_NOTE_HEADER,
    TURN_STEERED_NOTE_HEADER,
)
from dex_agents.session.tool_values import (
    AgentInterrupt,
    AgentToolCallRecord,
)
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.transition_rules import FINAL_STATUSES
from dex_agents.session.values import (
    AgentState,
    AgentStatus,
    AgentUsage,
    AgentUserMessage,
)
from dex_flow.codec import decode
from dex_flow.kernel import Changes, decode_header, microseconds
from dex_flow.testing import MemoryStore

from .session_call_model import ATTEMPTS, LATER_STATUSES, Phase
from .session_intents import SessionIntents
from .session_requested_calls import requested_call
from .session_strategies import DEADLINE_SECONDS, MAX_CONTINUATIONS

__all__ = ["SessionOracle"]

_CONTROL_STEPS = {"RunModel", "CompactContext", "ResumeTurn", "ApplyTurnControl", "RecordTurnFailure"}
_CONTROL_STEPS |= {"ApplyTurnControlNote", "RecordTurnFailureNote"}
_HEADERS = {
    "turn_failed": TURN_FAILURE_NOTE_HEADER,
    "turn_steered": TURN_STEERED_NOTE_HEADER,
    "turn_cancelled": TURN_CANCELLED_NOTE_HEADER,
}


class SessionOracle(SessionIntents):
    """Checks each commit against what everybody did; knows nothing of how the session keeps its promises."""

    # What one commit did

    def observe(self, changes: Changes, store: MemoryStore) -> None:
        """Check one commit."""
        self.commits += 1
        for data in changes.events.get("AgentEvents", ()):
            self._event(decode(AgentEvent, data))
        written: dict[str, dict[str, bytes | None]] = {}
        for (name, key), value in changes.attributes.items():
            written.setdefault(name, {})[key] = value
        self._check_messages(written)
        self._check_records(written.get("AgentToolCalls", {}))
        self._check_state(written, store)
        self._check_interrupts(written)
        self._check_channels(store)
        for claim in changes.claimed:
            self._claimed(claim.step_type, claim.attempt, decode(Any, claim.input))
        self._check_steps(store)

    def _check_messages(self, written: dict[str, dict[str, bytes | None]]) -> None:
        messages = self.messages.observe(written)
        stored = [(message.turn_id, message.role, message.text) for message in messages]
        assert stored == self._expected_messages, f"stored {stored}, expected {self._expected_messages}"
        self._expected_messages.clear()
        own_ids = {call.tool_call_id for call in self.calls}
        for message in messages:
            named = [call.tool_call_id for call in message.tool_calls]
            assert len(set(named)) == len(named), "one message asks for a call twice"
            if message.turn_id == self.turn:
                assert set(named) <= own_ids, "a message names a call by an ID that is not the session's"

    def _check_records(self, written: dict[str, bytes | None]) -> None:
        for key, data in written.items():
            if data is None:
                self._records.pop(key, None)
                continue
            record, before = decode(AgentToolCallRecord, data), self._records.get(key)
            if before is not None:
                assert before.status not in FINAL_STATUSES or record == before, "a final record changed"
                assert record.status in LATER_STATUSES[before.status], f"{before.status} became {record.status}"
            self._records[key] = record
        assert set(self._records) == {call.tool_call_id for call in self.calls}
        for order, call in enumerate(self.calls):
            assert call.phase is not Phase.ENDING, f"{call} did not become final"
            record = self._records[call.tool_call_id]
            assert record.deferral_order == order
            call.check(record)

    def _check_state(self, written: dict[str, dict[str, bytes | None]], store: MemoryStore) -> None:
        data = written.get("AgentState", {}).get("")
        if data is not None:
            self._state = decode(AgentState, data)
        usage = written.get("AgentUsage", {}).get("")
        if usage is not None:
            assert decode(AgentUsage, usage) == self.usage
        state = self._state
        assert state is not None
        self._check_parts(state, store)
        expected = AgentStatus.WAITING_FOR_USER_MESSAGE
        if self.turn is not None:
            is_calling = any(call.phase is not Phase.FINAL for call in self.calls)
            expected = AgentStatus.RUNNING_TOOLS if is_calling else AgentStatus.RUNNING_MODEL
            if self.context.through is not None:
                expected = AgentStatus.COMPACTING_CONTEXT
        assert (state.status, state.active_turn_id, state.turn_count) == (expected, self.turn, self._turn_count)
        assert state.last_message_sequence == self.messages.last_sequence
        self._check_last_turn_error(state)
        counts = (state.turn_model_step_count, state.turn_continuation_count, state.turn_tool_call_count)
        assert counts == (self._model_steps, self._continuations, len(self.calls))
        assert (("FrameworkRunState", "") in store.attributes) == (self._model_steps > 0)
        assert (("TurnCancellationRequest", "") in store.attributes) == self._is_cancelled

    def _check_parts(self, state: AgentState, store: MemoryStore) -> None:
        plan, summary = (store.attributes.get((name, "")) for name in ("AgentPlan", "ContextSummary"))
        self.plans.check(None if plan is None else decode(AgentPlan, plan))
        self.context.check(None if summary is None else decode(ContextSummary, summary), state.turn_compaction_error)
        assert state.interaction_mode == self.plans.mode
        reached = None if self.settings.reached is None else self.settings.reached[0]
        used = (state.turn_model_calls, state.turn_total_tokens, state.turn_limit_reached)
        assert used == (self.settings.model_calls, self.settings.total_tokens, reached)
        assert ("PendingPlanExecution", "") not in store.attributes

    def _check_last_turn_error(self, state: AgentState) -> None:
        error = state.last_turn_error
        is_failing = self._model_result == "turn_failed" or self.model_attempts.is_too_late()
        if error is not None and not (is_failing and error.turn_id == self.turn):
            assert f"{error.type}: {error.message}" == self._failed_turns.get(error.turn_id)
        if self._last_turn is not None and self.turn is None:
            turn, ending = self._last_turn
            assert ending != "turn_completed" or error is None
            assert ending != "turn_failed" or (error is not None and error.turn_id == turn)

    def _check_interrupts(self, written: dict[str, dict[str, bytes | None]]) -> None:
        data = written.get("PendingInterrupts", {}).get("")
        if data is not None:
            interrupts = decode(tuple[AgentInterrupt, ...], data)
            self.pending = {interrupt.interrupt_id: interrupt for interrupt in interrupts}
            assert len(self.pending) == len(interrupts)
        assert set(self.pending) == self._interrupts.keys() - self._resolved
        waiting = [
            call.tool_call_id
            for call in self.calls
            if call.phase in (Phase.APPROVAL, Phase.QUESTION, Phase.TASK_QUESTION)
        ]
        assert sorted(self._interrupts[key].tool_call_id for key in self.pending) == sorted(waiting)
        for key, interrupt in self.pending.items():
            call = self._interrupts[key]
            assert interrupt.kind == ("approval" if call.phase is Phase.APPROVAL else "question")
            assert (interrupt.tool_call_id, interrupt.tool_name) == (call.tool_call_id, call.tool_name)

    def _check_channels(self, store: MemoryStore) -> None:
        for name, texts in (("QueuedUserMessages", self.queued), ("SteeredUserMessages", self.steered)):
            stored = [decode(AgentUserMessage, data).text for _, data in store.messages(name, "", None)]
            assert stored == texts, f"{name} has {stored}, expected {texts}"
        kept = {name for (name, _), messages in store.channels.items() if messages}
        assert not kept & {"ToolCallCancellations", "InterruptResolutions", "PlanExecutions"}
        if self.control is None and not self.steered:
            assert "TurnControlRequests" not in kept
        state = self._state
        assert state is not None
        results = 0
        if state.status is AgentStatus.RUNNING_TOOLS or (self._limit_error is not None and self.calls):
            current = [r for r in self._records.values() if r.model_step_number == state.turn_model_step_count]
            results = sum(record.status in FINAL_STATUSES for record in current)
        assert store.message_count("ToolCallResults", "") == results

    def _check_steps(self, store: MemoryStore) -> None:
        assert store.header_data is not None
        steps = decode_header(store.header_data).steps.values()
        assert all(step.failures == 0 for step in steps), f"pure code raised: {[step.error for step in steps]}"
        types = sorted(step.type for step in steps)
        if self.turn is None:
            # A steer that the ended turn did not take waits for a worker only when a worker has to be asked.
            assert types == (["ApplyTurnControl"] if self.steered else ["AwaitUserMessage"])
            assert not self.steered or self.configuration.builds_unfinished_turns
            return
        open_calls = sum(call.phase is not Phase.FINAL for call in self.calls)
        assert len(types) == open_calls + 1, f"{types} for {open_calls} open calls"
        assert sum(step_type in _CONTROL_STEPS for step_type in types) == 1
        assert ("ResumeTurn" in types) == (open_calls > 0)

    def _claimed(self, step_type: str, attempt: int, input: Any) -> None:
        self.reached[f"{step_type} claimed"] += 1
        match step_type:
            case "RunModel":
                assert self.control is None, "a steered or cancelled turn makes a further model call"
                assert all(call.phase is Phase.FINAL for call in self.calls)
                assert self._model_result is None
                assert self.context.through is None, "the model is called while its context is compacted"
                self.settings.model_call_begins()
                self.model_attempts.claimed(attempt)
            case "CompactContext":
                assert self.control is None, "a steered or cancelled turn is compacted"
                self.context.claimed(attempt, input["through_sequence"])
            case "PollToolTask":
                self.call(input).poll_begins(attempt, self._clock())
            case "CancelToolTask":
                call = self.call(input)
                call.cancel_attempts += 1
                assert call.phase is Phase.ABANDONED
                assert call.cancel_attempts <= ATTEMPTS
            case "ApplyTurnControl":
                assert self.control is not None
                self.model_attempts.is_retried = self.context.attempts.is_retried = False
            case "RecordTurnFailure":
                if self.model_attempts.is_too_late():
                    self._model_result = "turn_failed"
                assert self._model_result == "turn_failed"
                assert not self._is_cancelled

    # What one event says

    def _event(self, event: AgentEvent) -> None:
        self.reached[event.type] += 1
        payload = decode_event_payload(event)
        if event.type == "turn_started":
            self._turn_started(event.turn_id, payload["sequence"])
            return
        assert event.turn_id == self.turn, f"{event.type} of {event.turn_id} in {self.turn}"
        match event.type:
            case "turn_completed" | "turn_failed" | "turn_steered" | "turn_cancelled":
                self._turn_ended(event.type, payload)
            case "tool_call_deferred":
                self._deferred(payload)
            case "tool_call_started":
                assert self.control is None, f"{payload} started in a {self.control} turn"
                self.call(payload["tool_call_id"]).start(event.attempt, self._clock())
            case "tool_call_finished":
                call = self.call(payload["tool_call_id"])
                status = Status(payload["status"])
                call.finished(status, self.control, self._clock(), stops_tasks=self.configuration.cancels_tasks)
                self.reached[f"{status.value}"] += 1
            case "plan_updated" | "plan_execution_started":
                self.plans.event(event.type, payload)
                self.reached[f"{event.type} {payload.get('status')}"] += 1
            case "compaction_started" | "compaction_finished":
                self.context.event(event.type, event.attempt, payload)
            case "turn_limit_reached" if payload["limit"] != "max_model_step_continuations":
                self.settings.limit_event(payload)
            case "turn_limit_reached":
                assert payload["value"] == MAX_CONTINUATIONS < self._continuations
            case "interrupt_raised":
                self._raised(payload)
            case "interrupt_resolved":
                self._interrupt_resolved(payload)
            case "timer_started":
                call = self.call(payload["tool_call_id"])
                assert call.phase is Phase.TIMER or self.control is not None
                call.ends_at = _instant(payload["wait_until"])

    def _turn_started(self, turn_id: str, sequence: int) -> None:
        assert self.turn is None, "two turns are active"
        self._turn_count += 1
        self.turn = f"turn-{self._turn_count}"
        assert turn_id == self.turn
        self.calls, self._model_result, self._unfinished, self._limit_error = [], None, None, None
        self.model_attempts.is_retried = False
        self._model_steps, self._continuations = 0, 0
        self.settings.turn_starts()
        assert sequence == self.messages.last_sequence + len(self._expected_messages) + 1
        if self.steered:
            texts, self.steered = self.steered, []
        else:
            texts, self.queued = self.queued[:1], self.queued[1:]
        for text in self.plans.turn_starts(texts):
            self._expect_message("user", text)
        self._turn_messages = 0

    def _turn_ended(self, ending: str, payload: dict[str, Any]) -> None:
        if self._is_cancelled:
            allowed = "turn_cancelled"
        elif self._model_result is not None:
            allowed = self._model_result
        elif self.model_attempts.is_too_late():
            allowed = "turn_failed"
        else:
            assert self.control is not None
            allowed = "turn_steered"
        assert ending == allowed, f"{self.turn} ended with {ending}, not {allowed}"
        assert all(call.phase is Phase.FINAL for call in self.calls), "a turn ended before its calls"
        if ending != "turn_completed":
            self._expect_end_of_transcript(ending)
        assert self.turn is not None
        self._last_turn = (self.turn, ending)
        if ending == "turn_failed":
            self._failed_turns[self.turn] = payload["error"]
            assert self._limit_error in (None, payload["error"])
        else:
            assert payload["message_count"] == self._turn_messages
        if ending == "turn_steered":
            assert payload["steered_message_count"] == len(self.steered) > 0
        self.turn, self.calls, self._is_cancelled, self._limit_error = None, [], False, None
        self.plans.turn_ends()
        self.context.turn_ends()
        self.settings.turn_ends()
        self._model_steps, self._continuations = 0, 0

    def _expect_end_of_transcript(self, ending: str) -> None:
        for message in self._unfinished or ():
            self._expect_message(message.role, message.text)
        if self._unfinished is None and self.configuration.builds_unfinished_turns:
            assert self.turn is not None
            self.unbuilt_turns.add(self.turn)
        listed = self.calls
        if ending != "turn_failed":
            listed = [call for call in self.calls if call.status is not Status.REJECTED]
            if self._unfinished is not None:
                return
        if listed:
            lines = [f"- {call.tool_name} {call.arguments_to_run}: {call.status}" for call in listed]
            note = "\n".join([_HEADERS[ending], *lines, TURN_FAILURE_NOTE_FOOTER])
            assert note.startswith(NOTE_PREFIX)
            self._expect_message("user", note)

    def _deferred(self, payload: dict[str, Any]) -> None:
        wanted = self._requested.popleft()
        assert self.turn is not None
        call = requested_call(
            wanted,
            self._response,
            self.configuration,
            turn_id=self.turn,
            tool_call_id=payload["tool_call_id"],
            mode=self.plans.mode,
            refusal=self.settings.refusal,
        )
        assert call.tool_call_id not in {other.tool_call_id for other in self.calls}, "two calls have one ID"
        assert (payload["tool_name"], payload["effect"]) == (wanted.tool_name, call.effect)
        assert payload["requires_approval"] == call.requires_approval
        self.calls.append(call)
        if self.control is not None and call.is_open:
            call.control(self.control)

    def _raised(self, payload: dict[str, Any]) -> None:
        key = payload["interrupt_id"]
        assert key not in self._interrupts, f"{key} was raised twice"
        call = self.call(payload["tool_call_id"])
        self._interrupts[key] = call
        assert (payload["deadline"] is not None) == self.configuration.has_deadlines
        if payload["deadline"] is not None:
            call.ends_at = _instant(payload["deadline"])
            assert call.ends_at == self._clock() + DEADLINE_SECONDS * 1_000_000

    def _interrupt_resolved(self, payload: dict[str, Any]) -> None:
        key = payload["interrupt_id"]
        assert key in self._interrupts.keys() - self._resolved, f"{key} was resolved twice or never raised"
        self._resolved.add(key)
        said = (payload["approved"], payload["answered"], payload["rejection_message"], payload["cancellation_reason"])
        if self._decision is not None and self._decision.interrupt_id == key:
            _, approved, answered, message, changes = self._decision
            assert payload["arguments_changed"] == changes
            assert said == (approved, answered, message, None)
            self._decision = None
        elif key in self._due_interrupts:
            text = APPROVAL_DEADLINE_PASSED if payload["kind"] == "approval" else QUESTION_DEADLINE_PASSED
            assert said == (False, False, text, None)
        else:
            assert self.control is not None, f"{key} was resolved for no reason: {said}"
            assert said == (False, False, None, self.control)

    # What people see

    def check_snapshot(self, snapshot: AgentSnapshot) -> None:
        """A snapshot shows what the commits stored."""
        assert snapshot.state == self._state
        assert list(snapshot.messages) == self.messages.after(0)
        assert snapshot.session_settings == self.settings.settings
        assert [message.text for message in snapshot.queued_messages] == self.queued
        assert [message.text for message in snapshot.steered_messages] == self.steered
        assert snapshot.queued_message_count == len(self.queued)
        assert snapshot.usage == self.usage
        assert list(snapshot.tool_calls) == [self._records[call.tool_call_id] for call in self.calls]
        assert [interrupt.interrupt_id for interrupt in snapshot.pending_interrupts] == list(self.pending)


def _instant(text: str) -> int:
    return microseconds(datetime.fromisoformat(text))
