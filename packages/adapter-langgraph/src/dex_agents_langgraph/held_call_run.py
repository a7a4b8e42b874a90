"""One tool call in a Step of its own: the graph is entered again where the call is pending, and nothing else runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException
from langgraph.types import Command

from dex_agents import (
    DeferredToolExecution,
    DeferredToolOutcome,
    QuestionAnswer,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
)
from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED, unknown_tool_text
from dex_agents_langgraph.checkpoint_state import CheckpointCodec
from dex_agents_langgraph.model_step_outcome import state_of_run
from dex_agents_langgraph.private_names import is_result_formatting_error
from dex_agents_langgraph.stored_messages import StoredMessages
from dex_agents_langgraph.tool_call_context import IDEMPOTENCY_KEY, entered_tool_call
from dex_agents_langgraph.tool_deferral import ToolDeferral, active_deferral
from dex_agents_langgraph.tool_outcomes import outcome_of
from dex_agents_langgraph.user_interrupts import (
    answer_value,
    has_schema,
    interrupt_id_of,
    is_tool_approval,
    question_of,
)

__all__ = ["run_held_call"]


async def run_held_call(
    call: DeferredToolExecution,
    graph: Any,
    codec: CheckpointCodec,
    *,
    config: RunnableConfig,
    context: Any,
    has_remote_tasks: bool,
) -> DeferredToolOutcome:
    """Run a call that a tool node held back, or ask what a node's interrupt asks.

    Args:
        call: The call.
        graph: The copy of the graph for tool calls.
        codec: Reads and writes its states.
        config: The run's config.
        context: The run's context.
        has_remote_tasks: Whether the session can follow remote work of the tool.

    Raises:
        ToolExecutionError: A failure for the model.
        Exception: What the tool raised.
    """
    if interrupt_id_of(call.tool_call.tool_source_reference) is not None:
        return _ask_for_node(call)
    stored = StoredMessages(call.messages)
    continuation = _continuation(call)
    state = call.framework_run_state if continuation is None else None
    saver = codec.load(state_of_run(state) if state else (continuation or {})["state"], stored)
    deferral = ToolDeferral(
        run_key=call.tool_call.tool_source_reference,
        run_call=lambda held: {**held, "args": _arguments(call, held)},
        call_configurable={IDEMPOTENCY_KEY: call.idempotency_key},
    )
    running = graph.copy({"checkpointer": saver})
    graph_input: Any = None if continuation is None else Command(resume=_resume(call, continuation))
    token = active_deferral.set(deferral)
    try:
        with entered_tool_call(call, has_remote_tasks=has_remote_tasks) as session_call:
            async for _ in running.astream(
                graph_input, config, context=context, stream_mode="values", durability="sync"
            ):
                pass
    except ToolException as error:
        raise ToolExecutionError(str(error)) from error
    except Exception as error:
        if is_result_formatting_error(error):
            text = f"the tool {call.tool_call.tool_name} ran, but its result has no text: {type(error).__name__}"
            raise ToolExecutionError(f"{text}: {error}") from error
        raise
    finally:
        active_deferral.reset(token)
    if deferral.output is not None and session_call.started_task is not None:
        return session_call.started_task
    if deferral.output is not None:
        return outcome_of(deferral.output, _graph_call_id(call), codec)
    if not deferral.questions:
        raise ToolExecutionError(unknown_tool_text(call.tool_call.tool_name))
    asked = deferral.questions[0]
    next_continuation = {
        "state": codec.dump(saver, stored, lambda namespace: True),
        "interrupt_id": asked.id,
        "has_schema": has_schema(asked),
        "is_approval": is_tool_approval(asked.value),
    }
    return question_of(asked, json.dumps(next_continuation))


def _ask_for_node(call: DeferredToolExecution) -> DeferredToolOutcome:
    arguments = json.loads(call.tool_call.arguments)
    if not call.input_answers:
        return ToolInputRequested(question=arguments["question"])
    answer = call.input_answers[-1]
    _check_answered(answer)
    value = answer_value(answer, has_schema=arguments["has_schema"], is_approval=False)
    return ToolExecutionResult(output=answer.answer or "", framework_result=json.dumps(value))


def _continuation(call: DeferredToolExecution) -> Mapping[str, Any] | None:
    text = call.tool_call.input_continuation
    return None if text is None or not call.input_answers else dict(json.loads(text))


def _resume(call: DeferredToolExecution, continuation: Mapping[str, Any]) -> dict[str, Any]:
    answer = call.input_answers[-1]
    if not continuation["is_approval"]:
        _check_answered(answer)
    value = answer_value(answer, has_schema=continuation["has_schema"], is_approval=continuation["is_approval"])
    return {continuation["interrupt_id"]: value}


def _check_answered(answer: QuestionAnswer) -> None:
    if answer.resolution == "declined":
        raise ToolExecutionError(answer.rejection_message or QUESTION_DECLINED)
    if answer.resolution == "deadline_passed":
        raise ToolExecutionError(QUESTION_DEADLINE_PASSED)


def _arguments(call: DeferredToolExecution, held: Mapping[str, Any]) -> Any:
    changed = call.tool_call.executed_arguments
    return held["args"] if changed is None else json.loads(changed)


def _graph_call_id(call: DeferredToolExecution) -> str:
    return call.tool_call.provider_tool_call_id
