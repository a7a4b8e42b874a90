"""Adapters with one fault each that shows only when a process dies or another build takes over.

Worker processes import them, so each is a class of this module with a `make_flow` of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from conformance.tests.broken_runners import HidesUnknownOutcomes, KeepsHistoryInMemory, NewKeyForEveryAttempt
from dex_agents import (
    AgentSessionFlow,
    AgentToolCallStatus,
    AgentTurnContext,
    AgentTurnOutcome,
    DeferredToolExecution,
    DeferredToolOutcome,
    ToolEffect,
    ToolExecutionError,
    ToolExecutionResult,
    create_agent_session_flow,
)
from dex_agents_conformance import ConversationScript
from dex_agents_stepwise import StepwiseAgentRunner
from packages.stepwise.tests.conformance_adapter import Adapter

__all__ = ["BROKEN_CRASH_ADAPTERS", "BrokenCrashAdapter"]


class _RepeatsAfterCrash(StepwiseAgentRunner):
    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        if call.attempt > 1:
            await super().execute_deferred_tool_call(call)
        return await super().execute_deferred_tool_call(call)


class _RemembersResults(StepwiseAgentRunner):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._results: set[str] = set()

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        outcome = await super().execute_deferred_tool_call(call)
        self._results.add(call.tool_call.tool_call_id)
        return outcome

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        calls = tuple(
            msgspec.structs.replace(call, output="")
            if call.status is AgentToolCallStatus.SUCCEEDED and call.tool_call_id not in self._results
            else call
            for call in turn.tool_calls
        )
        return await super().run_model_step(replace(turn, tool_calls=calls))


class _AsksTwiceAfterCrash(StepwiseAgentRunner):
    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        if turn.attempt > 1:
            await super().run_model_step(turn)
        return await super().run_model_step(turn)


class _StreamsOnlyTheRest(StepwiseAgentRunner):
    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        if turn.attempt > 1:
            turn = replace(turn, events=_Silent())
        return await super().run_model_step(turn)


class _Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


class _IgnoresUnknownTools(StepwiseAgentRunner):
    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except ToolExecutionError:
            return ToolExecutionResult(output="")


def _flow(
    adapter: Adapter, script: ConversationScript, runner: type[StepwiseAgentRunner] = StepwiseAgentRunner
) -> AgentSessionFlow:
    definition = adapter.make_definition(script)
    return create_agent_session_flow(runner(definition), script.flow_type, **script.flow_options)


class RunsLostWritesAgain(Adapter):
    """Calls every tool repeatable, so that no started marker keeps a write from running again."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, replace(script, tools=[replace(tool, effect=ToolEffect.READ) for tool in script.tools]))


class RepeatsAfterCrash(Adapter):
    """Runs a tool once more than the session asked for when an earlier attempt died."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, _RepeatsAfterCrash)


class KeyOfTheAttempt(Adapter):
    """Gives the attempt behind a crash an idempotency key of its own."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, NewKeyForEveryAttempt)


class RemembersResults(Adapter):
    """Keeps results in memory, so a restarted process has none."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, _RemembersResults)


class RemembersHistory(Adapter):
    """Keeps earlier turns in memory, so a restarted process has none."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, KeepsHistoryInMemory)


class HidesLostWrites(Adapter):
    """Tells the model that a lost write failed."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, HidesUnknownOutcomes)


class AsksTwiceAfterCrash(Adapter):
    """Makes two model calls in the attempt behind a crash."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, _AsksTwiceAfterCrash)


class StreamsNothingAgain(Adapter):
    """Streams nothing in the attempt behind a crash, as if people had what the dead one streamed."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, _StreamsOnlyTheRest)


class IgnoresUnknownTools(Adapter):
    """Makes an empty result of a call that the deployed build cannot run."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, script, _IgnoresUnknownTools)


class ChecksNoDeployedSchema(Adapter):
    """Runs a waiting call by the schema of the build that asked for it."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        return _flow(self, replace(script, tools=[replace(tool, requires_value=False) for tool in script.tools]))


class KeepsInstructions(Adapter):
    """Keeps the instructions with which the session began."""

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        kept = script.directory / "instructions.txt"
        if not kept.exists():
            kept.write_text(script.instructions)
        definition = replace(self.make_definition(script), instructions=kept.read_text())
        return create_agent_session_flow(StepwiseAgentRunner(definition), script.flow_type, **script.flow_options)


@dataclass(frozen=True)
class BrokenCrashAdapter:
    """An adapter, the case meant for it, and the rule that its message names."""

    adapter: type[Adapter]
    case: str
    rule: str


BROKEN_CRASH_ADAPTERS = (
    BrokenCrashAdapter(RunsLostWritesAgain, "crash[single_attempt_tool-after_effect]", "effects-happen-once"),
    BrokenCrashAdapter(RepeatsAfterCrash, "crash[idempotent_write-before_effect]", "effects-happen-once"),
    BrokenCrashAdapter(KeyOfTheAttempt, "crash[idempotent_write-tool_commit]", "the-same-key-on-every-attempt"),
    BrokenCrashAdapter(RemembersResults, "crash[read_tool-last_model_call]", "results-are-not-lost"),
    BrokenCrashAdapter(RemembersHistory, "crash[text_turn-between_turns]", "a-new-process-knows-the-conversation"),
    BrokenCrashAdapter(HidesLostWrites, "crash[approved-after_effect]", "unknown-outcome-is-told"),
    BrokenCrashAdapter(
        AsksTwiceAfterCrash, "crash[text_turn-first_model_commit]", "only-a-model-call-without-commit-is-repeated"
    ),
    BrokenCrashAdapter(
        StreamsNothingAgain, "crash[text_turn-first_model_stream]", "what-a-killed-attempt-streamed-is-replaced"
    ),
    BrokenCrashAdapter(
        IgnoresUnknownTools, "F28_a_tool_is_removed_while_its_approval_waits[newer]", "a-removed-tool-fails"
    ),
    BrokenCrashAdapter(
        ChecksNoDeployedSchema,
        "F28_arguments_no_longer_fit_the_deployed_schema",
        "arguments-are-checked-by-the-deployed-schema",
    ),
    BrokenCrashAdapter(
        KeepsInstructions, "the_deployed_instructions_count_from_the_next_model_call", "instructions-are-sent"
    ),
    BrokenCrashAdapter(
        RepeatsAfterCrash,
        "F12_a_worker_that_dies_in_a_call_leaves_it_to_its_effect[read]",
        "a-lost-mcp-call-is-decided-by-its-effect",
    ),
    BrokenCrashAdapter(
        KeyOfTheAttempt,
        "F12_a_worker_that_dies_in_a_call_leaves_it_to_its_effect[read]",
        "attempts-share-their-key",
    ),
)
