"""Runners with one fault each. The suite must find every one, and say which rule it breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from dex_agents import (
    AgentEventWriter,
    AgentSessionFlow,
    AgentToolCall,
    AgentToolCallStatus,
    AgentTurnContext,
    AgentTurnOutcome,
    AgentUsage,
    DeferredToolExecution,
    DeferredToolOutcome,
    FrameworkMessage,
    ToolCallsRequested,
    ToolExecutionError,
    ToolExecutionResult,
    TurnCompleted,
    create_agent_session_flow,
)
from dex_agents_conformance import ConversationScript
from dex_agents_stepwise import StepwiseAgentRunner
from packages.stepwise.tests.conformance_adapter import Adapter

__all__ = ["BROKEN_RUNNERS", "BrokenRunner", "adapter_with"]


ChangeCalls: TypeAlias = Callable[[tuple[AgentToolCall, ...]], tuple[AgentToolCall, ...]]


def _with_calls(
    turn: AgentTurnContext, change: Callable[[tuple[AgentToolCall, ...]], tuple[AgentToolCall, ...]]
) -> Any:
    return replace(turn, tool_calls=change(turn.tool_calls))


def _changed_output(
    outcome: AgentTurnOutcome, change: Callable[[FrameworkMessage], FrameworkMessage]
) -> AgentTurnOutcome:
    messages = tuple(change(message) if message.role == "assistant" else message for message in outcome.new_messages)
    return replace(outcome, new_messages=messages)


def _changed_item(
    message: FrameworkMessage, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> FrameworkMessage:
    """The message with other parts in its provider's item."""
    stored = msgspec.json.decode(message.framework_item)
    if stored.get("item") is None:
        return message
    stored["item"] = msgspec.json.encode(change(msgspec.json.decode(stored["item"]))).decode()
    return msgspec.structs.replace(message, framework_item=msgspec.json.encode(stored).decode())


class DropsAResult(StepwiseAgentRunner):
    """Forgets the last result of a parallel batch."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        batch = len(turn.previous_step_tool_calls) > 1
        return await super().run_model_step(_with_calls(turn, lambda calls: calls[:-1] if batch else calls))


class ReordersResults(StepwiseAgentRunner):
    """Sends results in the order in which they came in: the last call's first."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        last = len(turn.tool_calls)
        return await super().run_model_step(
            _with_calls(
                turn,
                lambda calls: tuple(
                    msgspec.structs.replace(call, deferral_order=last - call.deferral_order) for call in calls
                ),
            )
        )


class CallsTheModelTwice(StepwiseAgentRunner):
    """Asks again to be sure, once in a turn of text alone."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        if isinstance(outcome, TurnCompleted) and not turn.tool_calls:
            return await super().run_model_step(turn)
        return outcome


class RepeatsAFailedModelCall(StepwiseAgentRunner):
    """Tries again by itself when the model breaks."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        try:
            return await super().run_model_step(turn)
        except ConnectionError:
            return await super().run_model_step(turn)


class SwallowsModelErrors(StepwiseAgentRunner):
    """Makes an answer of a broken model."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        try:
            return await super().run_model_step(turn)
        except ConnectionError:
            return TurnCompleted(new_messages=())


class CachesMessagesByTurn(StepwiseAgentRunner):
    """Remembers what a turn began with, and forgets that turns of other sessions have the same ID."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._first_messages: dict[str, Any] = {}

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        first = self._first_messages.setdefault(turn.turn_id, turn.messages[0])
        return await super().run_model_step(replace(turn, messages=(first, *turn.messages[1:])))


class KeepsHistoryInMemory(StepwiseAgentRunner):
    """Knows only what this process has seen."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turns: set[tuple[str, str]] = set()

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        self._turns.add((turn.flow_id, turn.turn_id))
        seen = tuple(message for message in turn.messages if (turn.flow_id, message.turn_id) in self._turns)
        return await super().run_model_step(replace(turn, messages=seen))


class InventsCallIds(StepwiseAgentRunner):
    """Sends calls back to the provider under IDs of its own."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        def renamed(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [
                {**part, "tool_call_id": f"fc_{part['tool_call_id']}"} if part["type"] == "tool_call" else part
                for part in parts
            ]

        outcome = await super().run_model_step(turn)
        return _changed_output(outcome, lambda message: _changed_item(message, renamed))


class ImpureUserMessage(StepwiseAgentRunner):
    """Numbers the user's messages."""

    _count = 0

    def build_user_message(self, text: str) -> FrameworkMessage:
        message = super().build_user_message(text)
        ImpureUserMessage._count += 1
        stored = {**msgspec.json.decode(message.framework_item), "number": ImpureUserMessage._count}
        return msgspec.structs.replace(message, framework_item=msgspec.json.encode(stored).decode())


class StripsUserText(StepwiseAgentRunner):
    """Tidies what the user wrote."""

    def build_user_message(self, text: str) -> FrameworkMessage:
        return super().build_user_message(" ".join(text.split()))


class SwallowsRejectionText(StepwiseAgentRunner):
    """Does not pass on why the user said no."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        def silent(calls: tuple[AgentToolCall, ...]) -> tuple[AgentToolCall, ...]:
            return tuple(msgspec.structs.replace(call, rejection_message=None) for call in calls)

        return await super().run_model_step(_with_calls(turn, silent))


class LosesReasoning(StepwiseAgentRunner):
    """Does not store the provider's reasoning items."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        def without(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [part for part in parts if part["type"] != "reasoning"]

        outcome = await super().run_model_step(turn)
        return _changed_output(outcome, lambda message: _changed_item(message, without))


class MovesReasoningToTheFront(StepwiseAgentRunner):
    """Sorts a reply: reasoning, text, calls."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        order = ["reasoning", "text", "tool_call"]

        def is_sorted(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return sorted(parts, key=lambda part: order.index(part["type"]))

        outcome = await super().run_model_step(turn)
        return _changed_output(outcome, lambda message: _changed_item(message, is_sorted))


class RewritesReasoning(StepwiseAgentRunner):
    """Trims the text of a reasoning item, and keeps its signature."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        def trimmed(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**part, "text": part["text"][:3]} if part["type"] == "reasoning" else part for part in parts]

        outcome = await super().run_model_step(turn)
        return _changed_output(outcome, lambda message: _changed_item(message, trimmed))


class DropsTextBesideCalls(StepwiseAgentRunner):
    """Keeps the calls of a reply alone."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        def calls_alone(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
            has_calls = any(part["type"] == "tool_call" for part in parts)
            return [part for part in parts if part["type"] != "text"] if has_calls else parts

        outcome = await super().run_model_step(turn)
        return _changed_output(outcome, lambda message: _changed_item(message, calls_alone))


class RepeatsBrokenTools(StepwiseAgentRunner):
    """Runs a tool again by itself when it breaks."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except ConnectionError:
            return await super().execute_deferred_tool_call(call)


class RepeatsFailedTools(StepwiseAgentRunner):
    """Runs a tool again by itself when it fails for the model."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except ToolExecutionError:
            return await super().execute_deferred_tool_call(call)


class MakesResultsOfErrors(StepwiseAgentRunner):
    """Tells the model that the tool broke, as if that were its result."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except ConnectionError as error:
            return ToolExecutionResult(output=f"error: {error}")


class MakesResultsOfFailures(StepwiseAgentRunner):
    """Records a failure for the model as a success."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except ToolExecutionError as failure:
            return ToolExecutionResult(output=str(failure))


class NewKeyForEveryAttempt(StepwiseAgentRunner):
    """Gives each attempt an idempotency key of its own."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        key = f"{call.idempotency_key}/{call.attempt}"
        return await super().execute_deferred_tool_call(replace(call, idempotency_key=key))


class KeyOfToolAndArguments(StepwiseAgentRunner):
    """Makes the idempotency key of what is called, so that two equal calls are one."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        key = f"{call.flow_id}/{call.tool_call.tool_name}/{call.tool_call.arguments_to_run}"
        return await super().execute_deferred_tool_call(replace(call, idempotency_key=key))


class HidesUnknownOutcomes(StepwiseAgentRunner):
    """Tells the model that a call failed which may have taken effect."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        def as_failures(calls: tuple[AgentToolCall, ...]) -> tuple[AgentToolCall, ...]:
            return tuple(
                msgspec.structs.replace(call, status=AgentToolCallStatus.FAILED, error="the tool failed")
                if call.status is AgentToolCallStatus.OUTCOME_UNKNOWN
                else call
                for call in calls
            )

        return await super().run_model_step(_with_calls(turn, as_failures))


class HidesCancellations(StepwiseAgentRunner):
    """Gives a cancelled call an empty result."""

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        def empty(calls: tuple[AgentToolCall, ...]) -> tuple[AgentToolCall, ...]:
            return tuple(
                msgspec.structs.replace(call, status=AgentToolCallStatus.SUCCEEDED, output="")
                if call.cancellation_reason is not None
                else call
                for call in calls
            )

        return super().build_unfinished_turn_messages(_with_calls(turn, empty))


class ForgetsUnfinishedTurns(StepwiseAgentRunner):
    """Leaves the calls of a stopped turn without results."""

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        return ()


class CountsUsageTwice(StepwiseAgentRunner):
    """Adds the usage of the reply to that of its stream."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        if outcome.usage is None:
            return outcome
        doubled = msgspec.structs.replace(
            outcome.usage,
            input_tokens=2 * outcome.usage.input_tokens,
            output_tokens=2 * outcome.usage.output_tokens,
            total_tokens=2 * outcome.usage.total_tokens,
        )
        return replace(outcome, usage=doubled)


class DropsUnknownUsage(StepwiseAgentRunner):
    """Counts no call when the model reports no tokens."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        return replace(outcome, usage=AgentUsage()) if outcome.usage is None else outcome


class _Events:
    """An event writer that changes what it passes on."""

    def __init__(self, events: AgentEventWriter) -> None:
        self._events = events

    def write_text_delta(self, text: str) -> None:
        self._events.write_text_delta(text)

    def write_reasoning_delta(self, text: str) -> None:
        self._events.write_reasoning_delta(text)

    def write_event(self, type: str, payload: Mapping[str, Any]) -> None:
        self._events.write_event(type, payload)


class _LastDeltaTwice(_Events):
    def write_text_delta(self, text: str) -> None:
        self._events.write_text_delta(text)
        if text.endswith((".", " ")):
            self._events.write_text_delta(text)


class RepeatsDeltas(StepwiseAgentRunner):
    """Sends some pieces of text twice."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await super().run_model_step(replace(turn, events=_LastDeltaTwice(turn.events)))


class IgnoresFrameworkApprovals(StepwiseAgentRunner):
    """Runs what its framework would ask about."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        if not isinstance(outcome, ToolCallsRequested):
            return outcome
        free = tuple(
            call
            if call.tool_name in turn.tool_policies
            else msgspec.structs.replace(call, policy=msgspec.structs.replace(call.policy, requires_approval=False))
            for call in outcome.tool_calls
        )
        return replace(outcome, tool_calls=free)


class RunsAnEmptyCall(StepwiseAgentRunner):
    """Runs a tool with no arguments when the model's are broken."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        outcome = await super().run_model_step(turn)
        if not isinstance(outcome, ToolCallsRequested):
            return outcome
        repaired = []
        for call in outcome.tool_calls:
            try:
                is_object = isinstance(msgspec.json.decode(call.arguments or "{}"), dict)
            except msgspec.DecodeError:
                is_object = False
            repaired.append(call if is_object else msgspec.structs.replace(call, arguments="{}"))
        return replace(outcome, tool_calls=tuple(repaired))


@dataclass(frozen=True)
class BrokenRunner:
    """A faulty runner and what must find it.

    Attributes:
        runner: The runner.
        case: The case that is meant for it.
        rule: What its failure names.
        untouched: Cases that the fault does not touch.
    """

    runner: type[StepwiseAgentRunner]
    case: str
    rule: str
    untouched: tuple[str, ...] = (
        "a_turn_completes_with_the_models_text",
        "a_tool_result_reaches_the_model",
        "an_approved_call_runs_once",
    )


BROKEN_RUNNERS = (
    BrokenRunner(DropsAResult, "F35_results_reach_the_model_in_call_order", "every-result-reaches-the-model"),
    BrokenRunner(ReordersResults, "F35_results_reach_the_model_in_call_order", "in-call-order"),
    BrokenRunner(CallsTheModelTwice, "each_turn_makes_one_model_call", "one-model-call-per-model-step"),
    BrokenRunner(RepeatsAFailedModelCall, "F33_a_failed_model_call_is_repeated_by_the_session", "one-model-call"),
    BrokenRunner(SwallowsModelErrors, "F33_a_model_that_stays_down_fails_the_turn", "failed"),
    BrokenRunner(CachesMessagesByTurn, "F18_sessions_on_one_runner_do_not_mix", "sessions-do-not-mix"),
    BrokenRunner(
        KeepsHistoryInMemory, "a_new_runner_goes_on_where_the_old_one_stopped", "runners-keep-no-session-state"
    ),
    BrokenRunner(
        InventsCallIds,
        "tool_calls_stay_in_the_history",
        "tool-call-ids-are-the-providers",
        untouched=("a_turn_completes_with_the_models_text", "later_turns_see_earlier_ones"),
    ),
    BrokenRunner(ImpureUserMessage, "user_messages_are_pure", "build_user_message-is-pure"),
    BrokenRunner(StripsUserText, "user_text_arrives_unchanged[newlines]", "model-call-was-expected"),
    BrokenRunner(
        SwallowsRejectionText,
        "a_rejection_reaches_the_model_in_the_persons_words",
        "rejection-text-reaches-the-model",
    ),
    BrokenRunner(LosesReasoning, "F02_reasoning_comes_back_in_later_turns", "reasoning-is-byte-equal"),
    BrokenRunner(MovesReasoningToTheFront, "F02_reasoning_comes_back_in_its_place", "reasoning-stands-where-it-stood"),
    BrokenRunner(RewritesReasoning, "F02_reasoning_comes_back_in_later_turns", "reasoning-is-byte-equal"),
    BrokenRunner(DropsTextBesideCalls, "text_beside_calls_is_kept", "model-text"),
    BrokenRunner(
        RepeatsBrokenTools, "F21_a_broken_write_is_never_repeated[unclassified]", "non-idempotent-effects-happen-once"
    ),
    BrokenRunner(
        RepeatsFailedTools,
        "a_failure_for_the_model_is_recorded_and_not_repeated[read]",
        "a-failure-for-the-model-is-final",
    ),
    BrokenRunner(
        MakesResultsOfErrors, "F21_a_broken_write_is_never_repeated[unclassified]", "outcome-unknown-is-recorded"
    ),
    BrokenRunner(
        MakesResultsOfFailures, "a_failure_for_the_model_is_recorded_and_not_repeated[read]", "failure-is-recorded"
    ),
    BrokenRunner(
        NewKeyForEveryAttempt,
        "F21_a_broken_run_is_repeated_with_the_same_key[read]",
        "idempotency-key-is-the-same-on-every-attempt",
    ),
    BrokenRunner(KeyOfToolAndArguments, "F21_equal_calls_have_different_keys", "idempotency-keys-differ"),
    BrokenRunner(HidesUnknownOutcomes, "F21_a_broken_write_is_never_repeated[unclassified]", "outcome-unknown-text"),
    BrokenRunner(
        HidesCancellations, "F01_a_cancelled_turns_calls_are_told_to_the_model", "stopped-calls-are-told-to-the-model"
    ),
    BrokenRunner(ForgetsUnfinishedTurns, "F01_a_cancelled_turn_leaves_a_valid_history[tool_runs]", "one-result"),
    BrokenRunner(CountsUsageTwice, "F20_tokens_add_up_over_steps_and_turns", "usage-adds-up"),
    BrokenRunner(
        DropsUnknownUsage, "F20_a_model_without_usage_still_counts_its_calls", "unknown-usage-counts-the-call"
    ),
    BrokenRunner(RepeatsDeltas, "F24_text_deltas_add_up_to_the_stored_text", "deltas-add-up-to-the-text"),
    BrokenRunner(
        IgnoresFrameworkApprovals,
        "the_frameworks_own_approval_becomes_the_sessions",
        "framework-approval-becomes-the-sessions",
    ),
)


def adapter_with(runner: type[StepwiseAgentRunner]) -> type[Adapter]:
    """The Stepwise adapter with another runner."""

    def make_flow(self: Adapter, script: ConversationScript) -> AgentSessionFlow:
        definition = self.make_definition(script)
        return create_agent_session_flow(runner(definition), script.flow_type, **script.flow_options)

    return type(f"{runner.__name__}Adapter", (Adapter,), {"make_flow": make_flow})
