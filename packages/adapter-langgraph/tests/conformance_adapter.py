"""A `create_agent` agent in the conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import interrupt
from pydantic import ConfigDict

from dex_agents import AgentSessionFlow, ToolExecutionError, ToolTaskPoll, ToolTaskStarted
from dex_agents_conformance import (
    AdapterConformance,
    Capability,
    ConversationScript,
    ProviderRequest,
    ReasoningPart,
    ReplyPart,
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
from dex_agents_langgraph import (
    RemoteTask,
    SessionToolCall,
    create_langgraph_session_flow,
    current_session_tool_call,
)
from dex_agents_langgraph.session_middleware import SessionToolsMiddleware


class ScriptedChatModel(BaseChatModel):
    """A LangChain chat model that asks the suite's provider, and streams what that answers."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    provider: Any
    model_name: str = ""

    @property
    def _llm_type(self) -> str:
        return "conformance"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("sessions are asynchronous")

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, run_manager, **kwargs))

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = self.provider.open(
            ProviderRequest(
                instructions="".join(str(message.text) for message in messages if isinstance(message, SystemMessage)),
                items=tuple(_request_item(message) for message in messages if not isinstance(message, SystemMessage)),
                tool_names=tuple(tool["function"]["name"] for tool in kwargs.get("tools", ())),
                model=self.model_name,
            )
        )
        async for piece in call.pieces():
            chunk = _text_chunk(piece.part_number, piece.kind, piece.text)
            if run_manager is not None:
                await run_manager.on_llm_new_token(piece.text, chunk=chunk)
            yield chunk
        for chunk in _closing_chunks(call.reply):
            if run_manager is not None:
                await run_manager.on_llm_new_token("", chunk=chunk)
            yield chunk


def _text_chunk(number: int, kind: str, text: str) -> ChatGenerationChunk:
    key = "text" if kind == "text" else "reasoning"
    block = {"type": key, key: text, "index": number}
    return ChatGenerationChunk(message=AIMessageChunk(content=[block]))


def _closing_chunks(reply: ScriptedReply) -> list[ChatGenerationChunk]:
    chunks: list[AIMessageChunk] = [
        AIMessageChunk(
            content=[{"type": "reasoning", "reasoning": "", "index": number, "extras": {"signature": part.signature}}]
        )
        for number, part in enumerate(reply.parts)
        if isinstance(part, ReasoningPart)
    ]
    for number, part in enumerate(reply.parts):
        if isinstance(part, ToolCallPart):
            call: Any = {
                "name": part.tool_name,
                "args": part.arguments,
                "id": part.tool_call_id,
                "index": number,
                "type": "tool_call_chunk",
            }
            place: Any = {"type": "call_place", "call_place": call["id"], "index": number}
            chunks.append(AIMessageChunk(content=[place], tool_call_chunks=[call]))
    usage: Any = None
    if reply.usage is not None:
        usage = {
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
            "total_tokens": reply.usage.total_tokens,
            "input_token_details": {"cache_read": reply.usage.cached_input_tokens},
            "output_token_details": {"reasoning": reply.usage.reasoning_tokens},
        }
    metadata = {"model_name": "scripted", "finish_reason": reply.resolved_finish_reason}
    chunks.append(AIMessageChunk(content=[], usage_metadata=usage, response_metadata=metadata, chunk_position="last"))
    return [ChatGenerationChunk(message=chunk) for chunk in chunks]


def _request_item(message: BaseMessage) -> RequestItem:
    if isinstance(message, HumanMessage):
        return RequestUserText(text=str(message.text))
    if isinstance(message, ToolMessage):
        return RequestToolResult(tool_call_id=message.tool_call_id, output=str(message.text))
    assert isinstance(message, AIMessage)
    return RequestOutput(parts=tuple(_parts(message)))


def _parts(message: AIMessage) -> list[ReplyPart]:
    parts: list[ReplyPart] = []
    calls = list(message.tool_calls)
    blocks: list[Any] = (
        [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
    )
    for block in sorted(blocks, key=lambda block: block.get("index", 0)):
        if block["type"] == "text" and block["text"]:
            parts.append(TextPart(text=block["text"]))
        elif block["type"] == "reasoning":
            parts.append(ReasoningPart(text=block["reasoning"], signature=block["extras"]["signature"]))
        elif block["type"] == "call_place":
            parts.append(_call_part(calls.pop(0)))
    return parts


def _call_part(call: Any) -> ToolCallPart:
    return ToolCallPart(
        tool_call_id=call["id"], tool_name=call["name"], arguments=msgspec.json.encode(call["args"]).decode()
    )


def _tool(tool: ScriptedTool) -> BaseTool:
    def current_call() -> SessionToolCall:
        call = current_session_tool_call()
        assert call is not None
        return call

    async def run(value: str = "") -> Any:
        if tool.questions:
            value = ", ".join(
                interrupt(
                    {
                        "question": asked.question,
                        "choices": list(asked.choices),
                        "allows_free_text": asked.allows_free_text,
                    }
                )
                for asked in tool.questions
            )
        try:
            output = await tool.run(value, idempotency_key=current_call().idempotency_key)
        except ScriptedToolFailure as failure:
            raise ToolException(str(failure)) from failure
        if isinstance(output, ToolTaskStarted):
            return current_call().start_task(output.task_id, poll_interval_seconds=output.poll_interval_seconds)
        return output

    async def run_with_value(value: str) -> Any:
        return await run(value)

    def run_blocking(value: str = "") -> Any:
        try:
            return tool.run_blocking(value, idempotency_key=current_call().idempotency_key)
        except ScriptedToolFailure as failure:
            raise ToolException(str(failure)) from failure

    metadata: dict[str, Any] = {}
    if not tool.has_session_policy:
        metadata = {"effect": tool.effect.value, "requires_approval": tool.requires_approval}
    options: dict[str, Any] = {"name": tool.name, "description": tool.description, "metadata": metadata}
    if tool.is_blocking:
        return StructuredTool.from_function(run_blocking, **options)
    return StructuredTool.from_function(coroutine=run_with_value if tool.requires_value else run, **options)


def _mcp_tools(script: ConversationScript) -> list[BaseTool]:
    if not script.mcp_servers:
        return []
    from dex_agents_conformance.mcp_source import make_mcp_tool_source  # the MCP SDK takes a second to import
    from dex_agents_langgraph.mcp_tools import mcp_source_tools

    # In a thread, because a case makes its Flow inside of a running event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, mcp_source_tools(make_mcp_tool_source(script))).result()


def _task(tool: ScriptedTool) -> RemoteTask:
    def poll(poll: ToolTaskPoll) -> Any:
        try:
            return tool.poll_task(poll.input_answers)
        except ScriptedToolFailure as failure:
            raise ToolExecutionError(str(failure)) from failure

    return RemoteTask(poll=poll, cancel=lambda cancellation: tool.cancel_task())


class Adapter(AdapterConformance):
    """LangChain's `create_agent`."""

    framework = "langgraph"
    capabilities = frozenset(
        {
            Capability.STREAMING,
            Capability.REASONING,
            Capability.USAGE,
            Capability.BLOCKING_TOOLS,
            Capability.FRAMEWORK_APPROVALS,
            Capability.CHANGED_ARGUMENTS,
            Capability.TOOL_QUESTIONS,
            Capability.MCP_TOOLS,
            Capability.SETTINGS,
            Capability.BUILT_IN_TOOLS,
            Capability.COMPACTION,
            Capability.PLAN_MODE,
            Capability.TOOL_TASKS,
        }
    )
    result_texts = {
        "text": "plain text",
        "empty_text": "",
        "none": "null",
        "whole_number": "7",
        "fraction": "2.5",
        "truth": "true",
        "list": '["a", 1, null]',
        "dict": '{"b": 1, "a": "ü"}',
        "tuple": '[1, "two"]',
        "bytes": "b'seven'",
        "binary": "b'\\xff\\x00\\xfe'",
        "date_time": "2026-12-02 09:30:00+00:00",
        "decimal": "1.50",
        "dataclass": "Order(number=7, note='paid')",
        "not_a_number": "NaN",
        "lone_surrogate": "half \N{REPLACEMENT CHARACTER} emoji",
        "unrenderable": None,
    }

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        tools = [*(_tool(tool) for tool in script.tools), *_mcp_tools(script)]
        provider = StrictProvider(script)

        def make_model(settings: Any) -> BaseChatModel:
            return ScriptedChatModel(provider=provider, model_name=str(settings.get("model", "")))

        def make_graph(settings: Any) -> Any:
            return create_agent(
                make_model(settings), tools, system_prompt=script.instructions, middleware=[SessionToolsMiddleware()]
            )

        return create_langgraph_session_flow(
            make_graph,
            script.flow_type,
            summary_model=make_model,
            remote_tasks={tool.name: _task(tool) for tool in script.tools if tool.task is not None},
            **script.flow_options,
        )
