"""The built-in loop in the conformance suite."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from dex_agents import AgentSessionFlow, ModelCallMetadata, ToolExecutionError
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
from dex_agents_stepwise import (
    AgentDefinition,
    FunctionTool,
    ModelInputItem,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelToolCall,
    ModelToolResult,
    ModelUserText,
    ToolCallContext,
    ToolTaskContext,
    create_stepwise_agent_session_flow,
    function_tool,
)

_DEFINITION_OPTIONS = ("tool_policies", "built_in_tools", "plan_mode_enabled", "compaction", "interrupt_deadline")


class ScriptedModel:
    """A model client that asks the suite's provider; its item is the list of the reply's parts."""

    provider = "conformance"
    api = "conformance"

    def __init__(self, script: ConversationScript, name: str = "") -> None:
        self._provider = StrictProvider(script)
        self._name = name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One model call."""
        call = self._provider.open(
            ProviderRequest(
                instructions=request.instructions,
                items=tuple(_request_item(item) for item in request.input_items),
                tool_names=tuple(tool.name for tool in request.tools),
                model=self._name,
            )
        )
        async for piece in call.pieces():
            send = request.on_text_delta if piece.kind == "text" else request.on_reasoning_delta
            send(piece.text)
        return _response(call.reply)


def _request_item(item: ModelInputItem) -> RequestItem:
    match item:
        case ModelUserText():
            return RequestUserText(text=item.text)
        case ModelToolResult():
            return RequestToolResult(tool_call_id=item.tool_call_id, output=item.output)
        case ModelOutput():
            return RequestOutput(parts=_parts_of_output(item))


def _parts_of_output(output: ModelOutput) -> tuple[ReplyPart, ...]:
    if output.item is not None:
        return msgspec.json.decode(output.item, type=tuple[ReasoningPart | TextPart | ToolCallPart, ...])
    text = (TextPart(text=output.text),) if output.text else ()
    calls = (
        ToolCallPart(tool_call_id=call.tool_call_id, tool_name=call.tool_name, arguments=call.arguments)
        for call in output.tool_calls
    )
    return (*text, *calls)


def _response(reply: ScriptedReply) -> ModelResponse:
    return ModelResponse(
        text=reply.text,
        reasoning_text=reply.reasoning,
        tool_calls=tuple(
            ModelToolCall(tool_call_id=call.tool_call_id, tool_name=call.tool_name, arguments=call.arguments)
            for call in reply.tool_calls
        ),
        item=_item(reply),
        usage=reply.usage,
        metadata=ModelCallMetadata(response_model="scripted", finish_reasons=(reply.resolved_finish_reason,)),
    )


def _item(reply: ScriptedReply) -> str | None:
    """The reply as the provider takes it back: it refuses empty text and blank arguments, its own included."""
    parts = [_taken_back(part) for part in reply.parts if not (isinstance(part, TextPart) and not part.text)]
    try:
        return msgspec.json.encode(parts).decode() if parts else None
    except UnicodeEncodeError:
        return None  # a real provider's item is JSON text, which could not hold it


def _taken_back(part: ReplyPart) -> ReplyPart:
    is_blank_call = isinstance(part, ToolCallPart) and not part.arguments.strip()
    return msgspec.structs.replace(part, arguments="{}") if is_blank_call else part


def _function_tool(tool: ScriptedTool) -> FunctionTool[..., Any]:
    options: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.task is not None:
        options["poll_task"] = lambda context: _poll(tool, context)
        options["cancel_task"] = lambda context: tool.cancel_task()
    if not tool.has_session_policy:
        options["effect"], options["requires_approval"] = tool.effect, tool.requires_approval

    async def run(value: str, context: ToolCallContext) -> Any:
        answers = [
            context.ask_user(asked.question, choices=asked.choices, allows_free_text=asked.allows_free_text)
            for asked in tool.questions
        ]
        try:
            return await tool.run(", ".join(answers) or value, idempotency_key=context.idempotency_key)
        except ScriptedToolFailure as failure:
            raise ToolExecutionError(str(failure)) from failure

    def run_blocking(value: str, context: ToolCallContext) -> Any:
        try:
            return tool.run_blocking(value, idempotency_key=context.idempotency_key)
        except ScriptedToolFailure as failure:
            raise ToolExecutionError(str(failure)) from failure

    async def run_with_default(context: ToolCallContext, value: str = "") -> Any:
        return await run(value, context)

    if tool.is_blocking:
        return function_tool(run_blocking, **options)
    return function_tool(run if tool.requires_value else run_with_default, **options)


def _poll(tool: ScriptedTool, context: ToolTaskContext) -> Any:
    try:
        return tool.poll_task(context.input_answers)
    except ScriptedToolFailure as failure:
        raise ToolExecutionError(str(failure)) from failure


def _tool_sources(script: ConversationScript) -> list[Any]:
    if not script.mcp_servers:
        return []
    from dex_agents_conformance.mcp_source import make_mcp_tool_source  # the MCP SDK takes a second to import

    return [make_mcp_tool_source(script)]


class Adapter(AdapterConformance):
    """Stepwise can do everything."""

    framework = None
    capabilities = frozenset(Capability)
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
        "bytes": '"seven"',
        "binary": '"_wD-"',
        "date_time": '"2026-12-02T09:30:00Z"',
        "decimal": '"1.50"',
        "dataclass": '{"number": 7, "note": "paid"}',
        "not_a_number": "null",
        "lone_surrogate": "half \N{REPLACEMENT CHARACTER} emoji",
        "unrenderable": None,
    }

    def make_definition(self, script: ConversationScript) -> AgentDefinition:
        """The script's agent; what a definition says is taken from the Flow's options."""
        options = script.flow_options
        models = {name: ScriptedModel(script, name) for name in ("", "small", "large")}
        return AgentDefinition(
            name="conformance",
            instructions=script.instructions,
            model=models[""],
            resolve_model=lambda settings: models[str(settings.get("model", ""))],
            tools=[_function_tool(tool) for tool in script.tools],
            tool_sources=_tool_sources(script),
            tool_source_listing_timeout=timedelta(seconds=60),
            **{name: options[name] for name in _DEFINITION_OPTIONS},
        )

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        options = {name: value for name, value in script.flow_options.items() if name not in _DEFINITION_OPTIONS}
        return create_stepwise_agent_session_flow(self.make_definition(script), script.flow_type, **options)
