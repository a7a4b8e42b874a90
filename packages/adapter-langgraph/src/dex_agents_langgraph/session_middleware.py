"""The session's tools, plan and limits in a `create_agent` agent; needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse

from dex_agents_langgraph.model_step_context import offered_tools, session_messages, session_tools

__all__ = ["SessionToolsMiddleware"]


class SessionToolsMiddleware(AgentMiddleware[Any, Any]):
    """Offers the session's enabled built-in tools, only `write_todos` in a planning turn, and none behind a limit.

    Outside of a session the agent's own tools are offered, as without it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tools = session_tools()

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """Change what the model is offered and reads."""
        messages: list[Any] = list(session_messages(request.messages))
        return await handler(request.override(tools=offered_tools(request.tools), messages=messages))
