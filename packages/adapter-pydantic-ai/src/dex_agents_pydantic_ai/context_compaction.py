"""What of a conversation is summarised, and the model call that summarises it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from dex_agents import (
    AgentMessage,
    AgentTurnContext,
    ContextSummaryRequest,
    ContextSummaryResult,
    build_plan_note,
    tool_result_text,
)
from dex_agents.session.texts import (
    CONTEXT_SUMMARY_INSTRUCTIONS,
    CONTEXT_SUMMARY_NOTE_HEADER,
    NOTE_PREFIX,
    context_summary_omission_note,
)
from dex_agents_pydantic_ai.agent_runs import can_stream
from dex_agents_pydantic_ai.client_retries import without_client_retries
from dex_agents_pydantic_ai.conversation import previous_calls, summary_note
from dex_agents_pydantic_ai.framework_messages import continues_previous, load_history
from dex_agents_pydantic_ai.run_errors import refusing_hopeless_errors
from dex_agents_pydantic_ai.step_results import call_usage, model_call_metadata
from dex_agents_pydantic_ai.streamed_events import response_text

__all__ = ["compaction_cutoff", "input_tokens", "summarize"]

SUMMARY_REQUEST_TEXT = f"{NOTE_PREFIX} Write the summary of the conversation now."

# Between English prose, 4 to 4.5 bytes per token, and JSON or code, about 3.
_BYTES_PER_TWO_TOKENS = 7
_TOKENS_PER_MESSAGE = 4


def _tokens(text: str) -> int:
    return -(-len(text.encode()) * 2 // _BYTES_PER_TWO_TOKENS) + _TOKENS_PER_MESSAGE if text else 0


def _message_tokens(message: AgentMessage) -> int:
    calls = sum(_tokens(f"{call.tool_name}{call.arguments}") for call in message.tool_calls)
    return _tokens(message.text) + _tokens(message.reasoning_text or "") + calls + _TOKENS_PER_MESSAGE


def _pending_tokens(turn: AgentTurnContext) -> int:
    return sum(_tokens(tool_result_text(call)) for call in previous_calls(turn))


def input_tokens(turn: AgentTurnContext) -> int:
    """About how many tokens the conversation of the turn's next model call has, from its length."""
    summary = turn.context_summary
    notes = [
        f"{CONTEXT_SUMMARY_NOTE_HEADER}\n{summary.text}" if summary is not None else "",
        build_plan_note(turn.plan, turn.interaction_mode) or "",
    ]
    return sum(map(_tokens, notes)) + sum(map(_message_tokens, turn.messages)) + _pending_tokens(turn)


def compaction_cutoff(turn: AgentTurnContext, retained_token_budget: int) -> int | None:
    """The sequence of the last message to summarise, or None when nothing can or need be.

    What stays begins with a user message or a response, and right before it every call has its result. The active
    turn's user message stays, unless the turn alone is larger than the budget.
    """
    messages = turn.messages
    sizes = map(_message_tokens, reversed(messages))
    # Tokens that stay when everything before this position is cut off.
    kept = list(accumulate(sizes, initial=_pending_tokens(turn)))[::-1]
    if kept[0] <= retained_token_budget:
        return None  # summarising again and again would make nothing smaller that is too large besides the messages
    turn_start = next(
        (position for position, message in enumerate(messages) if message.turn_id == turn.turn_id), len(messages)
    )
    positions = list(_positions_between_rounds(messages))
    if kept[turn_start] <= retained_token_budget:
        positions = [position for position in positions if position <= turn_start]
    if not positions:
        return None
    fitting = (position for position in positions if kept[position] <= retained_token_budget)
    return messages[next(fitting, positions[-1]) - 1].sequence


def _positions_between_rounds(messages: Sequence[AgentMessage]) -> Iterable[int]:
    missing_results = 0
    for position, message in enumerate(messages):
        if message.role == "tool":
            missing_results -= 1
            continue
        if continues_previous(message.framework_item):
            continue
        if position and missing_results <= 0:
            yield position
        missing_results = len(message.tool_calls)


async def summarize(model: Model | str | None, request: ContextSummaryRequest) -> ContextSummaryResult:
    """Make one model call without tools; nothing of it streams to the user.

    Args:
        model: The model of the session.
        request: What to summarise; its oldest messages are left out when it would not fit.

    Raises:
        AgentRunRefusedError: The provider refuses the request for good.
    """
    with refusing_hopeless_errors():
        asked, settings = without_client_retries(model)
        summarizer: Agent[Any, Any] = Agent(
            asked, instructions=CONTEXT_SUMMARY_INSTRUCTIONS, model_settings=cast("ModelSettings", settings)
        )
        history = _summary_history(request)
        async with summarizer.iter(SUMMARY_REQUEST_TEXT, message_history=history, infer_name=False) as run:
            node: Any = run.next_node
            while not Agent.is_call_tools_node(node):
                if Agent.is_model_request_node(node) and can_stream(model):
                    await _consume(node, run)
                node = await run.next(node)
            response: ModelResponse = node.model_response
    return ContextSummaryResult(
        text=response_text(response),
        usage=call_usage(response),
        model_call_metadata=model_call_metadata(response, model),
    )


async def _consume(node: Any, run: Any) -> None:
    """Read the stream of a model that may know no other way to answer; users do not see a summary."""
    async with node.stream(run.ctx) as stream:
        async for _ in stream:
            pass


def _summary_history(request: ContextSummaryRequest) -> list[ModelMessage]:
    """The messages behind the summary before them; without the oldest rounds when all would not fit."""
    messages = request.messages
    previous = summary_note(request.previous_summary)
    sizes = [_message_tokens(message) for message in messages]
    fixed = [CONTEXT_SUMMARY_INSTRUCTIONS, SUMMARY_REQUEST_TEXT]
    if request.previous_summary is not None:
        fixed.append(request.previous_summary.text)
    available = request.input_token_budget - sum(map(_tokens, fixed))
    if sum(sizes) <= available:
        return [*previous, *load_history(messages)]
    available -= _tokens(context_summary_omission_note(len(messages)))
    omitted = 0
    for position in _positions_between_rounds(messages):
        if sum(sizes[omitted:]) <= available:
            break
        omitted = position
    note = ModelRequest(parts=[UserPromptPart(context_summary_omission_note(omitted))])
    return [*previous, note, *load_history(messages[omitted:])]
