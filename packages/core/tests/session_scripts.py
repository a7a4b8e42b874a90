"""Short forms of what tests let a driven session's model and tools do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ModelStepCompleted, ModelStepToolCallsRequested, RequestedToolCall
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect
from dex_agents.session.values import AgentUsage, FrameworkMessage
from dex_agents.testing import SessionDriver

__all__ = ["ONE_CALL", "answer", "asks", "finish_model", "payloads", "started", "wanted"]

ONE_CALL = AgentUsage(model_calls=1, input_tokens=10, output_tokens=2, total_tokens=12)


def answer(text: str = "done") -> ModelStepCompleted:
    """The model's final answer."""
    message = FrameworkMessage(role="assistant", framework_item=f'"{text}"', text=text)
    return ModelStepCompleted(new_messages=(message,), usage=ONE_CALL)


def wanted(
    tool_call_id: str,
    tool_name: str = "tool",
    *,
    arguments: str = '{"n":1}',
    effect: ToolEffect = ToolEffect.READ,
    requires_approval: bool = False,
    **fields: Any,
) -> RequestedToolCall:
    """One call the model asks for."""
    return RequestedToolCall(
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        arguments=arguments,
        policy=ResolvedToolPolicy(effect=effect, requires_approval=requires_approval),
        **fields,
    )


def asks(*calls: RequestedToolCall, messages: Sequence[FrameworkMessage] = ()) -> ModelStepToolCallsRequested:
    """A response with tool calls."""
    return ModelStepToolCallsRequested(
        framework_run_state="run state", tool_calls=calls, usage=ONE_CALL, new_messages=tuple(messages)
    )


def finish_model(driver: SessionDriver, outcome: Any) -> None:
    """End the running model step."""
    driver.succeed(driver.attempt_of("RunModel"), outcome)


def started(message: str | None = "Hello", **options: Any) -> SessionDriver:
    """A session that was started."""
    driver = SessionDriver(AgentSessionOptions(**options))
    driver.start(message)
    return driver


def payloads(driver: SessionDriver, event_type: str) -> list[dict[str, Any]]:
    """The payloads of every event of a type."""
    return [decode_event_payload(event) for event in driver.events() if event.type == event_type]
