"""One model step: one request to the model, and what the framework makes of the response without running a tool."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelRequestPart, ModelResponse, ToolCallPart
from pydantic_ai.run import AgentRun
from pydantic_graph import End

from dex_agents import (
    AgentTurnContext,
    AgentTurnOutcome,
    ModelCallMetadata,
    ModelStepContinues,
    ToolCallsRequested,
    TurnCompleted,
)
from dex_agents_pydantic_ai import private_names
from dex_agents_pydantic_ai.agent_runs import AgentRuns
from dex_agents_pydantic_ai.conversation import StepInput, added_parts, with_system_prompts
from dex_agents_pydantic_ai.run_capability import SessionCapability
from dex_agents_pydantic_ai.run_errors import refusing_hopeless_errors, response_refusals
from dex_agents_pydantic_ai.run_state import encode_usage
from dex_agents_pydantic_ai.step_results import (
    call_usage,
    final_text,
    model_call_metadata,
    repaired_response,
    response_message,
    skipped_results,
)
from dex_agents_pydantic_ai.streamed_events import response_text, write_stream_event, write_whole_response
from dex_agents_pydantic_ai.tool_deferral import ResponseCalls, deferred_calls, sort_calls
from dex_agents_pydantic_ai.tool_results import retries_after, return_part

__all__ = ["ModelStep"]


class ModelStep:
    """One attempt of one model step.

    Args:
        runs: Opens runs of the agent.
        turn: The turn.
        given: What the step works with.
        deps: The agent's dependencies.
    """

    def __init__(self, runs: AgentRuns, turn: AgentTurnContext, given: StepInput, deps: Any) -> None:
        self._runs = runs
        self._turn = turn
        self._given = given
        self._deps = deps
        self._usage = given.run_usage()
        self._added: list[tuple[int, ModelRequestPart]] = []

    async def run(self) -> AgentTurnOutcome:
        """Make the request and say what came of it.

        Raises:
            AgentRunRefusedError: The framework ended its run, and would do so again.
            Exception: The attempt failed.
        """
        given = self._given
        with refusing_hopeless_errors():
            prompts = await self._runs.system_prompts(self._deps, given.history)
            capability = SessionCapability(given.tool_retries, offered_tools=given.offered_tools)
            async with self._runs.open(
                given.context,
                self._deps,
                with_system_prompts(given.history, prompts),
                capability,
                usage=self._usage,
                asks_model=True,
                built_in_tools=given.built_in_tools,
            ) as run:
                private_names.set_output_retries_used(run, given.state.output_retries)
                return await self._drive(run)

    async def _drive(self, run: AgentRun[Any, Any]) -> AgentTurnOutcome:
        streams = self._runs.streams(self._turn.session_settings)
        node: Any = run.next_node
        request_node: Any = None
        while not Agent.is_call_tools_node(node):
            if Agent.is_model_request_node(node):
                if request_node is not None:
                    return self._hook_asks_again(run, node)
                request_node = node
                if streams:
                    await self._stream(run, node)
            node = await run.next(node)
        if not streams:
            write_whole_response(self._turn.events, node.model_response)
        if request_node is not None:
            self._added = added_parts(self._given.history, request_node.request)
        return await self._conclude(run, node)

    async def _stream(self, run: AgentRun[Any, Any], node: Any) -> None:
        async with node.stream(run.ctx) as stream:
            async for event in private_names.observed_events(run, stream):
                write_stream_event(self._turn.events, event)

    def _hook_asks_again(self, run: AgentRun[Any, Any], node: Any) -> AgentTurnOutcome:
        """A hook of the agent refused the response, if there was one."""
        known = len(self._given.history)
        responses = [message for message in run.all_messages()[known:] if isinstance(message, ModelResponse)]
        response = responses[-1] if responses else ModelResponse(parts=[])
        return self._continues(run, response, node.request.parts)

    async def _conclude(self, run: AgentRun[Any, Any], node: Any) -> AgentTurnOutcome:
        original = node.model_response
        response = repaired_response(original, self._turn.step_execution_id)
        calls = sort_calls(response, private_names.offered_tools(run))
        limit = self._turn.turn_limit_reached
        answered: list[ModelRequestPart] = []
        if calls.internal:
            # Tool search and the like: their results are more than text, and nothing but the model sees them.
            following = await self._handle(run, node, _without(response, [*calls.functions, *calls.outputs]))
            answered = list(following.request.parts)
        if calls.functions and limit is not None:
            answered += [return_part(call.tool_name, limit, call.tool_call_id, "failed") for call in calls.functions]
        elif calls.functions:
            return await self._defer(run, node, original, response, calls, answered)
        if limit is not None and calls.functions and not calls.outputs:
            return self._completed(response, response_text(response), ModelRequest(parts=answered))
        if answered and not calls.outputs:
            return self._continues(run, response, answered)
        following = await self._handle(run, node, _without(response, [*calls.functions, *calls.internal]))
        if isinstance(following, End):
            closing = _closing_parts(run)
            request = ModelRequest(parts=[*answered, *closing]) if answered or closing else None
            return self._completed(response, following.data.output, request)
        return self._continues(run, response, [*answered, *following.request.parts])

    async def _handle(self, run: AgentRun[Any, Any], node: Any, response: ModelResponse) -> Any:
        """Let the framework handle the part of a response that needs no Step of its own."""
        with response_refusals():
            same = response.parts == node.model_response.parts
            return await run.next(node if same else type(node)(response))

    async def _defer(
        self,
        run: AgentRun[Any, Any],
        node: Any,
        original: ModelResponse,
        response: ModelResponse,
        calls: ResponseCalls,
        answered: list[ModelRequestPart],
    ) -> AgentTurnOutcome:
        """Hand function calls to the session, unless an output beside them ends the turn."""
        output_call_ids = tuple(call.tool_call_id for call in calls.outputs)
        if self._may_end_early(run, response, calls):
            before = private_names.output_retries_used(run)
            following = await self._handle(run, node, _without(response, [*calls.functions, *calls.internal]))
            if isinstance(following, End):
                closing = [*answered, *_closing_parts(run), *skipped_results(calls.functions)]
                return self._completed(response, following.data.output, ModelRequest(parts=closing))
            if calls.outputs:
                answered = [*answered, *following.request.parts]
                output_call_ids = ()
            else:
                private_names.set_output_retries_used(run, before)
        self._check_tool_call_limit(len(calls.functions))
        state = msgspec.structs.replace(
            self._given.state,
            tool_retries=self._tool_retries(run, answered),
            output_retries=private_names.output_retries_used(run),
            usage=encode_usage(self._usage),
            output_call_ids=output_call_ids,
            call_ids=tuple(call.tool_call_id for call in calls.functions),
        )
        following_requests = [ModelRequest(parts=answered)] if answered else []
        deferred = deferred_calls(
            self._turn, self._given, original, response, calls.functions, private_names.offered_tools(run)
        )
        message = response_message(response, following_requests, self._added, calls=deferred)
        return ToolCallsRequested(
            framework_run_state=state.encode(),
            tool_calls=deferred,
            new_messages=(*self._given.result_messages, message),
            usage=call_usage(response),
            model_call_metadata=self._metadata(response),
        )

    def _may_end_early(self, run: AgentRun[Any, Any], response: ModelResponse, calls: ResponseCalls) -> bool:
        if getattr(self._runs.agent, "end_strategy", None) != "early":
            return False
        if calls.outputs:
            return True
        return bool(response_text(response).strip()) and private_names.structured_text_output(run)

    def _check_tool_call_limit(self, count: int) -> None:
        limits = self._runs.usage_limits
        if limits is not None:
            projected = copy.copy(self._usage)
            projected.tool_calls += count
            limits.check_before_tool_call(projected)

    def _tool_retries(self, run: AgentRun[Any, Any], answers: Sequence[ModelRequestPart]) -> dict[str, int]:
        return retries_after(self._given.tool_retries, answers, private_names.output_tool_names(run))

    def _continues(
        self, run: AgentRun[Any, Any], response: ModelResponse, parts: Sequence[ModelRequestPart]
    ) -> ModelStepContinues:
        state = msgspec.structs.replace(
            self._given.state,
            tool_retries=self._tool_retries(run, parts),
            output_retries=private_names.output_retries_used(run),
            usage=encode_usage(self._usage),
            output_call_ids=(),
            call_ids=(),
        )
        message = response_message(response, [ModelRequest(parts=list(parts))], self._added)
        return ModelStepContinues(
            framework_run_state=state.encode(),
            new_messages=(*self._given.result_messages, message),
            usage=call_usage(response),
            model_call_metadata=self._metadata(response),
        )

    def _completed(self, response: ModelResponse, output: Any, closing: ModelRequest | None) -> TurnCompleted:
        text = final_text(output)
        if not response_text(response).strip():
            self._turn.events.write_text_delta(text)
        message = response_message(response, [closing] if closing is not None else [], self._added, text=text)
        return TurnCompleted(
            new_messages=(*self._given.result_messages, message),
            usage=call_usage(response),
            model_call_metadata=self._metadata(response),
        )

    def _metadata(self, response: ModelResponse) -> ModelCallMetadata:
        return model_call_metadata(response, self._runs.model(self._turn.session_settings))


def _without(response: ModelResponse, calls: Sequence[ToolCallPart]) -> ModelResponse:
    return dataclasses.replace(
        response, parts=[part for part in response.parts if not any(part is call for call in calls)]
    )


def _closing_parts(run: AgentRun[Any, Any]) -> list[ModelRequestPart]:
    """What the framework says to the calls of the response that ended the run."""
    last = run.all_messages()[-1]
    return list(last.parts) if isinstance(last, ModelRequest) else []
