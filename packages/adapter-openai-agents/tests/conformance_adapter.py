"""The OpenAI Agents SDK in the conformance suite."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunContextWrapper,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.items import TResponseStreamEvent
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from dex_agents import AgentSessionFlow, AgentUsage, ToolExecutionError, ToolTaskPoll
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
from dex_agents_openai_agents import RemoteTask, create_openai_agents_session_flow, current_tool_call

set_tracing_disabled(True)


class StrictModel(Model):
    """Asks the suite's provider, the way a Responses API model asks OpenAI's."""

    def __init__(self, script: ConversationScript, name: str = "") -> None:
        self.model = name or "conformance"
        self._provider = StrictProvider(script)
        self._name = name

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """One model call without streaming."""
        request = self._request(args[0], args[1], args[3])
        reply = await self._provider.reply(request)
        usage = Usage() if reply.usage is None else Usage(requests=1, input_tokens=reply.usage.input_tokens)
        return ModelResponse(output=_output(reply, request), usage=usage, response_id="resp")

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """One streaming model call."""
        request = self._request(args[0], args[1], args[3])
        call = self._provider.open(request)
        yield ResponseCreatedEvent(type="response.created", response=self._response([], None), sequence_number=0)
        async for piece in call.pieces():
            common: dict[str, Any] = {
                "delta": piece.text,
                "item_id": "item",
                "output_index": piece.part_number,
                "sequence_number": 1,
            }
            if piece.kind == "text":
                yield ResponseTextDeltaEvent(type="response.output_text.delta", content_index=0, logprobs=[], **common)
            else:
                yield ResponseReasoningSummaryTextDeltaEvent(
                    type="response.reasoning_summary_text.delta", summary_index=0, **common
                )
        output = _output(call.reply, request)
        for index, item in enumerate(output):
            yield ResponseOutputItemDoneEvent(
                type="response.output_item.done", item=item, output_index=index, sequence_number=2
            )
        yield ResponseCompletedEvent(
            type="response.completed", response=self._response(output, call.reply.usage), sequence_number=3
        )

    def _response(self, output: list[Any], usage: AgentUsage | None) -> Response:
        return Response.model_construct(
            id="resp",
            created_at=0.0,
            model="scripted",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
            usage=None if usage is None else _usage(usage),
        )

    def _request(self, instructions: str | None, items: Any, tools: Sequence[Any]) -> ProviderRequest:
        return ProviderRequest(
            instructions=instructions or "",
            items=tuple(_request_items([{"role": "user", "content": items}] if isinstance(items, str) else items)),
            tool_names=tuple(tool.name for tool in tools),
            model=self._name,
        )


def _usage(usage: AgentUsage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=InputTokensDetails.model_construct(
            cached_tokens=usage.cached_input_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
    )


def _request_items(items: Sequence[dict[str, Any]]) -> list[RequestItem]:
    """The conversation with what the model said between two inputs as one output."""
    found: list[RequestItem] = []
    parts: list[Any] = []

    def end_output() -> None:
        if parts:
            found.append(RequestOutput(parts=tuple(parts)))
            parts.clear()

    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            end_output()
            output = item["output"]
            text = output if isinstance(output, str) else json.dumps(output)
            found.append(RequestToolResult(tool_call_id=item["call_id"], output=text))
        elif kind == "message" and item["role"] == "user":
            end_output()
            found.append(RequestUserText(text=item["content"]))
        else:
            parts.append(_part(kind, item))
    end_output()
    return found


def _part(kind: str, item: dict[str, Any]) -> ReasoningPart | TextPart | ToolCallPart:
    if kind == "reasoning":
        return ReasoningPart(text=item["summary"][0]["text"], signature=item["encrypted_content"])
    if kind == "function_call":
        return ToolCallPart(tool_call_id=item["call_id"], tool_name=item["name"], arguments=item["arguments"])
    content = item["content"]
    return TextPart(text=content if isinstance(content, str) else "".join(part["text"] for part in content))


def _output(reply: ScriptedReply, request: ProviderRequest) -> list[Any]:
    # A provider's item IDs never repeat; here the place in the conversation makes them.
    return [_output_item(part, f"{len(request.items)}_{index}") for index, part in enumerate(reply.parts)]


def _output_item(part: ReasoningPart | TextPart | ToolCallPart, place: str) -> Any:
    match part:
        case ReasoningPart():
            return ResponseReasoningItem(
                id=f"rs_{place}",
                type="reasoning",
                summary=[Summary(type="summary_text", text=part.text)],
                encrypted_content=part.signature,
            )
        case TextPart():
            text = ResponseOutputText.model_construct(type="output_text", text=part.text, annotations=[])
            return ResponseOutputMessage.model_construct(
                id=f"msg_{place}", type="message", role="assistant", status="completed", content=[text]
            )
        case ToolCallPart():
            return ResponseFunctionToolCall.model_construct(
                id=f"fc_{place}",
                type="function_call",
                call_id=part.tool_call_id,
                name=part.tool_name,
                arguments=part.arguments,
                status="completed",
            )


def _report(context: RunContextWrapper[Any], error: Exception) -> str:
    """What a tool's author does who tells failures for the model from others, which fail the attempt."""
    if isinstance(error, ScriptedToolFailure):
        return str(error)
    raise error


def _tool(tool: ScriptedTool) -> FunctionTool:
    async def run(value: str) -> Any:
        call = current_tool_call()
        answers = [
            call.ask_user(asked.question, choices=asked.choices, allows_free_text=asked.allows_free_text)
            for asked in tool.questions
        ]
        return await tool.run(", ".join(answers) or value, idempotency_key=call.idempotency_key)

    async def run_with_default(value: str = "") -> Any:
        return await run(value)

    def run_blocking(value: str = "") -> Any:
        return tool.run_blocking(value, idempotency_key=current_tool_call().idempotency_key)

    function: Any = run_blocking if tool.is_blocking else run if tool.requires_value else run_with_default
    return function_tool(
        function,
        name_override=tool.name,
        description_override=tool.description,
        strict_mode=False,
        failure_error_function=_report,
        needs_approval=bool(tool.requires_approval) and not tool.has_session_policy,
    )


def _task(tool: ScriptedTool) -> RemoteTask:
    def poll(poll: ToolTaskPoll) -> Any:
        try:
            return tool.poll_task(poll.input_answers)
        except ScriptedToolFailure as failure:
            raise ToolExecutionError(str(failure)) from failure

    return RemoteTask(poll=poll, cancel=lambda cancellation: tool.cancel_task())


def _mcp_servers(script: ConversationScript) -> list[Any]:
    if not script.mcp_servers:
        return []
    from dex_agents_conformance.mcp_source import make_mcp_tool_source  # the MCP SDK takes a second to import
    from dex_agents_openai_agents.mcp_tools import McpToolSourceServer

    return [McpToolSourceServer(make_mcp_tool_source(script))]


class Adapter(AdapterConformance):
    """The adapter can do everything."""

    framework = "openai-agents"
    capabilities = frozenset(Capability)
    result_texts = {
        "text": "plain text",
        "empty_text": "",
        "none": "None",
        "whole_number": "7",
        "fraction": "2.5",
        "truth": "True",
        "list": "['a', 1, None]",
        "dict": "{'b': 1, 'a': 'ü'}",
        "tuple": "(1, 'two')",
        "bytes": "b'seven'",
        "binary": "b'\\xff\\x00\\xfe'",
        "date_time": "2026-12-02 09:30:00+00:00",
        "decimal": "1.50",
        "dataclass": "Order(number=7, note='paid')",
        "not_a_number": "nan",
        "lone_surrogate": "half \N{REPLACEMENT CHARACTER} emoji",
        "unrenderable": None,
    }

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        models = {name: StrictModel(script, name) for name in ("", "small", "large")}
        agent = Agent[None](
            name="conformance",
            instructions=script.instructions,
            model=models[""],
            tools=[_tool(tool) for tool in script.tools],
            mcp_servers=_mcp_servers(script),
        )
        return create_openai_agents_session_flow(
            agent,
            script.flow_type,
            resolve_model=lambda settings: models[str(settings.get("model", ""))],
            remote_tasks={tool.name: _task(tool) for tool in script.tools if tool.task is not None},
            **script.flow_options,
        )
