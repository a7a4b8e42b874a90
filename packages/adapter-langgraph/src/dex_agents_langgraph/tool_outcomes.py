"""What a tool call gave: as the session records it, and as the graph's tool node returns it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from dex_agents import AgentToolCall, AgentToolCallStatus, ToolExecutionError, ToolExecutionResult, tool_result_text
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_text
from dex_agents_langgraph.checkpoint_state import CheckpointCodec, RefusedStateError
from dex_agents_langgraph.stored_messages import warn_of_dropped_artifact
from dex_agents_langgraph.tool_deferral import CallOutput

__all__ = ["outcome_of", "recorded_output", "result_message"]


def outcome_of(output: CallOutput, call_id: str, codec: CheckpointCodec) -> ToolExecutionResult:
    """What the session records of a tool node's output.

    Text alone is recorded as text. Everything else, such as a `Command`, content blocks or an artifact, is recorded
    beside it.

    Raises:
        ToolExecutionError: The tool failed for the model.
    """
    outputs = output.results
    message = next((found for found in _tool_messages(outputs) if found.tool_call_id == call_id), None)
    is_alone = len(outputs) == 1 and isinstance(outputs[0], ToolMessage)
    if message is not None and message.status == "error" and is_alone:
        # What it wrote into the state before it failed stays there, as in LangGraph.
        writes = _dump(output._replace(results=[]), codec) if output.state_writes else None
        raise ToolExecutionError(str(message.text), framework_result=writes)
    text = "" if message is None else str(message.text)
    is_text = is_alone and message is not None and isinstance(message.content, str) and message.artifact is None
    if is_text and not output.state_writes:
        return ToolExecutionResult(output=text)
    for found in _tool_messages(outputs):
        found.content = (
            sanitize_text(found.content) if isinstance(found.content, str) else sanitize_json_value(found.content)
        )
    try:
        return ToolExecutionResult(output=text, framework_result=_dump(output, codec))
    except RefusedStateError:
        if not any(found.artifact is not None for found in _tool_messages(outputs)):
            raise
    # The tool has run, so its call must not fail for what only the application reads.
    for found in _tool_messages(outputs):
        if found.artifact is not None:
            warn_of_dropped_artifact(found)
            found.artifact = None
    return ToolExecutionResult(output=text, framework_result=_dump(output, codec))


def _dump(output: CallOutput, codec: CheckpointCodec) -> str:
    return codec.dump_value({"results": output.results, "state_writes": [list(write) for write in output.state_writes]})


def _load(text: str | None, codec: CheckpointCodec) -> CallOutput:
    if text is None:
        return CallOutput([])
    stored = codec.load_value(text)
    return CallOutput(stored["results"], [(channel, value) for channel, value in stored["state_writes"]])


def recorded_output(call: AgentToolCall, codec: CheckpointCodec, identity: str) -> Callable[[], CallOutput]:
    """Makes what the tool node returns for a final call.

    Args:
        call: The call.
        codec: Reads what was recorded beside the text.
        identity: Unique for the call, so that its message replaces no other one in the graph's state.
    """

    def make() -> CallOutput:
        text = tool_result_text(call)
        succeeded = call.status is AgentToolCallStatus.SUCCEEDED
        output = _load(call.framework_result, codec)
        if not succeeded or not output.results:
            message = ToolMessage(
                text,
                tool_call_id=call.provider_tool_call_id,
                name=call.tool_name,
                status="success" if succeeded else "error",
                id=_message_id(identity, 0),
            )
            return output._replace(results=[message])
        for number, message in enumerate(_tool_messages(output.results)):
            message.id = message.id or _message_id(identity, number)
            if message.tool_call_id == call.provider_tool_call_id and call.executed_arguments is not None:
                message.content = _with_note(message.content, text, call.output or "")
        return output

    return make


def result_message(call: AgentToolCall, codec: CheckpointCodec, identity: str) -> ToolMessage:
    """The one tool message of a final call, for a transcript that ends without the graph."""
    for message in _tool_messages(recorded_output(call, codec, identity)().results):
        if message.tool_call_id == call.provider_tool_call_id:
            return message
    return ToolMessage(
        tool_result_text(call),
        tool_call_id=call.provider_tool_call_id,
        name=call.tool_name,
        id=_message_id(identity, 0),
    )


def _with_note(content: Any, text: str, output: str) -> Any:
    """What tells the model that a person changed the arguments, in front of what the tool returned."""
    note = text[: len(text) - len(output)]
    return f"{note}{content}" if isinstance(content, str) else [{"type": "text", "text": note}, *content]


def _tool_messages(outputs: list[Any]) -> Iterator[ToolMessage]:
    for output in outputs:
        if isinstance(output, ToolMessage):
            yield output
        elif isinstance(output, Command) and isinstance(output.update, dict):
            for values in output.update.values():
                for value in values if isinstance(values, list) else [values]:
                    if isinstance(value, ToolMessage):
                        yield value


def _message_id(identity: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{identity}/{number}"))
