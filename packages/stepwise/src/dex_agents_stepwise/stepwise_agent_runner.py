"""The built-in agent loop as a runner: one model call per model step, every tool call in a Step of its own."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any

from dex_agents import (
    BUILT_IN_TOOL_DEFINITIONS,
    AgentTurnContext,
    AgentTurnOutcome,
    AgentUsage,
    DeferredToolCall,
    DeferredToolExecution,
    DeferredToolOutcome,
    FrameworkMessage,
    ResolvedToolPolicy,
    ToolCallsRequested,
    ToolEffect,
    ToolExecutionError,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    TurnCompleted,
    TurnRefusedError,
)
from dex_agents.session.built_in_tools import BUILT_IN_TOOL_POLICY
from dex_agents.session.policies import resolve_tool_policy
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT, model_call_limit_text, unknown_tool_text
from dex_agents_stepwise.agent_definition import AgentDefinition, InstructionContext
from dex_agents_stepwise.framework_items import UnreadableFrameworkItemError
from dex_agents_stepwise.function_tools import FunctionTool
from dex_agents_stepwise.input_items import build_input_items
from dex_agents_stepwise.model_client import ModelRequest, ModelResponse, ModelToolCall, ModelToolDefinition
from dex_agents_stepwise.turn_transcript import (
    model_output_message,
    repaired_response,
    stored_items,
    tool_result_message,
    unstored_result_messages,
    user_message,
)

__all__ = ["StepwiseAgentRunner"]


class StepwiseAgentRunner:
    """Runs an agent definition for any number of sessions; keeps nothing about any of them.

    Args:
        definition: The agent.
    """

    def __init__(self, definition: AgentDefinition) -> None:
        self.definition = definition
        self._tools = {tool.name: tool for tool in definition.tools}
        self._tool_definitions = tuple(
            ModelToolDefinition(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in definition.tools
        )

    def build_user_message(self, text: str) -> FrameworkMessage:
        """The stored form of a user message."""
        return user_message(text)

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """Make exactly one model call, from committed state only.

        Raises:
            TurnRefusedError: The session's messages were written by another runner.
            TypeError: A tool of the agent has the name of an enabled built-in tool.
            ValueError: The session has a built-in tool that this release does not know.
        """
        offered_tools = (*self._tool_definitions, *self._built_in_tools(turn))
        model_calls = _model_calls(turn.framework_run_state)
        limit_reached = model_calls >= self.definition.max_model_calls_per_turn
        results = unstored_result_messages(turn)
        request = await self._request(turn, results, () if limit_reached else offered_tools)
        response = await self.definition.model.generate(request)
        if not isinstance(response, ModelResponse):
            raise TypeError(f"the model client must return a ModelResponse, not {type(response).__name__}")
        response = repaired_response(response)
        output = model_output_message(self.definition.model, response)
        if response.tool_calls and not limit_reached:
            return ToolCallsRequested(
                framework_run_state=json.dumps({"model_calls": model_calls + 1}),
                tool_calls=tuple(self._deferred_call(turn, call) for call in response.tool_calls),
                usage=_usage_of_one_call(response.usage),
                new_messages=(*results, output),
                model_call_metadata=response.metadata,
            )
        return TurnCompleted(
            new_messages=(*results, output, *self._refused_results(turn, response.tool_calls)),
            usage=_usage_of_one_call(response.usage),
            model_call_metadata=response.metadata,
        )

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one function tool; see `FunctionTool.execute`.

        Raises:
            ToolExecutionError: No tool has the name, its arguments do not fit, or the tool raised it.
        """
        return await self._tool(call.tool_call.tool_name).execute(call)

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask a function tool how its remote work is; see `FunctionTool.poll`.

        Raises:
            ToolExecutionError: No tool has the name any more, or the poll raised it.
        """
        return await self._tool(poll.tool_call.tool_name).poll(poll)

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        """Tell a function tool to stop its remote work; nothing happens when it cannot, or is gone."""
        tool = self._tools.get(cancellation.tool_call.tool_name)
        if tool is not None:
            await tool.cancel(cancellation)

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        """The results of the calls whose model output is stored, so that the transcript stays complete."""
        return unstored_result_messages(turn)

    def _tool(self, name: str) -> FunctionTool[..., Any]:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolExecutionError(unknown_tool_text(name))
        return tool

    def _built_in_tools(self, turn: AgentTurnContext) -> tuple[ModelToolDefinition, ...]:
        # The definition checks its own built-in tools; a Flow built without it may enable others.
        for name in turn.enabled_built_in_tools:
            if name not in BUILT_IN_TOOL_DEFINITIONS:
                raise ValueError(f"the session enables the built-in tool {name!r}, which this release does not know")
            if name in self._tools:
                raise TypeError(f"tool {name} uses the name of an enabled built-in tool")
        definitions = (BUILT_IN_TOOL_DEFINITIONS[name] for name in turn.enabled_built_in_tools)
        return tuple(
            ModelToolDefinition(
                name=definition.name, description=definition.description, parameters=definition.parameters
            )
            for definition in definitions
        )

    async def _request(
        self,
        turn: AgentTurnContext,
        results: Sequence[FrameworkMessage],
        offered_tools: tuple[ModelToolDefinition, ...],
    ) -> ModelRequest:
        model = self.definition.model
        try:
            stored = stored_items((*turn.messages, *results))
        except UnreadableFrameworkItemError as error:
            raise TurnRefusedError(str(error)) from error
        return ModelRequest(
            instructions=await self._instructions(turn),
            input_items=build_input_items(
                stored, provider=model.provider, api=model.api, missing_result=OUTCOME_UNKNOWN_TOOL_RESULT
            ),
            tools=offered_tools,
            tool_choice="auto" if offered_tools else "none",
            settings=self.definition.model_settings,
            on_text_delta=turn.events.write_text_delta,
            on_reasoning_delta=turn.events.write_reasoning_delta,
        )

    async def _instructions(self, turn: AgentTurnContext) -> str:
        if isinstance(self.definition.instructions, str):
            return self.definition.instructions
        returned = self.definition.instructions(
            InstructionContext(
                flow_id=turn.flow_id,
                turn_id=turn.turn_id,
                attempt=turn.attempt,
                interaction_mode=turn.interaction_mode,
                plan=turn.plan,
            )
        )
        instructions = await returned if inspect.isawaitable(returned) else returned
        if not isinstance(instructions, str):
            raise TypeError(f"the function in AgentDefinition.instructions must return text, not {instructions!r}")
        return instructions

    def _deferred_call(self, turn: AgentTurnContext, call: ModelToolCall) -> DeferredToolCall:
        return DeferredToolCall(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            policy=self._policy(turn, call.tool_name),
        )

    def _policy(self, turn: AgentTurnContext, tool_name: str) -> ResolvedToolPolicy:
        if tool_name in turn.enabled_built_in_tools:
            return BUILT_IN_TOOL_POLICY
        tool = self._tools.get(tool_name)
        if tool is None:
            # It only tells the model that there is no such tool; nobody needs to approve that.
            return ResolvedToolPolicy(effect=ToolEffect.UNCLASSIFIED, requires_approval=False)
        return resolve_tool_policy(
            tool_name,
            tool.effect,
            # A Flow built without the definition's policies must not lose an approval that the definition asks for.
            tool_policies={**self.definition.tool_policies, **turn.tool_policies},
            default_tool_effect=turn.default_tool_effect,
            framework_requires_approval=tool.requires_approval,
        )

    def _refused_results(self, turn: AgentTurnContext, calls: Sequence[ModelToolCall]) -> tuple[FrameworkMessage, ...]:
        used_ids = {call.tool_call_id for call in turn.tool_calls}
        text = model_call_limit_text(self.definition.max_model_calls_per_turn)
        messages = []
        for call in calls:
            tool_call_id, number = call.tool_call_id, 1
            while not tool_call_id.strip() or tool_call_id in used_ids:
                number += 1
                tool_call_id = f"{call.tool_call_id}~{number}"
            used_ids.add(tool_call_id)
            messages.append(tool_result_message(tool_call_id, call.tool_name, text))
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
