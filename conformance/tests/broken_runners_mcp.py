"""Runners with one fault each in the tools of MCP servers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from dex_agents import (
    AgentTurnContext,
    AgentTurnOutcome,
    DeferredToolExecution,
    DeferredToolOutcome,
    ResolvedToolPolicy,
    ToolCallsRequested,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
)
from dex_agents_mcp import McpToolCallInterruptedError
from dex_agents_stepwise import AgentDefinition, StepwiseAgentRunner

from .broken_runners import BrokenRunner

__all__ = ["BROKEN_MCP_RUNNERS"]


class OffersNoMcpTools(StepwiseAgentRunner):
    """Leaves the agent's servers out."""

    def __init__(self, agent: AgentDefinition) -> None:
        super().__init__(replace(agent, tool_sources=()))


class SendsNoKey(StepwiseAgentRunner):
    """Keeps the idempotency key to itself."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        return await super().execute_deferred_tool_call(replace(call, idempotency_key=""))


class SendsOneKey(StepwiseAgentRunner):
    """Sends the session's ID as the key of all its calls."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        return await super().execute_deferred_tool_call(replace(call, idempotency_key=call.flow_id))


class SendsAKeyPerAttempt(StepwiseAgentRunner):
    """Makes each attempt look like a call of its own."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        key = f"{call.idempotency_key}/{call.attempt}"
        return await super().execute_deferred_tool_call(replace(call, idempotency_key=key))


class SendsLostCallsAgain(StepwiseAgentRunner):
    """Repeats a call by itself, as MCP clients do."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except McpToolCallInterruptedError:
            return await super().execute_deferred_tool_call(call)


class ReportsLostCalls(StepwiseAgentRunner):
    """Tells the model that a call failed of which nobody knows what it did."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except McpToolCallInterruptedError as error:
            raise ToolExecutionError(str(error)) from error


class KeepsAnArgument(StepwiseAgentRunner):
    """Takes an argument for something of its own."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        arguments = json.loads(call.tool_call.arguments_to_run)
        arguments.pop("config", None)
        changed = msgspec.structs.replace(call.tool_call, arguments=json.dumps(arguments))
        return await super().execute_deferred_tool_call(replace(call, tool_call=changed))


class MakesResultsOfErrors(StepwiseAgentRunner):
    """Records an error of the tool as its result."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        try:
            return await super().execute_deferred_tool_call(call)
        except ToolExecutionError as error:
            return ToolExecutionResult(output=str(error))


class NeverAsksForApproval(StepwiseAgentRunner):
    """Runs every tool at once."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await _with_approval(super().run_model_step(turn), False)


class AlwaysAsksForApproval(StepwiseAgentRunner):
    """Asks a person about reads too."""

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        return await _with_approval(super().run_model_step(turn), True)


async def _with_approval(step: Any, requires_approval: bool) -> AgentTurnOutcome:
    outcome: AgentTurnOutcome = await step
    if not isinstance(outcome, ToolCallsRequested):
        return outcome
    calls = tuple(
        msgspec.structs.replace(
            call, policy=ResolvedToolPolicy(effect=call.policy.effect, requires_approval=requires_approval)
        )
        for call in outcome.tool_calls
    )
    return replace(outcome, tool_calls=calls)


class AsksWithoutChoices(StepwiseAgentRunner):
    """Asks what the server asks, without what the server lists."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        outcome = await super().execute_deferred_tool_call(call)
        return replace(outcome, choices=()) if isinstance(outcome, ToolInputRequested) else outcome


class ForgetsTheUsersAnswer(StepwiseAgentRunner):
    """Starts a call that asked over without its answers."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        return await super().execute_deferred_tool_call(replace(call, input_answers=()))


class KeepsTheFirstListing(StepwiseAgentRunner):
    """Offers what the servers listed when the first runner was made."""

    _first: ClassVar[dict[Any, Any]] = {}

    def __init__(self, agent: AgentDefinition) -> None:
        sources = tuple(self._first.setdefault(agent.instructions, source) for source in agent.tool_sources)
        super().__init__(replace(agent, tool_sources=sources))


class ForgetsRecordedCalls(StepwiseAgentRunner):
    """Does not say which call it could not run."""

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        raise ToolExecutionError("it did not work")


BROKEN_MCP_RUNNERS = (
    BrokenRunner(OffersNoMcpTools, "an_mcp_tool_is_offered_and_called", "mcp-tools-are-offered"),
    BrokenRunner(
        SendsNoKey,
        "F21_the_server_gets_the_idempotency_key_of_the_call",
        "the-idempotency-key-reaches-the-server",
        untouched=("an_mcp_tool_is_offered_and_called",),
    ),
    BrokenRunner(
        SendsOneKey,
        "F21_the_server_gets_the_idempotency_key_of_the_call",
        "calls-have-keys-of-their-own",
        untouched=("an_mcp_tool_is_offered_and_called",),
    ),
    BrokenRunner(
        SendsAKeyPerAttempt,
        "F12_a_server_that_dies_in_a_call_is_asked_again_only_when_that_is_safe[read]",
        "attempts-share-their-key",
        untouched=("F21_the_server_gets_the_idempotency_key_of_the_call",),
    ),
    BrokenRunner(
        SendsLostCallsAgain,
        "F12_a_server_that_dies_in_a_call_is_asked_again_only_when_that_is_safe[write]",
        "a-lost-mcp-call-is-decided-by-its-effect",
        untouched=("F12_a_server_that_dies_in_a_call_is_asked_again_only_when_that_is_safe[read]",),
    ),
    BrokenRunner(
        ReportsLostCalls,
        "F12_a_server_that_dies_in_a_call_is_asked_again_only_when_that_is_safe[idempotent_write]",
        "a-lost-mcp-call-is-decided-by-its-effect",
        untouched=("an_mcp_tools_error_is_a_failure_that_the_model_reads",),
    ),
    BrokenRunner(
        KeepsAnArgument,
        "arguments_reach_the_server_unchanged",
        "arguments-reach-the-server-unchanged",
        untouched=("an_mcp_tool_is_offered_and_called",),
    ),
    BrokenRunner(
        MakesResultsOfErrors,
        "an_mcp_tools_error_is_a_failure_that_the_model_reads",
        "an-mcp-error-is-a-failed-call",
        untouched=("an_mcp_tool_is_offered_and_called",),
    ),
    BrokenRunner(
        NeverAsksForApproval,
        "annotations_decide_about_approval[write]",
        "approvals-follow-annotations",
        untouched=("annotations_decide_about_approval[read]",),
    ),
    BrokenRunner(
        AlwaysAsksForApproval,
        "annotations_decide_about_approval[read]",
        "approvals-follow-annotations",
        untouched=("annotations_decide_about_approval[write]",),
    ),
    BrokenRunner(
        AsksWithoutChoices,
        "F53_a_servers_question_in_the_middle_of_a_call_reaches_the_user",
        "a-question-reaches-the-user",
    ),
    BrokenRunner(
        ForgetsTheUsersAnswer,
        "F53_a_servers_question_in_the_middle_of_a_call_reaches_the_user",
        "a-question-is-asked-once",
    ),
    BrokenRunner(
        KeepsTheFirstListing,
        "F46_the_server_lists_other_tools_after_a_restart",
        "the-tools-of-the-latest-listing-are-offered",
    ),
    BrokenRunner(
        ForgetsRecordedCalls,
        "F46_an_approved_call_of_a_tool_that_is_listed_no_more_runs_once_or_fails_by_name[write]",
        "a-recorded-call-runs-once-or-fails-by-name",
        untouched=("a_turn_completes_with_the_models_text",),
    ),
)
