"""Tools that are listed at run time, such as those of MCP servers: what a source is, and what an agent does with it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from dex_agents import (
    AgentToolCall,
    AgentTurnContext,
    DeferredToolCall,
    DeferredToolExecution,
    DeferredToolOutcome,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
)
from dex_agents_stepwise.model_client import ModelToolCall, ModelToolDefinition

__all__ = [
    "AgentToolSources",
    "ListedSourceTool",
    "ListedTool",
    "ToolSource",
    "UnknownToolSourceError",
    "could_offer",
]

logger = logging.getLogger("dex_agents_stepwise")

_SOURCE_KEY = "stepwise_tool_source"
_REFERENCE_KEY = "reference"


class ListedTool(Protocol):
    """A tool as a source lists it."""

    @property
    def name(self) -> str:
        """What the model calls: 1 to 64 letters, digits, `_` or `-`."""
        ...

    @property
    def description(self) -> str:
        """What the model reads."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments object."""
        ...


Tool = TypeVar("Tool")


@runtime_checkable
class ToolSource(Protocol[Tool]):
    """Lists tools in every model step and runs their calls; `dex_agents_mcp.McpToolSource` is one.

    A source may also define `cancel_tool_task(cancellation)`, which stops a remote task; `declared_tool_names()`, names
    that it always lists; `could_offer(tool_name)`, whether it could ever list a name, without which it could list any;
    and `cached_tools()`, its latest listing without I/O. Its tools are `ListedTool` values.
    """

    @property
    def source_name(self) -> str:
        """Unique among an agent's sources and the same across deploys: stored calls carry it."""
        ...

    async def list_tools(self) -> Sequence[Tool]:
        """The tools to offer now. An exception, or a listing that takes too long, offers none."""
        ...

    def deferred_tool_call(
        self, turn: AgentTurnContext, *, tool_call_id: str, tool_name: str, arguments: str, listed_tool: Tool | None
    ) -> DeferredToolCall:
        """A model's call of a listed tool in the form the session stores, with the source's own reference."""
        ...

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one attempt of a stored call, as `AgentFrameworkRunner.execute_deferred_tool_call` does."""
        ...

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask once how a task is, as `ToolTaskPoller.poll_tool_task` does."""
        ...


def could_offer(source: ToolSource[Any], tool_name: str) -> bool:
    """Whether a source could ever list a tool of this name; true of one that does not say."""
    says = getattr(source, "could_offer", None)
    return True if says is None else bool(says(tool_name))


class UnknownToolSourceError(LookupError):
    """A stored call belongs to a source that this worker's agent does not have; the call's effect decides.

    Args:
        source_name: The source.
    """

    def __init__(self, source_name: str) -> None:
        super().__init__(f"this worker's agent has no tool source named {source_name!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedSourceTool:
    """A tool that one model step offers.

    Attributes:
        source: Where it comes from.
        tool: The tool as its source listed it.
        definition: The tool as the model reads it.
    """

    source: ToolSource[Any]
    tool: Any
    definition: ModelToolDefinition

    def deferred_call(self, turn: AgentTurnContext, call: ModelToolCall) -> DeferredToolCall:
        """A call of the model in the form the session stores, whatever the source lists by now."""
        deferred = self.source.deferred_tool_call(
            turn,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            listed_tool=self.tool,
        )
        reference = {_SOURCE_KEY: self.source.source_name, _REFERENCE_KEY: deferred.tool_source_reference}
        return msgspec.structs.replace(deferred, tool_source_reference=json.dumps(reference))


class AgentToolSources:
    """The sources of an agent.

    Args:
        sources: The sources, in the order in which their tools are offered.
        listing_timeout: Seconds that one source may take to list its tools.
        taken_names: Names of the agent's function tools and built-in tools, with what they are.
    """

    def __init__(
        self, sources: Sequence[ToolSource[Any]], listing_timeout: float, taken_names: Mapping[str, str]
    ) -> None:
        self._sources = {source.source_name: source for source in sources}
        self._listing_timeout = listing_timeout
        self._taken_names = dict(taken_names)
        self._last_listings: dict[str, Sequence[Any]] = {}
        self._silent_sources: set[str] = set()
        self._merged({name: _declared_tools(source) for name, source in self._sources.items()}, self._taken_names)

    async def list_tools(self, turn: AgentTurnContext) -> dict[str, ListedSourceTool]:
        """Every source's tools by name, in order; a source that cannot list them now offers none.

        Args:
            turn: The model step.

        Raises:
            TypeError: A name repeats a function tool's, an enabled built-in tool's, or another source's tool's.
        """
        if not self._sources:
            return {}
        listings = await asyncio.gather(*map(self._list, self._sources.values()))
        return self._merged(dict(zip(self._sources, listings, strict=True)), self._names_taken_in(turn))

    def known_tools(self) -> tuple[ModelToolDefinition, ...]:
        """What the sources listed last, without I/O."""
        definitions = []
        for name, source in self._sources.items():
            cached_tools = getattr(source, "cached_tools", None)
            tools = self._last_listings.get(name, ()) if cached_tools is None else cached_tools()
            definitions += [_definition(tool) for tool in tools]
        return tuple(definitions)

    def of_call(self, call: AgentToolCall) -> tuple[ToolSource[Any], AgentToolCall] | None:
        """The source of a stored call and the call as the source stored it; None for a call of no source.

        Raises:
            UnknownToolSourceError: The agent does not have the source.
        """
        stored = _stored_reference(call.tool_source_reference)
        if stored is None:
            return None
        name, reference = stored
        source = self._sources.get(name)
        if source is None:
            raise UnknownToolSourceError(name)
        return source, msgspec.structs.replace(call, tool_source_reference=reference)

    async def cancel(self, source: ToolSource[Any], cancellation: ToolTaskCancellation) -> None:
        """Tell a source to stop a remote task, when it can."""
        cancel_tool_task = getattr(source, "cancel_tool_task", None)
        if cancel_tool_task is not None:
            await cancel_tool_task(cancellation)

    async def _list(self, source: ToolSource[Any]) -> Sequence[Any]:
        name = source.source_name
        try:
            async with asyncio.timeout(self._listing_timeout):
                tools = await source.list_tools()
        except Exception as error:  # a source that is down must not fail a turn
            if name not in self._silent_sources:
                logger.warning("the tool source %r offers no tools: %s: %s", name, type(error).__name__, error)
            self._silent_sources.add(name)
            return ()
        self._silent_sources.discard(name)
        self._last_listings[name] = tools
        return tools

    def _names_taken_in(self, turn: AgentTurnContext) -> dict[str, str]:
        built_in = {name: "an enabled built-in tool" for name in turn.enabled_built_in_tools}
        return {**self._taken_names, **built_in}

    def _merged(
        self, listings: Mapping[str, Sequence[Any]], taken_names: Mapping[str, str]
    ) -> dict[str, ListedSourceTool]:
        merged: dict[str, ListedSourceTool] = {}
        for source_name, tools in listings.items():
            for tool in tools:
                definition = _definition(tool)
                name = definition.name
                taken_by = taken_names.get(name)
                if taken_by == "a function tool":
                    raise TypeError(f"tool {name} of a tool source uses the name of a function tool")
                if taken_by is not None:
                    raise TypeError(f"tool {name} uses the name of an enabled built-in tool")
                if name in merged:
                    raise TypeError(f"two tool sources list a tool named {name}")
                merged[name] = ListedSourceTool(source=self._sources[source_name], tool=tool, definition=definition)
        return merged


@dataclasses.dataclass(frozen=True)
class _DeclaredTool:
    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _declared_tools(source: ToolSource[Any]) -> tuple[_DeclaredTool, ...]:
    declared_tool_names = getattr(source, "declared_tool_names", None)
    return () if declared_tool_names is None else tuple(map(_DeclaredTool, declared_tool_names()))


def _definition(tool: ListedTool) -> ModelToolDefinition:
    return ModelToolDefinition(name=tool.name, description=tool.description, parameters=tool.input_schema)


def _stored_reference(text: str | None) -> tuple[str, str | None] | None:
    if text is None:
        return None
    try:
        stored = json.loads(text)
    except ValueError:
        return None
    if not isinstance(stored, dict) or not isinstance(stored.get(_SOURCE_KEY), str):
        return None
    return stored[_SOURCE_KEY], stored.get(_REFERENCE_KEY)
