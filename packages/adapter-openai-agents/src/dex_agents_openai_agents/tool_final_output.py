"""Agents that answer with a tool's result instead of another model call: `tool_use_behavior`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agents import Agent, FunctionToolResult, RunContextWrapper, ToolCallOutputItem

from dex_agents import AgentToolCall, tool_result_text
from dex_agents_openai_agents.run_state import CallReference
from dex_agents_openai_agents.step_agent import OfferedTools, resolve_maybe_awaitable

__all__ = ["FinalToolOutput", "final_tool_output"]


class FinalToolOutput:
    """The answer that a tool gave.

    Args:
        value: The output.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def text(self) -> str:
        """What the user reads."""
        return self.value if isinstance(self.value, str) else str(self.value)


async def final_tool_output(
    agent: Agent[Any],
    calls: Sequence[tuple[AgentToolCall, CallReference]],
    offered: OfferedTools,
    context: RunContextWrapper[Any],
) -> FinalToolOutput | None:
    """The turn's answer, when the agent answers with what its tools returned; None when the model goes on.

    A function gets the recorded results: the text the model would read, or its content list.
    """
    behavior = agent.tool_use_behavior
    done = [(call, reference) for call, reference in calls if reference.kind == "function_call"]
    if behavior == "run_llm_again" or not done:
        return None
    if behavior == "stop_on_first_tool":
        return FinalToolOutput(_output(done[0][0]))
    if isinstance(behavior, dict):
        names = behavior.get("stop_at_tool_names", [])
        stopping = (call for call, reference in done if {call.tool_name, _qualified(call, reference)} & set(names))
        first = next(stopping, None)
        return None if first is None else FinalToolOutput(_output(first))
    if not callable(behavior):
        return None
    results = [_result(call, reference, agent, offered) for call, reference in done]
    decision = await resolve_maybe_awaitable(behavior(context, [result for result in results if result is not None]))
    return FinalToolOutput(decision.final_output) if decision.is_final_output else None


def _output(call: AgentToolCall) -> Any:
    if call.framework_result is not None and call.output is not None:
        return json.loads(call.framework_result)
    return tool_result_text(call)


def _qualified(call: AgentToolCall, reference: CallReference) -> str:
    return call.tool_name if reference.namespace is None else f"{reference.namespace}.{call.tool_name}"


def _result(
    call: AgentToolCall, reference: CallReference, agent: Agent[Any], offered: OfferedTools
) -> FunctionToolResult | None:
    tool = offered.find_function_tool(call.tool_name, reference.namespace)
    if tool is None:
        return None
    output = _output(call)
    raw: Any = {"type": "function_call_output", "call_id": reference.call_id, "output": output}
    return FunctionToolResult(
        tool=tool, output=output, run_item=ToolCallOutputItem(agent=agent, raw_item=raw, output=output)
    )
