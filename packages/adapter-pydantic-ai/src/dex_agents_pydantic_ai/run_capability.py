"""What the adapter adds to every run of the user's agent: a capability of the framework, for that run alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import CallDeferred, ModelRetry
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from dex_agents import ToolTaskStarted
from dex_agents_pydantic_ai.tool_questions import ToolInputRequired

__all__ = ["SessionCapability", "ToolTimedOutError"]

_PENDING = "pending"


class ToolTimedOutError(Exception):
    """A tool that writes did not end in time; what it did is unknown.

    Args:
        tool_name: The tool.
        message: What the framework says about it.
    """

    def __init__(self, tool_name: str, message: str) -> None:
        super().__init__(f"the tool {tool_name} did not end in time: {message}")


class SessionCapability(AbstractCapability[Any]):
    """Carries retry counts into a run, limits the tools it offers, and keeps what its tools ask for.

    Args:
        tool_retries: How often each tool asked for a retry in a row; the framework keeps that within a run only.
        offered_tools: Names of the function tools to offer; None offers all.
        runs_tools: Whether the run is for a call of a tool.
        timeout_is_unknown: Whether a tool that does not end in time may have taken effect.

    Attributes:
        requests: The calls a tool wants to have approved or run elsewhere.
        started: The remote work that a tool started.
    """

    def __init__(
        self,
        tool_retries: Mapping[str, int],
        *,
        offered_tools: Collection[str] | None = None,
        runs_tools: bool = False,
        timeout_is_unknown: bool = False,
    ) -> None:
        self._tool_retries = tool_retries
        self._offered_tools = offered_tools
        self._runs_tools = runs_tools
        self._timeout_is_unknown = timeout_is_unknown
        self.requests: DeferredToolRequests | None = None
        self.started: ToolTaskStarted | None = None

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Offer what the turn may use."""
        self._seed(ctx)
        if self._offered_tools is None:
            return tool_defs
        return [definition for definition in tool_defs if definition.name in self._offered_tools]

    async def prepare_output_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Offer every output tool."""
        self._seed(ctx)
        return tool_defs

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any] | None:
        """Watch what tools do beside returning a result."""
        return _WatchedTools(toolset, self, self._timeout_is_unknown) if self._runs_tools else None

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Keep the requests and answer them for the moment: the run is left before a model sees that."""
        self.requests = requests
        return DeferredToolResults(
            approvals={call.tool_call_id: ToolDenied(_PENDING) for call in requests.approvals},
            calls={call.tool_call_id: _PENDING for call in requests.calls},
        )

    def _seed(self, ctx: RunContext[Any]) -> None:
        for name, count in self._tool_retries.items():
            ctx.retries.setdefault(name, count)


@dataclass
class _WatchedTools(WrapperToolset[Any]):
    """Tells results from questions, remote work and timeouts, in words that every version of the framework has."""

    capability: SessionCapability
    timeout_is_unknown: bool

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except ToolInputRequired as question:
            raise CallDeferred from question
        except ModelRetry as retry:
            timed_out = isinstance(retry.__context__, TimeoutError) or isinstance(retry.__cause__, TimeoutError)
            if timed_out and self.timeout_is_unknown:
                raise ToolTimedOutError(name, retry.message) from retry
            raise
        if isinstance(result, ToolTaskStarted):
            self.capability.started = result
            raise CallDeferred
        return result
