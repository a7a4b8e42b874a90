"""Running one deferred call through the framework: a run that sees this call alone and ends before any model call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_ai.usage import RunUsage
from pydantic_graph import End

from dex_agents import (
    DeferredToolExecution,
    DeferredToolOutcome,
    ToolEffect,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
)
from dex_agents.session.texts import unknown_tool_text
from dex_agents_pydantic_ai import private_names
from dex_agents_pydantic_ai.agent_runs import AgentRuns
from dex_agents_pydantic_ai.current_tool_call import CONTEXT_METADATA_KEY, SessionContext, tool_call_context
from dex_agents_pydantic_ai.framework_messages import IncompatibleFrameworkVersionError, decode_messages
from dex_agents_pydantic_ai.run_capability import SessionCapability
from dex_agents_pydantic_ai.run_errors import error_text
from dex_agents_pydantic_ai.run_state import RunState, decode_run_state
from dex_agents_pydantic_ai.tool_policies import ToolReference, decode_reference
from dex_agents_pydantic_ai.tool_questions import SwallowedQuestionError, ToolQuestions
from dex_agents_pydantic_ai.tool_results import ToolResultPart, encode_tool_result, is_retry, tool_part_text

__all__ = ["APPROVE", "EnqueuedMessagesError", "UnrenderableToolResultError", "execute_tool_call"]

#: The one answer that approves a call whose tool asked for approval; declining the question rejects it.
APPROVE = "Approve"

_APPROVAL_ASKED = "approval"
_RESULT_ASKED = "result"
_ANSWER_ASKED = "answer"


class EnqueuedMessagesError(Exception):
    """A tool called `ctx.enqueue`, whose messages cannot reach the model from a Step of its own.

    Args:
        tool_name: The tool.
    """

    is_retryable = False

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"the tool {tool_name} called ctx.enqueue, which a durable session cannot deliver; return a "
            "ToolReturn with content instead"
        )


class UnrenderableToolResultError(ValueError):
    """A tool ran to its end, but its result cannot be turned into text; its effect may have taken place.

    Args:
        tool_name: The tool.
        reason: What the framework says about the result.
    """

    is_retryable = False

    def __init__(self, tool_name: str, reason: str) -> None:
        super().__init__(f"the tool {tool_name} ran to its end, but its result cannot be turned into text: {reason}")


async def execute_tool_call(runs: AgentRuns, call: DeferredToolExecution) -> DeferredToolOutcome:
    """Run one call.

    Raises:
        ToolExecutionError: A failure for the model: the tool asks for a retry, failed, or has no valid arguments.
        ToolTimedOutError: A tool that writes did not end in time.
        EnqueuedMessagesError: The tool called `ctx.enqueue`.
        SwallowedQuestionError: The tool went on after it asked the user.
        Exception: Whatever else the tool raised; its effect decides what follows.
    """
    reference = decode_reference(call.tool_call.tool_source_reference)
    try:
        state = decode_run_state(call.framework_run_state)
        usage, history = state.run_usage(), _history(call, reference)
    except IncompatibleFrameworkVersionError as error:
        # The tool was not run. The turn's next model step says the same, and ends the turn.
        raise ToolExecutionError(error_text(error)) from error
    context = SessionContext(
        flow_id=call.flow_id,
        turn_id=call.turn_id,
        attempt=call.attempt,
        events=call.events,
        session_settings=state.session_settings,
        deadline=call.deadline,
        tool_call=call.tool_call,
        idempotency_key=call.idempotency_key,
        questions=ToolQuestions(call.input_answers),
    )
    answered = _answered_call(call)
    if answered is not None:
        return answered
    with tool_call_context(context):
        return await _run(runs, call, context, state, reference, usage, history)


async def _run(
    runs: AgentRuns,
    call: DeferredToolExecution,
    context: SessionContext,
    state: RunState,
    reference: ToolReference,
    usage: RunUsage,
    history: Sequence[ModelMessage],
) -> DeferredToolOutcome:
    name, call_id = call.tool_call.tool_name, call.tool_call.tool_call_id
    capability = SessionCapability(
        {**state.tool_retries, name: reference.retry},
        runs_tools=True,
        timeout_is_unknown=call.tool_call.effect is not ToolEffect.READ,
    )
    deps = await runs.step_deps(context)
    async with runs.open(
        context,
        deps,
        history,
        capability,
        usage=usage,
        deferred_tool_results=_approval(call, context, reference),
    ) as run:
        node: Any = run.next_node
        while not Agent.is_call_tools_node(node):
            if Agent.is_model_request_node(node):
                raise AssertionError("a call is run before any request to a model")
            node = await run.next(node)
        try:
            following: Any = await run.next(node)
        except UnexpectedModelBehavior as error:
            text = error_text(error)
            raise ToolExecutionError(text, framework_result=encode_tool_result((), ends_turn=text)) from error
        if reference.is_known and name not in private_names.offered_tools(run):
            raise ToolExecutionError(unknown_tool_text(name))  # it was removed since
        if private_names.pending_messages(run):
            raise EnqueuedMessagesError(name)
        if capability.started is not None:
            return capability.started
        asked = context.questions.asked
        if asked is not None:
            if capability.requests is None:
                raise SwallowedQuestionError(name)
            return replace(asked, continuation=_continuation(_ANSWER_ASKED, is_approved=_is_approved_in_tool(call)))
        if capability.requests is not None:
            return _deferred(name, call_id, capability.requests)
        if isinstance(following, End):
            raise AssertionError(f"the tool {name} ended the run")
        return _outcome(name, call_id, following.request.parts)


def _history(call: DeferredToolExecution, reference: ToolReference) -> list[ModelMessage]:
    part = ToolCallPart(
        call.tool_call.tool_name, call.tool_call.arguments_to_run, tool_call_id=call.tool_call.tool_call_id
    )
    evidence = decode_messages(reference.evidence, [reference.pydantic_ai] * len(reference.evidence))
    return [ModelRequest(parts=[UserPromptPart("")]), *evidence, ModelResponse(parts=[part])]


def _approval(
    call: DeferredToolExecution, context: SessionContext, reference: ToolReference
) -> DeferredToolResults | None:
    """Approved is what a person approved, or what the session's policy says needs none; nothing else."""
    is_approved = call.tool_call.requires_approval or reference.is_approval_waived or _is_approved_in_tool(call)
    if not is_approved:
        return None
    call_id = call.tool_call.tool_call_id
    return DeferredToolResults(
        approvals={call_id: ToolApproved()}, metadata={call_id: {CONTEXT_METADATA_KEY: context.metadata()}}
    )


def _continuation(asked: str, *, is_approved: bool = False) -> str:
    return json.dumps({"asked": asked, "is_approved": is_approved})


def _is_approved_in_tool(call: DeferredToolExecution) -> bool:
    """Whether a person gave the approval that the tool itself asked for, also before its latest question."""
    if _answer(call, _APPROVAL_ASKED) == APPROVE:
        return True
    continuation = call.tool_call.input_continuation
    return continuation is not None and json.loads(continuation).get("is_approved") is True


def _answer(call: DeferredToolExecution, asked: str) -> str | None:
    """The answer to the tool's latest question, when that asked for this."""
    if not call.input_answers or call.tool_call.input_continuation is None:
        return None
    if json.loads(call.tool_call.input_continuation).get("asked") != asked:
        return None
    return call.input_answers[-1].answer


def _answered_call(call: DeferredToolExecution) -> ToolExecutionResult | None:
    """The result of a call that is run elsewhere, once somebody has sent it."""
    answer = _answer(call, _RESULT_ASKED)
    return None if answer is None else ToolExecutionResult(output=answer)


def _deferred(name: str, call_id: str, requests: DeferredToolRequests) -> ToolInputRequested:
    metadata = requests.metadata.get(call_id) or {}
    shown = f" {json.dumps(metadata, ensure_ascii=False, default=str)}" if metadata else ""
    if requests.approvals:
        return ToolInputRequested(
            question=f"Approve the call of {name}?{shown}",
            choices=(APPROVE,),
            allows_free_text=False,
            continuation=_continuation(_APPROVAL_ASKED),
        )
    return ToolInputRequested(
        question=f"What is the result of {name}?{shown}", continuation=_continuation(_RESULT_ASKED)
    )


def _outcome(name: str, call_id: str, parts: Sequence[ModelRequestPart]) -> ToolExecutionResult:
    own: ToolResultPart = next(
        part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_call_id == call_id
    )
    added = [part for part in parts if isinstance(part, UserPromptPart)]
    try:
        text = tool_part_text(own)
        framework_result = encode_tool_result([own, *added])
    except Exception as error:  # whatever a result's serializer raises, the tool has run to its end
        raise UnrenderableToolResultError(name, str(error)) from error
    if is_retry(own) or getattr(own, "outcome", "success") != "success":
        raise ToolExecutionError(text, framework_result=framework_result)
    return ToolExecutionResult(output=text, framework_result=framework_result)
