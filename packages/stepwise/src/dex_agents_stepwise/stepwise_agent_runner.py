"""The built-in agent loop as a runner: one model call per model step, every tool call in a Step of its own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Literal

from dex_agents import (
    AgentTurnContext,
    AgentTurnOutcome,
    AgentUsage,
    ContextSummaryRequest,
    ContextSummaryResult,
    DeferredToolExecution,
    DeferredToolOutcome,
    FrameworkMessage,
    InteractionMode,
    ToolCallsRequested,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    TurnCompleted,
    select_compaction_cutoff,
)
from dex_agents.session.built_in_tools import WRITE_TODOS
from dex_agents.session.texts import model_call_limit_text
from dex_agents_stepwise.agent_definition import AgentDefinition
from dex_agents_stepwise.agent_instructions import AgentInstructions
from dex_agents_stepwise.agent_tools import AgentTools
from dex_agents_stepwise.context_compaction import build_summary_request
from dex_agents_stepwise.conversation import conversation_items, plan_note, summary_note
from dex_agents_stepwise.model_client import (
    ModelClient,
    ModelRequest,
    ModelResponse,
    ModelToolCall,
    ModelToolDefinition,
    RequiredTool,
)
from dex_agents_stepwise.token_estimate import TokenCounts, TokenEstimator
from dex_agents_stepwise.tool_sources import ListedSourceTool
from dex_agents_stepwise.turn_transcript import (
    model_output_message,
    repaired_response,
    tool_result_message,
    unstored_result_messages,
    user_message,
)

__all__ = ["StepwiseAgentRunner"]


class StepwiseAgentRunner:
    """Runs an agent definition for any number of sessions; keeps nothing about any of them.

    Args:
        definition: The agent.

    Raises:
        TypeError: A tool source declares a name that another tool of the agent has.
    """

    def __init__(self, definition: AgentDefinition) -> None:
        self.definition = definition
        self._tools = AgentTools(definition)
        self._instructions = AgentInstructions(definition.instructions)
        self._token_counts = TokenCounts()

    @property
    def supports_plan_mode(self) -> Literal[True]:
        """Planning turns offer `write_todos` alone."""
        return True

    def build_user_message(self, text: str) -> FrameworkMessage:
        """The stored form of a user message."""
        return user_message(text)

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """Make exactly one model call, from committed state only.

        Raises:
            TurnRefusedError: The session's messages were written by another runner.
            ModelResolutionError: The definition's `resolve_model` gave no model client.
            TypeError: Two of the tools that the agent offers now have the same name.
            ValueError: The session has a built-in tool that this release does not know.
        """
        model_calls = _model_calls(turn.framework_run_state)
        refusal = self._refusal(turn, model_calls)
        model = self.definition.model_for(turn.session_settings)
        results = unstored_result_messages(turn)
        listed = {} if self._is_bare(turn) else await self._tools.sources.list_tools(turn)
        request = await self._request(turn, model, results, listed)
        response = await _generate(model, request)
        output = model_output_message(model, response)
        if response.tool_calls and refusal is None:
            return ToolCallsRequested(
                framework_run_state=json.dumps({"model_calls": model_calls + 1}),
                tool_calls=tuple(self._tools.deferred_call(turn, call, listed) for call in response.tool_calls),
                usage=_usage_of_one_call(response.usage),
                new_messages=(*results, output),
                model_call_metadata=response.metadata,
            )
        return TurnCompleted(
            new_messages=(*results, output, *_refused_results(turn, response.tool_calls, refusal or "")),
            usage=_usage_of_one_call(response.usage),
            model_call_metadata=response.metadata,
        )

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """About how many tokens the turn's next model call reads, from lengths or the client's own count.

        Raises:
            ModelResolutionError: The definition's `resolve_model` gave no model client.
        """
        estimator = self._estimator(turn)
        texts = [
            self._instructions.text_to_measure(turn),
            summary_note(turn.context_summary),
            plan_note(turn),
            *(
                self._tools.model_text(definition)
                for definition in self._offered_tools(turn, self._tools.sources.known_tools())
            ),
        ]
        tokens = sum(estimator.item(text) for text in texts if text)
        return tokens + estimator.messages(turn.messages) + estimator.messages(unstored_result_messages(turn))

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """The last message to summarise, so that about the budget stays.

        Raises:
            ModelResolutionError: The definition's `resolve_model` gave no model client.
        """
        estimator = self._estimator(turn)
        pending = estimator.messages(unstored_result_messages(turn))
        return select_compaction_cutoff(
            turn.messages, turn.turn_id, retained_token_budget, estimator.message, pending_tokens=pending
        )

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """Make exactly one model call without tools; see `build_summary_request`.

        Raises:
            TurnRefusedError: The session's messages were written by another runner.
            ModelResolutionError: The definition's `resolve_model` gave no model client.
        """
        model = self.definition.model_for(request.session_settings)
        estimator = TokenEstimator(model, self._token_counts)
        response = await _generate(
            model, build_summary_request(request, model, self.definition.model_settings, estimator)
        )
        return ContextSummaryResult(
            text=response.text, usage=_usage_of_one_call(response.usage), model_call_metadata=response.metadata
        )

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one function tool, see `FunctionTool.execute`, or one of the tool source that the call came from.

        Raises:
            ToolExecutionError: No tool has the name, its arguments do not fit, or the tool raised it.
            UnknownToolSourceError: The agent no longer has the source.
        """
        stored = self._tools.sources.of_call(call.tool_call)
        if stored is not None:
            source, tool_call = stored
            return await source.execute_deferred_tool_call(dataclasses.replace(call, tool_call=tool_call))
        return await self._tools.get(call.tool_call.tool_name).execute(call)

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask a function tool, see `FunctionTool.poll`, or a tool source how its remote work is.

        Raises:
            ToolExecutionError: No tool has the name any more, or the poll raised it.
            UnknownToolSourceError: The agent no longer has the source.
        """
        stored = self._tools.sources.of_call(poll.tool_call)
        if stored is not None:
            source, tool_call = stored
            return await source.poll_tool_task(dataclasses.replace(poll, tool_call=tool_call))
        return await self._tools.get(poll.tool_call.tool_name).poll(poll)

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        """Tell a function tool or a tool source to stop its remote work; nothing when the tool cannot, or is gone.

        Raises:
            UnknownToolSourceError: The agent no longer has the source.
        """
        stored = self._tools.sources.of_call(cancellation.tool_call)
        if stored is not None:
            source, tool_call = stored
            await self._tools.sources.cancel(source, dataclasses.replace(cancellation, tool_call=tool_call))
            return
        tool = self._tools.find(cancellation.tool_call.tool_name)
        if tool is not None:
            await tool.cancel(cancellation)

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        """The results of the calls whose model output is stored, so that the transcript stays complete."""
        return unstored_result_messages(turn)

    def _estimator(self, turn: AgentTurnContext) -> TokenEstimator:
        return TokenEstimator(self.definition.model_for(turn.session_settings), self._token_counts)

    def _refusal(self, turn: AgentTurnContext, model_calls: int) -> str | None:
        """What a call asked for now is told; None while the turn may go on."""
        if turn.turn_limit_reached is not None:
            return turn.turn_limit_reached
        limit = self.definition.max_model_calls_per_turn
        return model_call_limit_text(limit) if model_calls >= limit else None

    def _is_bare(self, turn: AgentTurnContext) -> bool:
        """Whether no listed tool can be offered: the turn plans, or is at its last model call."""
        is_last = self._refusal(turn, _model_calls(turn.framework_run_state)) is not None
        return is_last or turn.interaction_mode is InteractionMode.PLANNING

    def _offered_tools(
        self, turn: AgentTurnContext, listed: tuple[ModelToolDefinition, ...]
    ) -> tuple[ModelToolDefinition, ...]:
        offered_tools = self._tools.offered(turn, listed)
        refusal = self._refusal(turn, _model_calls(turn.framework_run_state))
        return offered_tools if refusal is None else ()

    async def _request(
        self,
        turn: AgentTurnContext,
        model: ModelClient,
        results: Sequence[FrameworkMessage],
        listed: Mapping[str, ListedSourceTool],
    ) -> ModelRequest:
        offered_tools = self._offered_tools(turn, tuple(tool.definition for tool in listed.values()))
        input_items = conversation_items(turn, results, model)
        return ModelRequest(
            instructions=await self._instructions.text(turn),
            input_items=input_items,
            tools=offered_tools,
            tool_choice=self._tool_choice(turn, offered_tools),
            settings=self.definition.model_settings,
            on_text_delta=turn.events.write_text_delta,
            on_reasoning_delta=turn.events.write_reasoning_delta,
        )

    def _tool_choice(
        self, turn: AgentTurnContext, offered_tools: Sequence[ModelToolDefinition]
    ) -> Literal["auto", "none"] | RequiredTool:
        if not offered_tools:
            return "none"
        has_draft = turn.plan is not None and turn.plan.status == "draft"
        is_first_planning_call = turn.interaction_mode is InteractionMode.PLANNING and turn.framework_run_state is None
        if self.definition.planning_tool_choice == "required" and is_first_planning_call and not has_draft:
            return RequiredTool(tool_name=WRITE_TODOS)
        return "auto"


async def _generate(model: ModelClient, request: ModelRequest) -> ModelResponse:
    response = await model.generate(request)
    if not isinstance(response, ModelResponse):
        raise TypeError(f"the model client must return a ModelResponse, not {type(response).__name__}")
    return repaired_response(response)


def _refused_results(
    turn: AgentTurnContext, calls: Sequence[ModelToolCall], refusal: str
) -> tuple[FrameworkMessage, ...]:
    used_ids = {call.tool_call_id for call in turn.tool_calls}
    messages = []
    for call in calls:
        tool_call_id, number = call.tool_call_id, 1
        while not tool_call_id.strip() or tool_call_id in used_ids:
            number += 1
            tool_call_id = f"{call.tool_call_id}~{number}"
        used_ids.add(tool_call_id)
        messages.append(tool_result_message(tool_call_id, call.tool_name, refusal))
    return tuple(messages)


def _model_calls(framework_run_state: str | None) -> int:
    if framework_run_state is None:
        return 0
    return int(json.loads(framework_run_state)["model_calls"])


def _usage_of_one_call(usage: AgentUsage | None) -> AgentUsage | None:
    """What the client reports of tokens; that it made one call is certain."""
    if usage is None:
        return None
    return AgentUsage(
        model_calls=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
    )
