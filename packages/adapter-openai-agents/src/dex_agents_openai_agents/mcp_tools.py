"""The tools of a `dex_agents_mcp.McpToolSource` for `Agent.mcp_servers`; needs the extra `mcp`."""

from __future__ import annotations

from typing import Any

from agents import UserError
from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent, Tool

from dex_agents import QuestionAnswer, ToolEffect, ToolExecutionError, ToolInputRequested
from dex_agents_mcp import McpTool, McpToolCallInterruptedError, McpToolSource
from dex_agents_openai_agents.tool_call_info import current_tool_call

__all__ = ["McpToolSourceServer"]

_HINTS = {ToolEffect.READ: {"readOnlyHint": True}, ToolEffect.IDEMPOTENT_WRITE: {"idempotentHint": True}}


class McpToolSourceServer(MCPServer):
    """All servers of a source as one server of the SDK: listed in every model step, and called once per attempt.

    Other than the SDK's own servers it needs no `connect()`, never sends a call twice by itself, sends the call's
    idempotency key in `_meta`, records an `isError` result as a failed call, and asks the session's user what a server
    asks. A call that was sent and lost is decided by the tool's effect. A tool that neither reads nor may be repeated
    needs approval, unless a policy of the session says otherwise.

    Args:
        source: The servers. Make one per process.
    """

    def __init__(self, source: McpToolSource) -> None:
        super().__init__(require_approval=_needs_approval, failure_error_function=None)
        self._source = source

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.source_name

    async def connect(self) -> None:
        """Do nothing: every request opens a connection of its own."""

    async def cleanup(self) -> None:
        """Stop listings that run in the background."""
        await self._source.aclose()

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Tool]:
        """The tools of every server that answers, by the names `<server>__<tool>`."""
        return [_sdk_tool(tool) for tool in await self._source.list_tools()]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        """Run one attempt of the session's current call.

        Raises:
            UserError: Because of a `ToolExecutionError` or a `McpToolCallInterruptedError`, which the session looks for
                as its cause; the SDK passes no other exception on unchanged.
            LookupError: No call of a session runs here.
        """
        call = current_tool_call()

        def ask_user(request: ToolInputRequested) -> QuestionAnswer:
            answer = call.ask_user(request.question, choices=request.choices, allows_free_text=request.allows_free_text)
            return QuestionAnswer(question=request.question, answer=answer)

        try:
            text = await self._source.call_tool(
                tool_name, arguments or {}, idempotency_key=call.idempotency_key, ask_user=ask_user
            )
        except (ToolExecutionError, McpToolCallInterruptedError) as error:
            raise UserError(str(error)) from error
        return CallToolResult(content=[TextContent(type="text", text=text)])

    async def list_prompts(self) -> Any:
        """Not offered here: `resource_and_prompt_tools_enabled` of the source makes tools of them.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("use resource_and_prompt_tools_enabled of the McpToolSource")

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Not offered here: `resource_and_prompt_tools_enabled` of the source makes tools of them.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("use resource_and_prompt_tools_enabled of the McpToolSource")


def _needs_approval(run_context: Any, agent: Any, tool: Tool) -> bool:
    hints = tool.annotations
    return hints is None or not (hints.read_only_hint or hints.idempotent_hint)


def _sdk_tool(tool: McpTool) -> Tool:
    hints = None if tool.effect is None else _HINTS.get(tool.effect)
    listed = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
    return Tool.model_validate(listed if hints is None else {**listed, "annotations": hints})
