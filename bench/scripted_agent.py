"""The agent of the benchmark: every turn is one model call, one tool call, one more model call and an answer."""

from __future__ import annotations

from typing import Literal

from dex_agents_stepwise import (
    AgentDefinition,
    ModelRequest,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedToolCall,
    create_stepwise_agent_session_flow,
    function_tool,
)
from dex_flow import Flow

__all__ = ["ANSWER_TEXT", "TOOL_OUTPUT", "USER_TEXT", "ToolKind", "create_benchmark_flow"]

ToolKind = Literal["single_attempt", "repeatable"]
"""`single_attempt` commits a started marker of its own before the tool runs, `repeatable` does not need one."""

USER_TEXT = "Where is order 42, and when will it arrive? ".ljust(200, ".")
TOOL_OUTPUT = "Order 42 was handed to the carrier. ".ljust(1_000, ".")
ANSWER_TEXT = "Your order is on its way. ".ljust(1_000, ".")


async def look_up_order(order_id: str) -> str:
    """Look up an order.

    Args:
        order_id: The order.
    """
    return TOOL_OUTPUT


def _reply(request: ModelRequest) -> ScriptedModelReply:
    if ScriptedModelClient.tool_results(request):
        return ScriptedModelReply(text=ANSWER_TEXT)
    return ScriptedModelReply(
        tool_calls=[ScriptedToolCall(tool_name="look_up_order", arguments={"order_id": "42"})],
    )


def create_benchmark_flow(tool_kind: ToolKind) -> Flow:
    """The session Flow of the benchmark's agent; nothing in it uses the network or waits."""
    effect: Literal["read", "non_idempotent_write"] = "read" if tool_kind == "repeatable" else "non_idempotent_write"
    tool = function_tool(look_up_order, effect=effect, requires_approval=False)
    agent = AgentDefinition(
        name="benchmark",
        instructions="Answer questions about orders.",
        model=ScriptedModelClient(_reply, max_recorded_requests=0),
        tools=[tool],
    )
    return create_stepwise_agent_session_flow(agent, "BenchmarkSession")
