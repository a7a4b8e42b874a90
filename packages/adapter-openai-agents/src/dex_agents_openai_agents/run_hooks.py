"""The application's hooks in a step: told of the application's own agents and tools, and only of what happens in it."""

from __future__ import annotations

from typing import Any

from agents import Agent, AgentHooks, RunHooks, Tool

__all__ = ["StepAgentHooks", "StepRunHooks"]


class StepRunHooks(RunHooks[Any]):
    """Passes a run's events on to the application's `RunHooks`.

    Args:
        inner: The application's hooks.
        agent: The application's agent, which a step runs as a copy.
        tool: The application's tool, in a step that runs one call.
        announces_start: Whether the agent begins to act in this step, and did not before.
    """

    def __init__(
        self, inner: RunHooks[Any], agent: Agent[Any], *, tool: Tool | None = None, announces_start: bool = False
    ) -> None:
        self._inner = inner
        self._agent = agent
        self._tool = tool
        self._announces_start = announces_start

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: Any) -> None:
        """A model call begins."""
        if self._tool is None:
            await self._inner.on_llm_start(context, self._agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """A model call ended."""
        if self._tool is None:
            await self._inner.on_llm_end(context, self._agent, response)

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """The agent begins to act."""
        if self._announces_start:
            await self._inner.on_agent_start(context, self._agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """The agent gave its final output."""
        if self._tool is None:
            await self._inner.on_agent_end(context, self._agent, output)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """A tool begins."""
        await self._inner.on_tool_start(context, self._agent, self._tool or tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        """A tool ended."""
        await self._inner.on_tool_end(context, self._agent, self._tool or tool, result)


class StepAgentHooks(AgentHooks[Any]):
    """Passes an agent's events on to its own `AgentHooks`; see `StepRunHooks`.

    Args:
        inner: The agent's hooks.
        agent: The application's agent.
        tool: The application's tool, in a step that runs one call.
        announces_start: Whether the agent begins to act in this step, and did not before.
    """

    def __init__(
        self, inner: AgentHooks[Any], agent: Agent[Any], *, tool: Tool | None = None, announces_start: bool = False
    ) -> None:
        self._inner = inner
        self._agent = agent
        self._tool = tool
        self._announces_start = announces_start

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: Any) -> None:
        """A model call begins."""
        if self._tool is None:
            await self._inner.on_llm_start(context, self._agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """A model call ended."""
        if self._tool is None:
            await self._inner.on_llm_end(context, self._agent, response)

    async def on_start(self, context: Any, agent: Any) -> None:
        """The agent begins to act."""
        if self._announces_start:
            await self._inner.on_start(context, self._agent)

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        """The agent gave its final output."""
        if self._tool is None:
            await self._inner.on_end(context, self._agent, output)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """A tool begins."""
        await self._inner.on_tool_start(context, self._agent, self._tool or tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        """A tool ended."""
        await self._inner.on_tool_end(context, self._agent, self._tool or tool, result)
