"""The tools of a `dex_agents_mcp.McpToolSource` as a toolset; needs the extra `mcp`."""

from __future__ import annotations

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from dex_agents import QuestionAnswer, ToolInputRequested
from dex_agents_mcp import McpTool, McpToolSource
from dex_agents_pydantic_ai.current_tool_call import current_tool_call
from dex_agents_pydantic_ai.tool_policies import EFFECT_METADATA_KEY

__all__ = ["McpToolSourceToolset"]

#: The server validates the arguments, and says what is wrong with them.
_ANY_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


class McpToolSourceToolset(AbstractToolset[Any]):
    """All servers of a source as one toolset: listed in every Step, and called once per attempt.

    Other than the framework's own MCP toolsets it holds no connection, sends the call's idempotency key in `_meta`,
    records an `isError` result as a failed call, and asks the session's user what a server asks. A call that was sent
    and lost is decided by the tool's effect.

    Args:
        source: The servers. Make one per process.
    """

    def __init__(self, source: McpToolSource) -> None:
        self._source = source

    @property
    def id(self) -> str | None:
        """The source's name."""
        return self._source.source_name

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of every server that answers, by the names `<server>__<tool>`."""
        return {tool.name: self._offered(tool) for tool in await self._source.list_tools()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run one attempt of the session's current call.

        Raises:
            ToolExecutionError: A failure for the model.
            ToolInputRequired: The server's question has no answer yet.
            McpToolCallInterruptedError: The call was sent and lost; the tool's effect decides.
            LookupError: No call of a session runs here.
        """
        call = current_tool_call()
        assert call.idempotency_key is not None  # a tool call always has one

        def ask_user(request: ToolInputRequested) -> QuestionAnswer:
            answer = call.ask_user(request.question, choices=request.choices, allows_free_text=request.allows_free_text)
            return QuestionAnswer(question=request.question, answer=answer)

        return await self._source.call_tool(name, tool_args, idempotency_key=call.idempotency_key, ask_user=ask_user)

    def _offered(self, tool: McpTool) -> ToolsetTool[Any]:
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.input_schema),
            metadata=None if tool.effect is None else {EFFECT_METADATA_KEY: tool.effect},
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=_ANY_ARGUMENTS)
