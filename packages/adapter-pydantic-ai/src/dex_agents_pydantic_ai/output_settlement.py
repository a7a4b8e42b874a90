"""Outputs that a response gave beside other calls: used once those calls are final, without another model call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelRequestPart, ModelResponse, ToolCallPart
from pydantic_graph import End

from dex_agents import AgentTurnContext, AgentUsage, FrameworkMessage, ModelStepContinues, TurnCompleted
from dex_agents_pydantic_ai import private_names
from dex_agents_pydantic_ai.agent_runs import AgentRuns
from dex_agents_pydantic_ai.conversation import StepInput, previous_calls
from dex_agents_pydantic_ai.framework_messages import FRAMEWORK_VERSION, StoredItem, encode_item, load_history
from dex_agents_pydantic_ai.run_capability import SessionCapability
from dex_agents_pydantic_ai.run_errors import refusing_hopeless_errors, response_refusals
from dex_agents_pydantic_ai.run_state import RunState, encode_usage
from dex_agents_pydantic_ai.step_results import final_text
from dex_agents_pydantic_ai.tool_results import decode_tool_result, retries_after, return_part

__all__ = ["settle_outputs", "unsettled_outputs"]

# Since 2.0 the framework leaves an output unused while a tool beside it asks for a retry.
_PREFERS_TOOL_RETRIES = int(FRAMEWORK_VERSION.split(".")[0]) >= 2
_ANSWERS_OUTPUTS_FIRST = not _PREFERS_TOOL_RETRIES
OUTPUT_NOT_USED = "Output not used as the final result - addressing tool retries from this round first."

OUTPUT_NOT_PROCESSED = "The turn ended before this output was processed."


async def settle_outputs(
    runs: AgentRuns, turn: AgentTurnContext, given: StepInput, deps: Any
) -> TurnCompleted | ModelStepContinues:
    """Let the framework use the outputs; it calls no model for that.

    Raises:
        AgentRunRefusedError: The output's retries are used up.
    """
    position = max(index for index, message in enumerate(given.history) if isinstance(message, ModelResponse))
    response = given.history[position]
    assert isinstance(response, ModelResponse)
    ids = given.state.output_call_ids
    outputs = [part for part in response.parts if isinstance(part, ToolCallPart) and part.tool_call_id in ids]
    retries = [stored for call in previous_calls(turn) if (stored := decode_tool_result(call.framework_result))]
    if any(stored.is_retry for stored in retries) and _PREFERS_TOOL_RETRIES:
        refused = [return_part(call.tool_name, OUTPUT_NOT_USED, call.tool_call_id, "success") for call in outputs]
        return _continues(given, refused, given.state.output_retries, given.tool_retries)
    trimmed = dataclasses.replace(
        response,
        parts=[part for part in response.parts if not isinstance(part, ToolCallPart) or part in outputs],
    )
    usage = given.run_usage()
    with refusing_hopeless_errors(), response_refusals():
        capability = SessionCapability(given.tool_retries)
        history = [*given.history[:position], trimmed]
        async with runs.open(given.context, deps, history, capability, usage=usage) as run:
            private_names.set_output_retries_used(run, given.state.output_retries)
            node: Any = run.next_node
            while not Agent.is_call_tools_node(node):
                if Agent.is_model_request_node(node):
                    raise AssertionError("a response with outputs is handled before any request")
                node = await run.next(node)
            following: Any = await run.next(node)
            if not isinstance(following, End):
                answers = following.request.parts
                tool_retries = retries_after(given.tool_retries, answers, private_names.output_tool_names(run))
                return _continues(given, answers, private_names.output_retries_used(run), tool_retries)
            last = run.all_messages()[-1]
            parts = list(last.parts) if isinstance(last, ModelRequest) else []
    text = final_text(following.data.output)
    turn.events.write_text_delta(text)
    return TurnCompleted(new_messages=(*given.result_messages, _message(parts, text)), usage=AgentUsage())


def _continues(
    given: StepInput, parts: Sequence[ModelRequestPart], output_retries: int, tool_retries: Mapping[str, int]
) -> ModelStepContinues:
    state = msgspec.structs.replace(
        given.state,
        tool_retries=dict(tool_retries),
        output_retries=output_retries,
        usage=encode_usage(given.run_usage()),
        output_call_ids=(),
        call_ids=(),
    )
    return ModelStepContinues(
        framework_run_state=state.encode(),
        new_messages=(*given.result_messages, _message(parts, "")),
        usage=AgentUsage(),
    )


def _message(parts: Sequence[ModelRequestPart], text: str) -> FrameworkMessage:
    """What the framework says to the outputs belongs to the request with the other calls' results."""
    if _ANSWERS_OUTPUTS_FIRST:
        item = StoredItem(inserted=list(enumerate(parts)))
    else:
        item = StoredItem(messages=[ModelRequest(parts=list(parts))] if parts else [], continues_request=True)
    return FrameworkMessage(role="assistant", text=text, framework_item=encode_item(item))


def unsettled_outputs(turn: AgentTurnContext, state: RunState) -> tuple[FrameworkMessage, ...]:
    """What is said to outputs of a turn that ends before they are used."""
    if not state.output_call_ids:
        return ()
    history = load_history(turn.messages)
    parts = [
        return_part(part.tool_name, OUTPUT_NOT_PROCESSED, part.tool_call_id, "interrupted")
        for message in history
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart) and part.tool_call_id in state.output_call_ids
    ]
    return (_message(parts[-len(state.output_call_ids) :], ""),)
