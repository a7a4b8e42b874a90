"""The tools of a `dex_agents_mcp.McpToolSource` as LangChain tools; needs the extra `mcp`."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, ToolException
from langgraph.types import interrupt

from dex_agents import QuestionAnswer, ToolExecutionError, ToolInputRequested
from dex_agents_langgraph.tool_call_context import current_session_tool_call
from dex_agents_mcp import McpToolSource

__all__ = ["mcp_source_tools"]


async def mcp_source_tools(source: McpToolSource) -> list[BaseTool]:
    """The tools of every server of the source that answers now, by the names `<server>__<tool>`.

    Give them to the graph as it is built: a graph's tools do not change, so that what a server lists later is offered
    after a restart of the process. Each call opens a connection of its own and sends the call's idempotency key in
    `_meta`. An `isError` result is a failed call, and what the server asks is a question of the session. A call that
    was sent and lost is decided by the tool's effect.

    Args:
        source: The servers. Make one per process.
    """
    return [
        _McpSourceTool(
            name=tool.name,
            description=tool.description,
            args_schema=dict(tool.input_schema),
            metadata=None if tool.effect is None else {"effect": tool.effect.value},
            source=source,
        )
        for tool in await source.list_tools()
    ]


class _McpSourceTool(BaseTool):
    source: Any

    def _run(self, /, **arguments: Any) -> str:
        raise NotImplementedError("a tool of an MCP server is called with `ainvoke`")

    # No parameter has a name: LangChain would hand over its own objects in place of the server's arguments.
    async def _arun(self, /, **arguments: Any) -> str:
        call = current_session_tool_call()
        if call is None:
            raise LookupError(f"the tool {self.name} runs in the tool calls of a session alone")
        source: McpToolSource = self.source
        try:
            return await source.call_tool(
                self.name, arguments, idempotency_key=call.idempotency_key, ask_user=_ask_user
            )
        except ToolExecutionError as error:
            raise ToolException(str(error)) from error


def _ask_user(request: ToolInputRequested) -> QuestionAnswer:
    asked = {
        "question": request.question,
        "choices": list(request.choices),
        "allows_free_text": request.allows_free_text,
    }
    return QuestionAnswer(question=request.question, answer=str(interrupt(asked)))
