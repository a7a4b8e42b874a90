"""An agent with a scripted model behind the strict provider, and words to write its script with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dex_agents import ToolPolicy
from dex_agents_stepwise import (
    AgentDefinition,
    ModelRequest,
    ModelToolResult,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedToolCall,
    StepwiseAgentRunner,
    function_tool,
)

from .stepwise_session_driver import SessionDriver, StrictModelClient


@function_tool(effect="read")
def lookup_order(order_id: int) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id, "status": "paid"}


@function_tool(effect="non_idempotent_write")
def refund_order(order_id: int = 0) -> str:
    """Refund an order."""
    return f"refunded {order_id}"


@function_tool(requires_approval=False)
async def note(text: str = "") -> str:
    return f"noted {text}"


TOOLS = (lookup_order, refund_order, note)


def call(tool_name: str, arguments: Any = "", call_id: str | None = None) -> ScriptedToolCall:
    return ScriptedToolCall(tool_name=tool_name, arguments=arguments, tool_call_id=call_id)


def script(*replies: ScriptedModelReply) -> Callable[[ModelRequest], ScriptedModelReply]:
    """The replies one after the other; a model call too many fails the test."""
    remaining = list(replies)
    return lambda request: remaining.pop(0)


def say(text: str) -> ScriptedModelReply:
    return ScriptedModelReply(text=text)


def ask(*calls: ScriptedToolCall, text: str = "") -> ScriptedModelReply:
    return ScriptedModelReply(text=text, tool_calls=calls)


class Agent:
    """A runner with a scripted model behind the strict provider, and its session."""

    def __init__(
        self,
        *replies: ScriptedModelReply,
        has_odd_ids: bool = False,
        session_policies: dict[str, ToolPolicy] | None = None,
        **fields: Any,
    ) -> None:
        self.model = ScriptedModelClient(script(*replies))
        definition: dict[str, Any] = {
            "name": "support",
            "instructions": "Help.",
            "model": StrictModelClient(self.model, has_odd_ids=has_odd_ids),
            "tools": TOOLS,
            **fields,
        }
        self.runner = StepwiseAgentRunner(AgentDefinition(**definition))
        self.session = SessionDriver(self.runner, session_policies)

    def results_seen(self, request: int = -1) -> list[str]:
        """The outputs of every tool result in a request, oldest first."""
        items = self.model.requests[request].input_items
        return [item.output for item in items if isinstance(item, ModelToolResult)]
