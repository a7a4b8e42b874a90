"""Results of tool calls in the framework's own form: kept beside the text, and put back into the conversation."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from pydantic_ai.messages import (
    ModelRequest,
    ModelRequestPart,
    RetryPromptPart,
    ToolReturnPart,
)
from typing_extensions import get_type_hints

from dex_agents import AgentToolCall, AgentToolCallStatus, FrameworkMessage, tool_result_text
from dex_agents.session.sanitizer import sanitize_error_text, sanitize_text
from dex_agents_pydantic_ai.framework_messages import (
    FRAMEWORK_VERSION,
    NO_TIME,
    StoredItem,
    decode_messages,
    encode_item,
    encode_message,
)

__all__ = [
    "StoredToolResult",
    "ToolResultPart",
    "decode_tool_result",
    "encode_tool_result",
    "is_retry",
    "result_messages",
    "retries_after",
    "return_part",
    "tool_part_text",
]

ToolResultPart: TypeAlias = ToolReturnPart | RetryPromptPart
Outcome: TypeAlias = Literal["success", "failed", "denied", "interrupted"]

_OUTCOMES: dict[AgentToolCallStatus, Outcome] = {
    AgentToolCallStatus.SUCCEEDED: "success",
    AgentToolCallStatus.FAILED: "failed",
    AgentToolCallStatus.REJECTED: "denied",
    AgentToolCallStatus.OUTCOME_UNKNOWN: "failed",
}
_READABLE_OUTCOMES = str(get_type_hints(ToolReturnPart)["outcome"])
_MARKS_ERRORS = "wrap_if_error" in inspect.signature(ToolReturnPart.model_response_str).parameters


class StoredToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `framework_result` of a call holds.

    Attributes:
        pydantic_ai: The version that wrote it.
        request: JSON of one request with the call's part first, and with what the tool adds behind it; or none.
        is_retry: Whether the tool asks the model to call it again.
        ends_turn: Why the framework would end its run; the turn ends with it.
    """

    pydantic_ai: str
    request: tuple[msgspec.Raw, ...] = ()
    is_retry: bool = False
    ends_turn: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StoredToolResult)


def is_retry(part: object) -> bool:
    """Whether a part asks the model to call the tool again, which counts against the tool's retries."""
    return isinstance(part, RetryPromptPart) or getattr(part, "outcome", None) == "retried"


def retries_after(
    before: Mapping[str, int], answers: Sequence[ModelRequestPart], output_tools: Collection[str]
) -> dict[str, int]:
    """How often each tool asked for a retry in a row, after calls that the framework answered within a model step.

    Args:
        before: The counts before them.
        answers: What the framework answered.
        output_tools: Names of the tools that give the final output; one that succeeds ends the run, so that any other
            answer to it does not end its count.
    """
    retries = dict(before)
    named = [part for part in answers if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_name]
    retried = {part.tool_name for part in named if is_retry(part)}
    for name in {part.tool_name for part in named}:
        assert name is not None
        if name in retried:
            retries[name] = before.get(name, 0) + 1
        elif name not in output_tools:
            retries.pop(name, None)
    return retries


def tool_part_text(part: ToolResultPart) -> str:
    """What the model reads of a part; the provider's mark of errors is not in it."""
    if isinstance(part, RetryPromptPart):
        return part.model_response()
    if _MARKS_ERRORS:
        return part.model_response_str(wrap_if_error=False)
    return part.model_response_str()


def encode_tool_result(parts: Sequence[ModelRequestPart], ends_turn: str | None = None) -> str | None:
    """The `framework_result` of a call; None when the text alone says everything.

    Args:
        parts: The call's part, and what the tool adds behind it.
        ends_turn: Why the framework would end its run.
    """
    if ends_turn is None and len(parts) == 1 and _is_plain_text(parts[0]):
        return None
    request = (msgspec.Raw(encode_message(ModelRequest(parts=list(parts))).encode()),) if parts else ()
    stored = StoredToolResult(
        pydantic_ai=FRAMEWORK_VERSION,
        request=request,
        is_retry=any(map(is_retry, parts)),
        ends_turn=ends_turn,
    )
    return _encoder.encode(stored).decode()


def _is_plain_text(part: ModelRequestPart) -> bool:
    if not isinstance(part, ToolReturnPart) or part.outcome != "success":
        return False
    return isinstance(part.content, str) and part.metadata is None


def decode_tool_result(text: str | None) -> StoredToolResult | None:
    """What `encode_tool_result` stored."""
    return None if text is None else _decoder.decode(text)


def result_messages(
    calls: Iterable[AgentToolCall], call_ids: Sequence[str], *, texts_only: bool = False
) -> list[FrameworkMessage]:
    """One message per final call, in call order; together they are one request of the framework.

    Args:
        calls: The calls of one response, in call order.
        call_ids: Their IDs in that response.
        texts_only: Whether to leave out what only the framework's own form of a result says.

    Raises:
        IncompatibleFrameworkVersionError: A version wrote a result that the installed one cannot read.
    """
    answers = [
        (call, (_text_answer(call, call_id),) if texts_only else _answer(call, call_id))
        for call, call_id in zip(calls, call_ids, strict=True)
    ]
    # As in a run of the framework, what tools add to their results follows all of the results.
    added = [part for _, (_, *rest) in answers for part in rest]
    messages = []
    for position, (call, (part, *_)) in enumerate(answers):
        parts = [part, *added] if position == len(answers) - 1 else [part]
        item = StoredItem(messages=[ModelRequest(parts=parts)], continues_request=True)
        messages.append(
            FrameworkMessage(
                role="tool",
                text=tool_result_text(call),
                tool_call_id=call.tool_call_id,
                framework_item=encode_item(item),
            )
        )
    return messages


def _text_answer(call: AgentToolCall, call_id: str) -> ModelRequestPart:
    return return_part(call.tool_name, tool_result_text(call), call_id, _OUTCOMES[call.status])


def _answer(call: AgentToolCall, call_id: str) -> tuple[ModelRequestPart, ...]:
    """The call's part, and what the tool adds behind it."""
    text = tool_result_text(call)
    stored = decode_tool_result(call.framework_result)
    if stored is None or not stored.request:
        return (_text_answer(call, call_id),)
    (request,) = decode_messages(stored.request, [stored.pydantic_ai])
    part, *added = request.parts
    assert isinstance(part, ToolReturnPart | RetryPromptPart)
    if _repaired(part, call.status) != text:
        # A person changed the arguments, or the session cut the result: the model must read that.
        files = list(part.files) if isinstance(part, ToolReturnPart) else []
        content: Any = [text, *files] if files else text
        part = return_part(call.tool_name, content, call_id, _OUTCOMES[call.status])
    return (dataclasses.replace(part, tool_call_id=call_id), *added)


def _repaired(part: ToolResultPart, status: AgentToolCallStatus) -> str:
    text = tool_part_text(part)
    return sanitize_text(text) if status is AgentToolCallStatus.SUCCEEDED else sanitize_error_text(text)


def return_part(tool_name: str, content: Any, call_id: str, outcome: Outcome) -> ToolReturnPart:
    """A result; an outcome that the installed version does not know is left out."""
    part = ToolReturnPart(tool_name=tool_name, content=content, tool_call_id=call_id, timestamp=NO_TIME)
    return dataclasses.replace(part, outcome=outcome) if f"'{outcome}'" in _READABLE_OUTCOMES else part
