"""Pydantic AI in the conformance suite."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import TextPart as FrameworkText
from pydantic_ai.messages import ToolCallPart as FrameworkCall
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.usage import RequestUsage

from dex_agents import AgentSessionFlow, ToolExecutionError, ToolTaskPoll
from dex_agents_conformance import (
    AdapterConformance,
    Capability,
    ConversationScript,
    ProviderRequest,
    ReasoningPart,
    RequestItem,
    RequestOutput,
    RequestToolResult,
    RequestUserText,
    ScriptedReply,
    ScriptedTool,
    ScriptedToolFailure,
    StrictProvider,
    TextPart,
    ToolCallPart,
)
from dex_agents_pydantic_ai import RemoteTask, create_pydantic_ai_session_flow, current_tool_call
from dex_agents_pydantic_ai.tool_results import tool_part_text

PROVIDER = "conformance"


class StrictModel(Model):
    """Asks the suite's provider, the way the framework's own models ask theirs."""

    def __init__(self, script: ConversationScript, name: str = "") -> None:
        super().__init__()
        self._strict = StrictProvider(script)
        self._name = name

    @property
    def model_name(self) -> str:
        return self._name or "scripted"

    @property
    def system(self) -> str:
        return PROVIDER

    async def request(
        self, messages: list[ModelMessage], model_settings: Any, model_request_parameters: ModelRequestParameters
    ) -> ModelResponse:
        reply = await self._strict.reply(self._request(messages, model_request_parameters))
        return ModelResponse(
            parts=[_response_part(part) for part in reply.parts],
            usage=_usage(reply),
            model_name="scripted",
            finish_reason=_finish_reason(reply),
        )

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: Any,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncIterator[StreamedResponse]:
        call = self._strict.open(self._request(messages, model_request_parameters))
        yield StrictStream(model_request_parameters=model_request_parameters, call=call)

    def _request(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> ProviderRequest:
        systems = [
            part.content
            for message in messages
            if message.kind == "request"
            for part in message.parts
            if isinstance(part, SystemPromptPart)
        ]
        instructions = next((message.instructions for message in reversed(messages) if message.kind == "request"), None)
        return ProviderRequest(
            instructions="\n".join([*systems, *([instructions] if instructions else [])]),
            items=tuple(item for message in messages for item in _request_items(message)),
            tool_names=tuple(tool.name for tool in parameters.function_tools),
            model=self._name,
        )


@dataclass
class StrictStream(StreamedResponse):
    """A streamed reply of the suite's provider."""

    call: Any
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        parts = self.call.reply.parts
        done = 0
        async for piece in self.call.pieces():
            while done < piece.part_number:
                for event in self._whole(done, parts[done]):
                    yield event
                done += 1
            add = (
                self._parts_manager.handle_text_delta
                if piece.kind == "text"
                else self._parts_manager.handle_thinking_delta
            )
            for event in add(vendor_part_id=piece.part_number, content=piece.text):
                yield event
        for index in range(done, len(parts)):
            for event in self._whole(index, parts[index]):
                yield event
        self._usage = _usage(self.call.reply)
        self.finish_reason = _finish_reason(self.call.reply)

    def _whole(self, index: int, part: Any) -> Iterator[Any]:
        """What of a part no piece says."""
        if isinstance(part, ToolCallPart):
            yield self._parts_manager.handle_part(vendor_part_id=index, part=_response_part(part))
        elif isinstance(part, ReasoningPart):
            yield from self._parts_manager.handle_thinking_delta(
                vendor_part_id=index, content="", signature=part.signature, provider_name=PROVIDER
            )
        elif not part.text:
            yield self._parts_manager.handle_part(vendor_part_id=index, part=_response_part(part))

    async def close_stream(self) -> None:
        """Nothing is open."""

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def provider_name(self) -> str:
        return PROVIDER

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self.started


def _usage(reply: ScriptedReply) -> RequestUsage:
    if reply.usage is None:
        return RequestUsage()
    return RequestUsage(
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        cache_read_tokens=reply.usage.cached_input_tokens,
        cache_write_tokens=reply.usage.cache_write_tokens,
        details={"reasoning_tokens": reply.usage.reasoning_tokens},
    )


def _finish_reason(reply: ScriptedReply) -> Any:
    known = {"stop": "stop", "length": "length", "content_filter": "content_filter", "tool_calls": "tool_call"}
    return known.get(str(reply.resolved_finish_reason))


def _response_part(part: Any) -> Any:
    match part:
        case ReasoningPart():
            return ThinkingPart(part.text, signature=part.signature, provider_name=PROVIDER)
        case TextPart():
            return FrameworkText(part.text)
        case ToolCallPart():
            return FrameworkCall(part.tool_name, part.arguments, tool_call_id=part.tool_call_id)


def _request_items(message: ModelMessage) -> list[RequestItem]:
    if isinstance(message, ModelResponse):
        output = [part for part in map(_request_part, message.parts) if part is not None]
        return [RequestOutput(parts=tuple(output))] if output else []
    items: list[RequestItem] = []
    parts: Any = message.parts
    for part in parts:
        if isinstance(part, SystemPromptPart):
            continue
        if isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name is not None):
            items.append(RequestToolResult(tool_call_id=part.tool_call_id, output=tool_part_text(part)))
        elif isinstance(part, UserPromptPart):
            text = str(part.content)
            # Newer versions tell the model what is wrong with its reply in the user's place.
            items.append(RequestUserText(text=text, is_framework_note=text.startswith("<system>")))
        else:
            items.append(RequestUserText(text=part.model_response(), is_framework_note=True))
    return items


def _request_part(part: Any) -> Any:
    if isinstance(part, ThinkingPart):
        return ReasoningPart(text=part.content, signature=part.signature or "")
    if isinstance(part, FrameworkCall):
        arguments = part.args_as_json_str()
        return ToolCallPart(tool_call_id=part.tool_call_id, tool_name=part.tool_name, arguments=arguments)
    return TextPart(text=part.content) if part.content.strip() else None


def _json_text(value: object) -> str:
    """What the framework makes of a value that JSON has as text; older versions keep the quotes."""
    return ToolReturnPart("tool", value, tool_call_id="call").model_response_str()


def _key() -> str:
    key = current_tool_call().idempotency_key
    assert key is not None
    return key


def _tool(tool: ScriptedTool) -> Tool[None]:
    async def run(value: str) -> Any:
        answers = [
            current_tool_call().ask_user(asked.question, choices=asked.choices, allows_free_text=asked.allows_free_text)
            for asked in tool.questions
        ]
        try:
            return await tool.run(", ".join(answers) or value, idempotency_key=_key())
        except ScriptedToolFailure as failure:
            raise ToolExecutionError(str(failure)) from failure

    async def run_with_default(value: str = "") -> Any:
        return await run(value)

    def run_blocking(value: str = "") -> Any:
        try:
            return tool.run_blocking(value, idempotency_key=_key())
        except ScriptedToolFailure as failure:
            raise ToolExecutionError(str(failure)) from failure

    function: Any = run_blocking if tool.is_blocking else run if tool.requires_value else run_with_default
    metadata = None if tool.has_session_policy or tool.effect is None else {"effect": tool.effect}
    return Tool(
        function,
        name=tool.name,
        description=tool.description,
        max_retries=5,
        requires_approval=bool(tool.requires_approval) and not tool.has_session_policy,
        metadata=metadata,
    )


def _toolsets(script: ConversationScript) -> list[Any]:
    if not script.mcp_servers:
        return []
    from dex_agents_conformance.mcp_source import make_mcp_tool_source  # the MCP SDK takes a second to import
    from dex_agents_pydantic_ai.mcp_tools import McpToolSourceToolset

    return [McpToolSourceToolset(make_mcp_tool_source(script))]


def _task(tool: ScriptedTool) -> RemoteTask:
    def poll(poll: ToolTaskPoll) -> Any:
        try:
            return tool.poll_task(poll.input_answers)
        except ScriptedToolFailure as failure:
            raise ToolExecutionError(str(failure)) from failure

    return RemoteTask(poll=poll, cancel=lambda cancellation: tool.cancel_task())


class Adapter(AdapterConformance):
    """The adapter can do everything."""

    framework = "pydantic-ai-slim"
    capabilities = frozenset(Capability)
    result_texts = {
        "text": "plain text",
        "empty_text": "",
        "none": "",
        "whole_number": "7",
        "fraction": "2.5",
        "truth": "true",
        "list": '["a",1,null]',
        "dict": '{"b":1,"a":"ü"}',
        "tuple": '[1,"two"]',
        "bytes": _json_text(b"seven"),
        "binary": _json_text(b"\xff\x00\xfe"),
        "date_time": _json_text(datetime(2026, 12, 2, 9, 30, tzinfo=UTC)),
        "decimal": _json_text(Decimal("1.50")),
        "dataclass": '{"number":7,"note":"paid"}',
        "not_a_number": "null",
        "lone_surrogate": "half \N{REPLACEMENT CHARACTER} emoji",
        "unrenderable": None,
    }

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        models = {name: StrictModel(script, name) for name in ("", "small", "large")}
        agent = Agent(
            models[""],
            instructions=script.instructions,
            tools=[_tool(tool) for tool in script.tools],
            toolsets=_toolsets(script),
            retries=5,
        )
        return create_pydantic_ai_session_flow(
            agent,
            script.flow_type,
            resolve_model=lambda settings: models[str(settings.get("model", ""))],
            remote_tasks={tool.name: _task(tool) for tool in script.tools if tool.task is not None},
            **script.flow_options,
        )
