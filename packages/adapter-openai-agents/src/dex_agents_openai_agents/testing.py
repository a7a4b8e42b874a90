"""A model of the SDK whose answers a test writes, and which remembers what it was asked; no key, no network."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agents import Model, ModelResponse, Usage
from agents.items import TResponseStreamEvent
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

__all__ = (
    "ScriptedModel",
    "SeenRequest",
    "call_item",
    "reasoning_item",
    "refusal_item",
    "text_item",
)


def text_item(text: str, number: int = 1) -> ResponseOutputMessage:
    """A message of the model."""
    return ResponseOutputMessage(
        id=f"msg_{number}",
        type="message",
        role="assistant",
        status="completed",
        content=[ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])],
    )


def refusal_item(text: str) -> ResponseOutputMessage:
    """A message in which the model refuses."""
    return ResponseOutputMessage(
        id="msg_refusal",
        type="message",
        role="assistant",
        status="completed",
        content=[ResponseOutputRefusal(type="refusal", refusal=text)],
    )


def call_item(name: str, arguments: dict[str, Any] | str = "{}", call_id: str = "call_1") -> ResponseFunctionToolCall:
    """A call of the model."""
    return ResponseFunctionToolCall(
        id=f"fc_{call_id}",
        type="function_call",
        call_id=call_id,
        name=name,
        arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
        status="completed",
    )


def reasoning_item(text: str, number: int = 1, proof: str = "proof==") -> ResponseReasoningItem:
    """Reasoning of the model."""
    return ResponseReasoningItem(
        id=f"rs_{number}",
        type="reasoning",
        summary=[Summary(type="summary_text", text=text)],
        encrypted_content=proof,
    )


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """What the model was asked.

    Attributes:
        instructions: The system prompt.
        items: The conversation as Responses API input items.
        tools: Name, description and schema of every offered tool and handoff.
        tool_choice: Whether and which tool it had to call.
        output_schema: JSON Schema of a structured answer.
        settings: The SDK's model settings.
    """

    instructions: str | None
    items: list[dict[str, Any]]
    tools: list[tuple[str, str, Any]]
    tool_choice: Any
    output_schema: Any
    settings: Any

    @property
    def tool_names(self) -> list[str]:
        """Names of the offered tools, in order."""
        return [name for name, _, _ in self.tools]


#: Items of a response, an exception to raise, or a function of the request that returns one of them.
Answer: TypeAlias = Sequence[Any] | BaseException | Callable[[SeenRequest], Any]


def _response_usage(call_number: int) -> ResponseUsage:
    """Usage that tells the calls apart."""
    details: dict[str, Any] = {"cached_tokens": 7}
    if "cache_write_tokens" in InputTokensDetails.model_fields:
        details["cache_write_tokens"] = 2
    return ResponseUsage(
        input_tokens=100 * call_number,
        output_tokens=10 * call_number,
        total_tokens=110 * call_number,
        input_tokens_details=InputTokensDetails(**details),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=3),
    )


class ScriptedModel(Model):
    """Answers in order, streaming or not.

    Args:
        answers: What it answers: items of a response, an exception to raise, or a function of the request, sync or
            async, that gives one of them. Functions suit sessions whose Steps run in several processes.
        name: Name of the model.

    Attributes:
        requests: What it was asked, oldest first.
        closed_streams: How many streams ended, also by cancellation.
    """

    def __init__(self, *answers: Answer, name: str = "scripted-1") -> None:
        self.model = name
        self.answers = list(answers)
        self.requests: list[SeenRequest] = []
        self.closed_streams = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer without streaming."""
        output = await self._answer(args, kwargs)
        usage = _response_usage(len(self.requests))
        return ModelResponse(
            output=output,
            usage=Usage(
                requests=1,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                total_tokens=usage.total_tokens,
                input_tokens_details=usage.input_tokens_details,
                output_tokens_details=usage.output_tokens_details,
            ),
            response_id=f"resp_{len(self.requests)}",
        )

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Answer in pieces."""
        try:
            output = await self._answer(args, kwargs)
            number = len(self.requests)
            yield ResponseCreatedEvent(type="response.created", response=self._response(number, []), sequence_number=0)
            for index, item in enumerate(output):
                for event in _stream_events(item, index):
                    yield event
            yield ResponseCompletedEvent(
                type="response.completed", response=self._response(number, output, is_complete=True), sequence_number=9
            )
        finally:
            self.closed_streams += 1

    def _response(self, number: int, output: list[Any], *, is_complete: bool = False) -> Response:
        return Response(
            id=f"resp_{number}",
            created_at=0,
            model=f"{self.model}-2026",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
            status="completed" if is_complete else "in_progress",
            usage=_response_usage(number) if is_complete else None,
        )

    async def _answer(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        names = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        items = given["input"]
        request = SeenRequest(
            instructions=given["system_instructions"],
            items=[{"role": "user", "content": items}] if isinstance(items, str) else json.loads(json.dumps(items)),
            tools=[_offered(tool) for tool in (*given["tools"], *given["handoffs"])],
            tool_choice=given["model_settings"].tool_choice,
            output_schema=None if given["output_schema"] is None else given["output_schema"].json_schema(),
            settings=given["model_settings"],
        )
        self.requests.append(request)
        if not self.answers:
            raise AssertionError("the model was asked once more than the test expects")
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer(request)
            if hasattr(answer, "__await__"):
                answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        return list(answer)


def _offered(tool: Any) -> tuple[str, str, Any]:
    """What the model reads of a tool or a handoff: name, description, schema."""
    if hasattr(tool, "tool_name"):
        return tool.tool_name, tool.tool_description, tool.input_json_schema
    return tool.name, getattr(tool, "description", ""), getattr(tool, "params_json_schema", None)


def _stream_events(item: Any, index: int) -> list[TResponseStreamEvent]:
    """The events of one item, in pieces of four characters."""
    events: list[TResponseStreamEvent] = []
    common: dict[str, Any] = {"output_index": index, "sequence_number": 1}
    if isinstance(item, ResponseOutputMessage):
        part = item.content[0]
        text = part.text if isinstance(part, ResponseOutputText) else ""
        events += [
            ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=text[start : start + 4],
                item_id=item.id,
                content_index=0,
                logprobs=[],
                **common,
            )
            for start in range(0, len(text), 4)
        ]
    if isinstance(item, ResponseReasoningItem):
        events.append(
            ResponseReasoningSummaryTextDeltaEvent(
                type="response.reasoning_summary_text.delta",
                delta=item.summary[0].text,
                item_id=item.id,
                summary_index=0,
                **common,
            )
        )
    events.append(ResponseOutputItemDoneEvent(type="response.output_item.done", item=item, **common))
    return events
