"""The agent of the demo: a support agent that looks orders up and refunds them, with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from dex_agents import AgentSessionFlow, AgentTurnContext, FrameworkMessage, create_agent_session_flow
from dex_agents.session.built_in_tools import ASK_USER, DURABLE_WAIT
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_server.demo.pauses import TURN_END, Pauses, tool_pause
from dex_agents_stepwise import (
    AgentDefinition,
    FunctionTool,
    ModelRequest,
    ScriptedModelClient,
    ScriptedModelReply,
    StepwiseAgentRunner,
    ToolCallContext,
    function_tool,
)

__all__ = ["FLOW_TYPE", "LOOKUP_TOOL", "REFUNDED", "REFUND_TOOL", "Script", "create_support_flow"]

FLOW_TYPE = "DemoSupportAgent"
LOOKUP_TOOL = "lookup_order"
REFUND_TOOL = "refund_order"
#: How the result of a refund begins.
REFUNDED = "Refunded"

_DELTA_CHARACTERS = 12
_DELTA_INTERVAL_SECONDS = 0.01

#: What the model says; the pauses say where the worker is to stand still meanwhile.
Script: TypeAlias = Callable[[ModelRequest, Pauses], ScriptedModelReply]


class _SupportRunner(StepwiseAgentRunner):
    """Stepwise, which can be made to stand still while it ends a turn."""

    def __init__(self, definition: AgentDefinition, pauses: Pauses) -> None:
        super().__init__(definition)
        self._pauses = pauses

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        self._pauses.reach_and_block(TURN_END)
        return super().build_unfinished_turn_messages(turn)


def create_support_flow(orders: OrdersDatabase, script: Script, pauses: Pauses | None = None) -> AgentSessionFlow:
    """Build the Flow of the support agent's sessions.

    Args:
        orders: The shop's database.
        script: What the model says.
        pauses: Where the worker stands still; None for nowhere.
    """
    points = pauses or Pauses()
    agent = AgentDefinition(
        name="support",
        instructions="You help the customers of an outdoor shop with their orders.",
        model=ScriptedModelClient(
            lambda request: script(request, points),
            delta_characters=_DELTA_CHARACTERS,
            delta_interval_seconds=_DELTA_INTERVAL_SECONDS,
        ),
        tools=_tools(orders, points),
        built_in_tools=(ASK_USER, DURABLE_WAIT),
    )
    return create_agent_session_flow(_SupportRunner(agent, points), FLOW_TYPE, built_in_tools=agent.built_in_tools)


def _tools(orders: OrdersDatabase, pauses: Pauses) -> list[FunctionTool[..., Any]]:
    @function_tool(name=LOOKUP_TOOL, effect="read")
    async def lookup_order(order_id: int, context: ToolCallContext) -> dict[str, object]:
        """Look up an order.

        Args:
            order_id: The number of the order.
        """
        run = await asyncio.to_thread(
            orders.record_run_started, context.flow_id, LOOKUP_TOOL, order_id, context.idempotency_key
        )
        order = await asyncio.to_thread(orders.find_order, order_id)
        await asyncio.to_thread(orders.record_effect_done, run)
        await pauses.reach(tool_pause(LOOKUP_TOOL, order_id))
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
        await pauses.reach(tool_pause(REFUND_TOOL, order_id))
        return f"{REFUNDED} {order.price} for order {order_id}."

    return [lookup_order, refund_order]
