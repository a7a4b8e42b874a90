"""The agent of the demo: a support agent that looks orders up and refunds them, with a scripted model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from dex_agents import AgentSessionFlow
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_stepwise import (
    AgentDefinition,
    ModelRequest,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedToolCall,
    ToolCallContext,
    create_stepwise_agent_session_flow,
    function_tool,
)

__all__ = ["FLOW_TYPE", "LOOKUP_TOOL", "REFUND_TOOL", "create_support_flow"]

FLOW_TYPE = "DemoSupportAgent"
LOOKUP_TOOL = "lookup_order"
REFUND_TOOL = "refund_order"
_REFUNDED = "Refunded"


async def _go_on(order_id: int) -> None:
    """Nothing happens between the effect of a refund and its return."""


def create_support_flow(
    orders: OrdersDatabase, after_refund: Callable[[int], Awaitable[None]] = _go_on
) -> AgentSessionFlow:
    """Build the Flow of the support agent's sessions.

    Args:
        orders: The shop's database.
        after_refund: Awaited with the order's number inside the refund tool, after the money has moved: where a worker
            can be killed at the worst moment.
    """

    @function_tool(name=LOOKUP_TOOL, effect="read")
    def lookup_order(order_id: int, context: ToolCallContext) -> dict[str, object]:
        """Look up an order.

        Args:
            order_id: The number of the order.
        """
        run = orders.record_run_started(context.flow_id, LOOKUP_TOOL, order_id, context.idempotency_key)
        order = orders.find_order(order_id)
        orders.record_effect_done(run)
        return {"order_id": order.order_id, "item": order.item, "paid": order.price, "refunds": order.refunds}

    @function_tool(name=REFUND_TOOL, effect="non_idempotent_write", requires_approval=True)
    async def refund_order(order_id: int, context: ToolCallContext) -> str:
        """Pay an order back to the customer.

        Args:
            order_id: The number of the order.
        """
        order = await asyncio.to_thread(orders.find_order, order_id)
        run = await asyncio.to_thread(
            orders.record_run_started, context.flow_id, REFUND_TOOL, order_id, context.idempotency_key
        )
        await asyncio.to_thread(orders.refund_order, order_id)
        await asyncio.to_thread(orders.record_effect_done, run)
        await after_refund(order_id)
        return f"{_REFUNDED} {order.price} for order {order_id}."

    agent = AgentDefinition(
        name="support",
        instructions="You help the customers of an outdoor shop with their orders.",
        model=ScriptedModelClient(_reply),
        tools=[lookup_order, refund_order],
    )
    return create_stepwise_agent_session_flow(agent, FLOW_TYPE)


def _reply(request: ModelRequest) -> ScriptedModelReply:
    number = re.search(r"\d+", ScriptedModelClient.user_texts(request)[-1])
    if number is None:
        return ScriptedModelReply(text="Which order is it? Please send me its number.")
    order_id = int(number.group())
    results = ScriptedModelClient.tool_results(request)
    if not results:
        return _ask(f"Let me look at order {order_id}.", LOOKUP_TOOL, order_id)
    last = results[-1]
    if last.tool_name == LOOKUP_TOOL:
        return _ask(f"I found order {order_id} and ask for its refund.", REFUND_TOOL, order_id)
    if last.output.startswith(_REFUNDED):
        return ScriptedModelReply(text=f"Done. {last.output}")
    return ScriptedModelReply(
        text=f"I cannot tell whether the refund of order {order_id} went through, so I did not try it again. "
        "A colleague will check the payment and write to you."
    )


def _ask(text: str, tool_name: str, order_id: int) -> ScriptedModelReply:
    return ScriptedModelReply(
        text=text, tool_calls=[ScriptedToolCall(tool_name=tool_name, arguments={"order_id": order_id})]
    )
