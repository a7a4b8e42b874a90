"""The agents of the golden database files: user messages say what they do, so today's code can go on with every file.

A message is plain text, or a JSON plan: one list of `[tool, arguments]` pairs for each model call that asks for tools.
Nothing here may change what it makes of a message that a file holds; add instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, Literal

from dex_agents import (
    AgentMessageToolCall,
    AgentSessionFlow,
    AgentTurnContext,
    AgentTurnOutcome,
    AgentUsage,
    CompactionPolicy,
    ContextSummaryRequest,
    ContextSummaryResult,
    DeferredToolCall,
    DeferredToolExecution,
    FrameworkMessage,
    ToolCallsRequested,
    ToolEffect,
    ToolExecutionResult,
    ToolTaskPoll,
    ToolTaskStarted,
    TurnCompleted,
    create_agent_session_flow,
    tool_result_text,
)
from dex_agents_stepwise import (
    AgentDefinition,
    FunctionTool,
    ModelOutput,
    ModelRequest,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedToolCall,
    create_stepwise_agent_session_flow,
    function_tool,
)

__all__ = [
    "MESSAGE_CHUNK_SIZE",
    "MESSAGE_WINDOW_SIZE",
    "RETAINED_MESSAGES",
    "GoldenRunner",
    "PlannedCall",
    "create_golden_flow",
    "create_golden_stepwise_flow",
    "final_answer",
    "plan_message",
]

PlannedCall = tuple[str, dict[str, Any]]

MESSAGE_WINDOW_SIZE, MESSAGE_CHUNK_SIZE, RETAINED_MESSAGES = 8, 4, 12
USAGE = AgentUsage(model_calls=1, input_tokens=100, output_tokens=10, total_tokens=110)
BUILT_IN_TOOLS = ("ask_user", "durable_wait", "write_todos")
CHARACTERS_PER_TOKEN = 4
POLL_SECONDS = 600


def plan_message(*steps: Sequence[PlannedCall]) -> str:
    """The user message whose turn makes these calls, one list for each model call, and then answers."""
    return json.dumps(steps)


def final_answer(results: Sequence[str], model: str | None = None) -> str:
    """What the agents answer once the calls of a turn have these results.

    Args:
        results: In call order.
        model: The session setting `model`.
    """
    answer = f"done: {' | '.join(results)}" if results else "done"
    return answer if model is None else f"{model} {answer}"


def _planned_steps(text: str) -> list[list[PlannedCall]]:
    if not text.startswith("[["):
        return []
    return [[(tool, arguments) for tool, arguments in step] for step in json.loads(text)]


class GoldenRunner:
    """A runner without a framework that uses every optional part of the contract.

    Args:
        held_sessions: Sessions whose model calls never end.
    """

    supports_plan_mode: Literal[True] = True

    def __init__(self, held_sessions: Collection[str] = ()) -> None:
        self._held_sessions = held_sessions
        self.is_held = asyncio.Event()

    def build_user_message(self, text: str) -> FrameworkMessage:
        """A user message."""
        return FrameworkMessage(role="user", framework_item=json.dumps({"user": text}), text=text)

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """A token per four characters of the messages."""
        return sum(len(message.framework_item) for message in turn.messages) // CHARACTERS_PER_TOKEN

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """Keep the last two turns."""
        starts = [message.sequence for message in turn.messages if message.role == "user"]
        return starts[-2] - 1 if len(starts) > 2 else None

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """Say how far it goes."""
        return ContextSummaryResult(text=f"until message {request.messages[-1].sequence}", usage=USAGE)

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """The next step of the latest user message's plan, or the answer."""
        if turn.flow_id in self._held_sessions:
            self.is_held.set()
            await asyncio.Event().wait()
        item = json.loads(turn.messages[-1].framework_item)
        step = turn.model_step_count
        if step and json.loads(turn.framework_run_state or "") != {"step": step}:
            raise ValueError(f"step {step} received the run state {turn.framework_run_state!r}")
        steps = _planned_steps(item["user"])
        if step < len(steps):
            calls = tuple(
                self._deferred(turn, f"call-{step}-{number}", tool, arguments)
                for number, (tool, arguments) in enumerate(steps[step])
            )
            return ToolCallsRequested(framework_run_state=json.dumps({"step": step + 1}), tool_calls=calls, usage=USAGE)
        messages = []
        for number in range(1, step + 1):
            done = [call for call in turn.tool_calls if call.model_step_number == number]
            made = tuple(
                AgentMessageToolCall(
                    tool_call_id=call.provider_tool_call_id, tool_name=call.tool_name, arguments=call.arguments
                )
                for call in done
            )
            named = [[call.tool_name, call.arguments] for call in done]
            messages.append(
                FrameworkMessage(role="assistant", framework_item=json.dumps({"calls": named}), tool_calls=made)
            )
            for call in done:
                text = tool_result_text(call)
                result = json.dumps({"result": text})
                messages.append(
                    FrameworkMessage(role="tool", framework_item=result, text=text, tool_call_id=call.tool_call_id)
                )
        answer = final_answer([tool_result_text(call) for call in turn.tool_calls], turn.session_settings.get("model"))
        messages.append(FrameworkMessage(role="assistant", framework_item=json.dumps({"answer": answer}), text=answer))
        return TurnCompleted(new_messages=tuple(messages), usage=USAGE)

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> ToolExecutionResult | ToolTaskStarted:
        """Run one of the tools."""
        if call.tool_call.tool_name == "export_report":
            return ToolTaskStarted(task_id="export-7", poll_interval_seconds=POLL_SECONDS)
        return ToolExecutionResult(output=f"{call.tool_call.tool_name} {call.tool_call.arguments_to_run}")

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolExecutionResult:
        """The task has ended."""
        return ToolExecutionResult(output=f"{poll.tool_call.task_id} has ended")

    def _deferred(
        self, turn: AgentTurnContext, tool_call_id: str, tool: str, arguments: dict[str, Any]
    ) -> DeferredToolCall:
        needs_approval = tool == "charge_card"
        policy = turn.resolve_tool_policy(
            tool,
            ToolEffect.NON_IDEMPOTENT_WRITE if needs_approval else ToolEffect.READ,
            framework_requires_approval=needs_approval,
        )
        return DeferredToolCall(
            tool_call_id=tool_call_id,
            tool_name=tool,
            arguments=json.dumps(arguments),
            policy=policy,
            arguments_schema='{"type":"object"}',
        )


def create_golden_flow(runner: GoldenRunner) -> AgentSessionFlow:
    """The Flow of the sessions whose runner has no framework."""
    return create_agent_session_flow(
        runner,
        "GoldenAgent",
        built_in_tools=BUILT_IN_TOOLS,
        plan_mode_enabled=True,
        compaction=CompactionPolicy(context_window_tokens=600),
        message_window_size=MESSAGE_WINDOW_SIZE,
        message_chunk_size=MESSAGE_CHUNK_SIZE,
        retained_message_limit=RETAINED_MESSAGES,
        attempt_backoff=timedelta(0),
    )


def create_golden_stepwise_flow() -> AgentSessionFlow:
    """The Flow of the Stepwise sessions."""
    agent = AgentDefinition(
        name="golden",
        instructions="Do what the message plans.",
        model=ScriptedModelClient(_reply, max_recorded_requests=0),
        tools=[_charge_card(), _look_up()],
        built_in_tools=("ask_user", "durable_wait"),
    )
    return create_stepwise_agent_session_flow(agent, "GoldenStepwiseAgent", attempt_backoff=timedelta(0))


def _charge_card() -> FunctionTool[..., Any]:
    @function_tool(effect="non_idempotent_write")
    async def charge_card(amount: int) -> str:
        return f"charge_card {amount}"

    return charge_card


def _look_up() -> FunctionTool[..., Any]:
    @function_tool(effect="read")
    async def look_up(order: str) -> str:
        return f"look_up {order}"

    return look_up


def _reply(request: ModelRequest) -> ScriptedModelReply:
    text, step = "", 0
    for item in request.input_items:
        if isinstance(item, ModelUserText):
            text, step = item.text, 0
        elif isinstance(item, ModelOutput):
            step += 1
    steps = _planned_steps(text)
    if step < len(steps):
        return ScriptedModelReply(
            tool_calls=[ScriptedToolCall(tool_name=tool, arguments=arguments) for tool, arguments in steps[step]]
        )
    return ScriptedModelReply(
        text=final_answer([result.output for result in ScriptedModelClient.tool_results(request)])
    )
