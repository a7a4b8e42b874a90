"""Live events of a model response that streams."""

from __future__ import annotations

from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from dex_agents import AgentEventWriter

__all__ = ["response_reasoning", "response_text", "write_stream_event", "write_whole_response"]


def response_text(response: ModelResponse) -> str:
    """The visible text of a response."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def response_reasoning(response: ModelResponse) -> str:
    """The visible reasoning of a response."""
    return "".join(part.content for part in response.parts if isinstance(part, ThinkingPart))


def write_stream_event(events: AgentEventWriter, event: object) -> None:
    """Write the text or reasoning that an event of the framework brings; a part's start may bring some already."""
    match event:
        case PartStartEvent(part=TextPart(content=content)) if content:
            events.write_text_delta(content)
        case PartStartEvent(part=ThinkingPart(content=content)) if content:
            events.write_reasoning_delta(content)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=content)) if content:
            events.write_text_delta(content)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(content))) if content:
            events.write_reasoning_delta(content)


def write_whole_response(events: AgentEventWriter, response: ModelResponse) -> None:
    """Write a response that did not stream."""
    if reasoning := response_reasoning(response):
        events.write_reasoning_delta(reasoning)
    if text := response_text(response):
        events.write_text_delta(text)
