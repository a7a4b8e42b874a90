"""An agent whose user says what it does: each message is a plan of tool calls, so any worker process can go on with it.

Everything it does is logged, and the test can hold it everywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from dex_agents import AgentSessionFlow, ToolPolicy
from dex_agents_stepwise import (
    AgentDefinition,
    FunctionTool,
    InstructionContext,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelToolCall,
    ModelUserText,
    ScriptedModelClient,
    ToolCallContext,
    create_stepwise_agent_session_flow,
    function_tool,
)
from dex_flow.testing import Gates, InvocationLog
from tests.session_kill.planned_tasks import create_task_tool
from tests.session_kill.strict_transcript import check_request

__all__ = ["AMOUNT_QUESTION", "FLOW_TYPE", "PlannedAgent", "plan"]

FLOW_TYPE = "PlannedAgent"
AMOUNT_QUESTION = "How much?"
FREE_TOOLS = ("charge_card", "ask_and_charge", "build_report")
SHORT_BACKOFF = timedelta(milliseconds=20)


PlannedCall: TypeAlias = str | tuple[str, Mapping[str, Any]]
"""A tool, or a tool with arguments."""


def plan(*steps: Sequence[PlannedCall], label: str = "") -> str:
    """A user message that makes the model ask for these tools, one list for each model call, and then answer.

    Args:
        steps: The tools.
        label: Tells messages with the same steps apart.
    """
    calls = [[(call, {}) if isinstance(call, str) else call for call in step] for step in steps]
    return json.dumps({"label": label, "steps": calls} if label else calls)


class PlannedAgent:
    """The agent, its gates and its log.

    The tools are `look_up` (read), `put_item` (idempotent write), `charge_card` (non-idempotent write that a policy
    frees from approval), `refund_order` (non-idempotent write with approval), `ask_and_put` and `ask_and_charge` (the
    same, but they ask `AMOUNT_QUESTION` before their effect) and `build_report` (see `planned_tasks`; no approval);
    built in are `ask_user` and `durable_wait`. A gate's name is `<session>.<tool>.before_effect`,
    `<session>.<tool>.after_effect`, `<session>.<tool>.asks` or `<session>.model-<number of the call>`. A message that
    is no plan is answered at once.

    Args:
        directory: Holds the gates and the log; shared by all processes.
        blocks: Tools block their event loop at gates, as CPU-bound code does.
    """

    def __init__(self, directory: Path, *, blocks: bool = False) -> None:
        self.gates = Gates(directory / "gates")
        self.log = InvocationLog(directory / "invocations.jsonl")
        self._blocks = blocks

    def create_flow(self) -> AgentSessionFlow:
        """The Flow of the agent's sessions."""
        definition = AgentDefinition(
            name="planned",
            instructions=_instructions,
            model=_PlannedModel(self),
            tools=self._tools(),
            tool_policies={name: ToolPolicy(requires_approval=False) for name in FREE_TOOLS},
            built_in_tools=("ask_user", "durable_wait"),
        )
        return create_stepwise_agent_session_flow(definition, FLOW_TYPE, attempt_backoff=SHORT_BACKOFF)

    def _tools(self) -> list[FunctionTool[..., Any]]:
        @function_tool(effect="read")
        async def look_up(context: ToolCallContext) -> str:
            return await self._run("look_up", context)

        @function_tool(effect="idempotent_write")
        async def put_item(context: ToolCallContext) -> str:
            return await self._run("put_item", context)

        @function_tool(effect="non_idempotent_write")
        async def charge_card(context: ToolCallContext) -> str:
            return await self._run("charge_card", context)

        @function_tool(effect="non_idempotent_write")
        async def refund_order(context: ToolCallContext) -> str:
            return await self._run("refund_order", context)

        @function_tool(effect="idempotent_write")
        async def ask_and_put(context: ToolCallContext) -> str:
            return await self._ask_and_run("ask_and_put", context)

        @function_tool(effect="non_idempotent_write")
        async def ask_and_charge(context: ToolCallContext) -> str:
            return await self._ask_and_run("ask_and_charge", context)

        report = create_task_tool(self.gates, self.log)
        return [look_up, put_item, charge_card, refund_order, ask_and_put, ask_and_charge, report]

    async def _ask_and_run(self, tool: str, context: ToolCallContext) -> str:
        self.log.record(context.idempotency_key, f"{tool}.run-{len(context.input_answers)}", context.attempt)
        await self._pass(f"{context.flow_id}.{tool}.asks")
        amount = context.ask_user(AMOUNT_QUESTION)
        return f"{amount}: {await self._run(tool, context)}"

    async def _run(self, tool: str, context: ToolCallContext) -> str:
        await self._pass(f"{context.flow_id}.{tool}.before_effect")
        self.log.record(context.idempotency_key, f"{tool}.before", context.attempt)
        await self._pass(f"{context.flow_id}.{tool}.after_effect")
        self.log.record(context.idempotency_key, f"{tool}.after", context.attempt)
        return f"{tool} done in process {os.getpid()}"

    async def _pass(self, point: str) -> None:
        if self._blocks:
            self.gates.pass_through_blocking(point)
        else:
            await self.gates.pass_through(point)


def _instructions(context: InstructionContext) -> str:
    return json.dumps({"session": context.flow_id, "turn": context.turn_id, "attempt": context.attempt})


class _PlannedModel:
    """Does what the latest user message plans, and answers with all that the tools told it.

    The first characters of its text are streamed before its gate, the rest behind it.
    """

    provider = "planned"
    api = "planned"

    def __init__(self, agent: PlannedAgent) -> None:
        self._agent = agent

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One model call."""
        check_request(request)
        facts = json.loads(request.instructions)
        number, total = _count_outputs(request)
        key = f"{facts['session']}/{facts['turn']}/{number}"
        self._agent.log.record(key, "model", facts["attempt"])
        steps = _read_plan(ScriptedModelClient.user_texts(request)[-1])
        results = ScriptedModelClient.tool_results(request)
        if number < len(steps):
            text = f"step {number}"
            tools = steps[number]
        else:
            text = "answer: " + " | ".join(result.output for result in results)
            tools = []
        request.on_text_delta(text[:3])
        await self._agent.gates.pass_through(f"{facts['session']}.model-{number}")
        request.on_text_delta(text[3:])
        calls = tuple(
            ModelToolCall(tool_call_id=f"call_{total}_{position}", tool_name=tool, arguments=json.dumps(arguments))
            for position, (tool, arguments) in enumerate(tools)
        )
        return ModelResponse(text=text, tool_calls=calls)


def _read_plan(text: str) -> list[list[tuple[str, dict[str, Any]]]]:
    try:
        planned = json.loads(text)
    except ValueError:
        return []
    steps: list[list[tuple[str, dict[str, Any]]]] = planned["steps"] if isinstance(planned, dict) else planned
    return steps


def _count_outputs(request: ModelRequest) -> tuple[int, int]:
    """Model outputs since the latest user text, and altogether."""
    number = total = 0
    for item in request.input_items:
        if isinstance(item, ModelUserText):
            number = 0
        elif isinstance(item, ModelOutput):
            number += 1
            total += 1
    return number, total
