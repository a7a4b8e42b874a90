"""An agent for the tests of the testing kit: it refunds what its user says, and can be held in the refund."""

from __future__ import annotations

import json
from pathlib import Path

from dex_agents import (
    AgentSessionFlow,
    AgentTurnContext,
    AgentTurnOutcome,
    DeferredToolCall,
    DeferredToolExecution,
    DeferredToolOutcome,
    FrameworkMessage,
    ToolCallsRequested,
    ToolExecutionResult,
    ToolInputRequested,
    TurnCompleted,
    create_agent_session_flow,
    tool_result_text,
)
from dex_agents.testing import FileGate, InvocationLog


class RefundRunner:
    """Runs the tool that the user names: `refund_order` (a write) or `ask_amount` (asks first)."""

    def __init__(self, directory: Path) -> None:
        self._gate = FileGate(directory, "refunding")
        self._log = InvocationLog(directory / "invocations.jsonl")

    def build_user_message(self, text: str) -> FrameworkMessage:
        return FrameworkMessage(role="user", framework_item=json.dumps({"user": text}), text=text)

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        if turn.framework_run_state is None and turn.messages[-1].text in ("refund_order", "ask_amount"):
            name = turn.messages[-1].text
            call = DeferredToolCall(
                tool_call_id="1", tool_name=name, arguments="{}", policy=turn.resolve_tool_policy(name)
            )
            return ToolCallsRequested(framework_run_state="asked", tool_calls=(call,))
        answer = " ".join(tool_result_text(call) for call in turn.tool_calls) or "nothing to do"
        item = json.dumps({"assistant": answer})
        return TurnCompleted(new_messages=(FrameworkMessage(role="assistant", framework_item=item, text=answer),))

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        if call.tool_call.tool_name == "ask_amount":
            if not call.input_answers:
                return ToolInputRequested(question="How much?")
            return ToolExecutionResult(output=f"{call.input_answers[0].answer} refunded")
        self._log.record(call.idempotency_key, "refunded", call.attempt)
        await self._gate.pass_through()
        return ToolExecutionResult(output="refunded")


def create_flow(directory: Path) -> AgentSessionFlow:
    return create_agent_session_flow(RefundRunner(directory), "KitAgent")


def create_broken_flow(directory: Path) -> AgentSessionFlow:
    raise RuntimeError(f"no agent in {directory.name}")
