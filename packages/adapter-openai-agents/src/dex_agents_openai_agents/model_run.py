"""One run of the SDK with one model call: what it said, whichever way the run ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunHooks,
    Runner,
    RunResultStreaming,
)
from agents.exceptions import ModelRefusalError
from agents.items import RunItem

from dex_agents import AgentEventWriter, TurnRefusedError
from dex_agents_openai_agents.guardrails import GuardrailTrip
from dex_agents_openai_agents.observed_model import ModelCallLog
from dex_agents_openai_agents.provider_errors import as_session_error
from dex_agents_openai_agents.stored_items import InputItem, item_to_json

__all__ = ["ModelAnswer", "ModelRunCancelledError", "RawCall", "run_model_once"]


class ModelRunCancelledError(RuntimeError):
    """The SDK's run ended without an answer although nobody cancelled the step."""

    def __init__(self) -> None:
        super().__init__("the SDK's run ended without an answer")


@dataclass(frozen=True, kw_only=True)
class RawCall:
    """A call the model asked for.

    Attributes:
        item: The model's own item.
        error: What the SDK tells the model about a call of a tool that the agent has not; None for every other call.
    """

    item: Any
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelAnswer:
    """What came of one model call.

    Attributes:
        items: What the model said, as input items, in order.
        calls: What it asked for, in the order of its output.
        is_final: Whether the SDK took it for the agent's final output.
        trip: The guardrail that stopped the turn.
    """

    items: list[InputItem] = field(default_factory=list)
    calls: tuple[RawCall, ...] = ()
    is_final: bool = False
    trip: GuardrailTrip | None = None


async def run_model_once(
    agent: Agent[Any],
    items: Sequence[InputItem],
    *,
    context: Any,
    run_config: RunConfig,
    hooks: RunHooks[Any] | None,
    log: ModelCallLog,
    events: AgentEventWriter | None,
    is_streaming: bool,
) -> ModelAnswer:
    """Run an agent whose tools are all deferred until its model answered once.

    Args:
        agent: A step's copy of an agent.
        items: The conversation.
        context: The application's context object.
        run_config: The step's run config; its model writes to `log`.
        hooks: The step's hooks.
        log: What is known of the model call.
        events: Receives text and reasoning as they come; None when nobody shall see them.
        is_streaming: Whether the model streams.

    Raises:
        TurnRefusedError: The provider refused the request, or cut the answer off.
        ProviderBusyError: The provider asked to wait.
        ModelBehaviorError: The model said something the SDK cannot use; another attempt may do better.
        Exception: Whatever else came out of the run.
    """
    arguments: dict[str, Any] = {"context": context, "max_turns": 1, "hooks": hooks, "run_config": run_config}
    try:
        if is_streaming:
            result: Any = Runner.run_streamed(agent, list(items), **arguments)  # type: ignore[arg-type]
            await _consume(result, log, events)
        else:
            result = await Runner.run(agent, list(items), **arguments)  # type: ignore[arg-type]
    except MaxTurnsExceeded as error:
        # The SDK would ask the model again, for a reason that `log` and the items tell.
        return _answer(error.run_data.new_items if error.run_data is not None else [], (), is_final=False)
    except ModelRefusalError:
        return ModelAnswer(items=log.output_items(), is_final=True)
    except InputGuardrailTripwireTriggered as error:
        return ModelAnswer(trip=GuardrailTrip.of_input(error))
    except OutputGuardrailTripwireTriggered as error:
        return ModelAnswer(trip=GuardrailTrip.of_output(error))
    except ModelBehaviorError as error:
        if log.cut_off is not None:
            raise TurnRefusedError(f"the provider cut the model's answer off: {log.cut_off}") from error
        raise
    except Exception as error:
        session_error = as_session_error(error)
        if session_error is error:
            raise
        raise session_error from error
    if not result.interruptions and log.call_count == 0:
        raise ModelRunCancelledError()
    return _answer(result.new_items, result.interruptions, is_final=not result.interruptions)


async def _consume(result: RunResultStreaming, log: ModelCallLog, events: AgentEventWriter | None) -> None:
    """Pass deltas on until the run has ended; a cancelled step leaves neither a task nor a request behind."""
    is_complete = False
    try:
        async for event in result.stream_events():
            if events is not None and event.type == "raw_response_event":
                _write_delta(event.data, events)
        is_complete = True
    finally:
        if not is_complete:
            result.cancel(mode="immediate")
        task = getattr(result, "run_loop_task", None)
        if isinstance(task, asyncio.Task):
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the events raise it, unless they were not read to their end
        await log.close()
    # A run that was cancelled from inside ends its events as a finished one does.
    if result.final_output is None and not result.interruptions and not log.is_complete:
        raise ModelRunCancelledError()


def _write_delta(data: Any, events: AgentEventWriter) -> None:
    match data.type:
        case "response.output_text.delta" | "response.refusal.delta":
            events.write_text_delta(data.delta)
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            events.write_reasoning_delta(data.delta)
        case _:
            pass


def _answer(new_items: Sequence[RunItem], interruptions: Sequence[Any], *, is_final: bool) -> ModelAnswer:
    """Split a run's items into what the model said and what it asked for."""
    said = [item for item in new_items if item.type not in ("tool_approval_item", "tool_call_output_item")]
    # The SDK answers a call of an unknown tool itself; in a session that is a call that fails.
    answered = {
        _field(item.raw_item, "call_id"): str(_field(item.raw_item, "output"))
        for item in new_items
        if item.type == "tool_call_output_item"
    }
    waiting = {_call_id(item.raw_item) for item in interruptions}
    calls = []
    for item in said:
        call_id = _call_id(item.raw_item)
        if call_id in waiting:
            calls.append(RawCall(item=item.raw_item))
        elif call_id in answered and _field(item.raw_item, "type") == "function_call":
            calls.append(RawCall(item=item.raw_item, error=answered[call_id]))
    return ModelAnswer(items=[item_to_json(item) for item in said], calls=tuple(calls), is_final=is_final and not calls)


def _call_id(raw: Any) -> Any:
    return _field(raw, "call_id") or _field(raw, "id")


def _field(raw: Any, name: str) -> Any:
    return raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)
