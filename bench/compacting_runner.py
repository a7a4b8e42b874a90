"""A runner without a framework or a model: every turn calls one tool and answers, and earlier turns are summarised.

It counts a token per four characters, keeps whole turns only, and writes summaries of one size, so that turns that look
alike cost the same however long the session is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dex_agents import (
    AgentMessage,
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
    ResolvedToolPolicy,
    ToolCallsRequested,
    ToolEffect,
    ToolExecutionResult,
    TurnCompleted,
    create_agent_session_flow,
    tool_result_text,
)

__all__ = ["CHARACTERS_PER_TOKEN", "CONTEXT_WINDOW_TOKENS", "CompactingRunner", "create_compacting_flow"]

CHARACTERS_PER_TOKEN = 4
SUMMARY_CHARACTERS = 400
ANSWER_TEXT = "Your order is on its way. ".ljust(300, ".")
TOOL_OUTPUT = "Order 42 was handed to the carrier. ".ljust(300, ".")
TOOL_NAME = "look_up_order"
USAGE = AgentUsage(model_calls=1, input_tokens=1_000, output_tokens=100, total_tokens=1_100)
# About 25 turns fill it to the trigger, and about 9 of them stay.
CONTEXT_WINDOW_TOKENS = 12_000


class CompactingRunner:
    """Calls a tool, answers, and summarises.

    Attributes:
        input_messages: How many stored messages each model call saw, in order.
        input_characters: How many characters their framework items had.
        summaries: How many messages each summary call was about.
    """

    def __init__(self) -> None:
        self.input_messages: list[int] = []
        self.input_characters: list[int] = []
        self.summaries: list[int] = []

    def build_user_message(self, text: str) -> FrameworkMessage:
        """A user message."""
        return FrameworkMessage(role="user", framework_item=_item("user", text), text=text)

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """A token per four characters of all that a model would read."""
        summary = 0 if turn.context_summary is None else len(turn.context_summary.text)
        results = sum(len(call.arguments) + len(call.output or "") for call in turn.tool_calls)
        return (summary + _characters(turn.messages) + results) // CHARACTERS_PER_TOKEN

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """The message before the oldest turn that the budget still holds; the active turn always stays."""
        left = retained_token_budget * CHARACTERS_PER_TOKEN
        first_kept = None
        for message in reversed(turn.messages):
            left -= len(message.framework_item)
            if left < 0 and first_kept is not None:
                break
            if message.role == "user":
                first_kept = message.sequence
        if first_kept is None or first_kept == turn.messages[0].sequence:
            return None
        return first_kept - 1

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """A summary of always the same size."""
        self.summaries.append(len(request.messages))
        last = request.messages[-1]
        return ContextSummaryResult(
            text=f"Everything until {last.turn_id}. ".ljust(SUMMARY_CHARACTERS, "."), usage=USAGE
        )

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """The first step of a turn asks for the tool, the second one answers."""
        self.input_messages.append(len(turn.messages))
        self.input_characters.append(_characters(turn.messages))
        if turn.framework_run_state is None:
            call = DeferredToolCall(
                tool_call_id="call-1",
                tool_name=TOOL_NAME,
                arguments='{"order_id":"42"}',
                policy=ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False),
            )
            return ToolCallsRequested(framework_run_state='{"calls":["call-1"]}', tool_calls=(call,), usage=USAGE)
        (call_done,) = turn.tool_calls
        asked = AgentMessageToolCall(
            tool_call_id=call_done.provider_tool_call_id, tool_name=TOOL_NAME, arguments=call_done.arguments
        )
        result = tool_result_text(call_done)
        messages = (
            FrameworkMessage(role="assistant", framework_item=_item("calls", call_done.arguments), tool_calls=(asked,)),
            FrameworkMessage(
                role="tool", framework_item=_item("result", result), text=result, tool_call_id=call_done.tool_call_id
            ),
            FrameworkMessage(role="assistant", framework_item=_item("answer", ANSWER_TEXT), text=ANSWER_TEXT),
        )
        return TurnCompleted(new_messages=messages, usage=USAGE)

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> ToolExecutionResult:
        """The tool."""
        return ToolExecutionResult(output=TOOL_OUTPUT)


def create_compacting_flow(
    runner: CompactingRunner,
    *,
    retained_message_limit: int = 1_000,
    context_window_tokens: int = CONTEXT_WINDOW_TOKENS,
) -> AgentSessionFlow:
    """The session Flow of the runner."""
    return create_agent_session_flow(
        runner,
        "CompactingSession",
        compaction=CompactionPolicy(context_window_tokens=context_window_tokens),
        retained_message_limit=retained_message_limit,
    )


def _item(kind: str, text: str) -> str:
    return json.dumps({"kind": kind, "text": text})


def _characters(messages: Sequence[AgentMessage]) -> int:
    return sum(len(message.framework_item) for message in messages)
