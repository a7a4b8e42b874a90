"""What a model step works with: the framework's conversation, rebuilt from what the session stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    SystemPromptPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

from dex_agents import (
    AgentToolCall,
    AgentToolCallStatus,
    AgentTurnContext,
    ContextSummary,
    FrameworkMessage,
    InteractionMode,
    build_plan_note,
)
from dex_agents.session.built_in_tools import WRITE_TODOS
from dex_agents.session.texts import CONTEXT_SUMMARY_NOTE_HEADER
from dex_agents_pydantic_ai.current_tool_call import SessionContext
from dex_agents_pydantic_ai.framework_messages import load_history
from dex_agents_pydantic_ai.run_errors import AgentRunRefusedError
from dex_agents_pydantic_ai.run_state import RunState, decode_run_state
from dex_agents_pydantic_ai.tool_results import decode_tool_result, result_messages

__all__ = ["StepInput", "added_parts", "previous_calls", "step_input", "summary_note", "with_system_prompts"]

# What comes from outside of the framework, or is stored when it comes into being.
_STORED_ELSEWHERE = frozenset({"user-prompt", "tool-return", "retry-prompt", "retry-feedback"})


@dataclass(frozen=True, kw_only=True)
class StepInput:
    """What a model step works with.

    Attributes:
        context: The step, as the application's code sees it.
        state: What the turn's previous model step left.
        tool_retries: How often each tool asked for a retry in a row, the latest calls included.
        history: The conversation, without system prompts that are not stored.
        result_messages: Results of the latest calls, which are not stored yet.
        succeeded_calls: How many of the latest calls succeeded.
        offered_tools: Names of the function tools the model may be offered; None offers all.
        built_in_tools: The session's own tools that it is offered.
    """

    context: SessionContext
    state: RunState
    tool_retries: Mapping[str, int]
    history: Sequence[ModelMessage]
    result_messages: tuple[FrameworkMessage, ...]
    succeeded_calls: int
    offered_tools: Collection[str] | None
    built_in_tools: tuple[str, ...]

    def run_usage(self) -> RunUsage:
        """What the turn used so far, its latest calls included, as an object of its own that a run may count on.

        Raises:
            IncompatibleFrameworkVersionError: The installed version cannot read what another one wrote.
        """
        usage = self.state.run_usage()
        usage.tool_calls += self.succeeded_calls
        return usage


def step_input(turn: AgentTurnContext) -> StepInput:
    """What the turn's next model step works with.

    Raises:
        AgentRunRefusedError: A tool used up its retries, which ends a run of the framework.
        UnreadableFrameworkItemError: Another runner wrote a message of the session.
        IncompatibleFrameworkVersionError: A version of the framework wrote what the installed one cannot read.
    """
    state = decode_run_state(turn.framework_run_state, turn.session_settings)
    calls = previous_calls(turn)
    for call in calls:
        stored = decode_tool_result(call.framework_result)
        if stored is not None and stored.ends_turn is not None:
            raise AgentRunRefusedError(stored.ends_turn)
    results = tuple(result_messages(calls, state.call_ids)) if calls else ()
    built_in_tools = turn.enabled_built_in_tools
    offered_tools: Collection[str] | None = None
    if turn.turn_limit_reached is not None:
        built_in_tools, offered_tools = (), ()
    elif turn.interaction_mode is InteractionMode.PLANNING:
        built_in_tools = tuple(name for name in built_in_tools if name == WRITE_TODOS)
        offered_tools = built_in_tools
    return StepInput(
        context=SessionContext(
            flow_id=turn.flow_id,
            turn_id=turn.turn_id,
            attempt=turn.attempt,
            events=turn.events,
            session_settings=turn.session_settings,
            deadline=turn.deadline,
        ),
        state=state,
        tool_retries=_tool_retries(state.tool_retries, calls),
        history=_history(turn, results),
        result_messages=results,
        succeeded_calls=sum(call.status is AgentToolCallStatus.SUCCEEDED for call in calls),
        offered_tools=offered_tools,
        built_in_tools=built_in_tools,
    )


def previous_calls(turn: AgentTurnContext) -> list[AgentToolCall]:
    """The calls of the turn's latest model step, whose results are not stored yet, in call order."""
    return sorted(turn.previous_step_tool_calls, key=_deferral_order)


def _deferral_order(call: AgentToolCall) -> int:
    return call.deferral_order


def _tool_retries(before: Mapping[str, int], calls: Sequence[AgentToolCall]) -> dict[str, int]:
    """As the framework counts: a step in which a tool asks for a retry counts once; one in which it returns ends it."""
    retries = dict(before)
    for name in {call.tool_name for call in calls}:
        own = [call for call in calls if call.tool_name == name]
        if any(_asks_for_retry(call) for call in own):
            retries[name] = before.get(name, 0) + 1
        elif any(call.status is AgentToolCallStatus.SUCCEEDED for call in own):
            retries.pop(name, None)
    return retries


def _asks_for_retry(call: AgentToolCall) -> bool:
    if call.status is not AgentToolCallStatus.FAILED:
        return False
    stored = decode_tool_result(call.framework_result)
    # Without a form of the framework, the session refused the arguments.
    return stored is None or stored.is_retry


def summary_note(summary: ContextSummary | None) -> list[ModelMessage]:
    """What the model reads in place of the messages that were summarised."""
    if summary is None:
        return []
    return [ModelRequest(parts=[UserPromptPart(f"{CONTEXT_SUMMARY_NOTE_HEADER}\n{summary.text}")])]


def _history(turn: AgentTurnContext, results: Sequence[FrameworkMessage]) -> list[ModelMessage]:
    start = next(
        (position for position, message in enumerate(turn.messages) if message.turn_id == turn.turn_id),
        len(turn.messages),
    )
    note = build_plan_note(turn.plan, turn.interaction_mode)
    plan: list[ModelMessage] = [] if note is None else [ModelRequest(parts=[UserPromptPart(note)])]
    return [
        *summary_note(turn.context_summary),
        *load_history(turn.messages[:start]),
        *plan,
        *load_history((*turn.messages[start:], *results)),
    ]


def with_system_prompts(history: Sequence[ModelMessage], prompts: Sequence[SystemPromptPart]) -> list[ModelMessage]:
    """The conversation with system prompts where a run of the framework has them: before its first request."""
    messages = list(history)
    first = next((position for position, message in enumerate(messages) if isinstance(message, ModelRequest)), None)
    if prompts and first is not None:
        request = messages[first]
        assert isinstance(request, ModelRequest)
        messages[first] = replace(request, parts=[*prompts, *request.parts])
    return messages


def added_parts(history: Sequence[ModelMessage], sent: ModelRequest) -> list[tuple[int, ModelRequestPart]]:
    """What the framework added to the request it sent, with the positions in the last request of the history.

    Args:
        history: The stored conversation; the requests at its end were sent as one.
        sent: The request that was sent.
    """
    trailing: list[ModelRequest] = []
    for message in reversed(history):
        if not isinstance(message, ModelRequest):
            break
        trailing.append(message)
    known = [part for request in trailing for part in request.parts]
    last = trailing[0].parts if trailing else []
    added: list[tuple[int, ModelRequestPart]] = []
    position = 0
    for part in sent.parts:
        if _contains(known, part):
            position += _contains(last, part)
        elif part.part_kind not in _STORED_ELSEWHERE:
            added.append((position, part))
            position += 1
    return added


def _contains(parts: Sequence[ModelRequestPart], part: ModelRequestPart) -> bool:
    return any(part is other or part == other for other in parts)
