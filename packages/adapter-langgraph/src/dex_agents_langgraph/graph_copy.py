"""A private copy of a compiled graph whose tool nodes defer, and what no copy can make safe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.channels import LastValue, UntrackedValue
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from dex_agents_langgraph.private_names import InterceptedToolNode, allowed_checkpoint_types, check_tool_node
from dex_agents_langgraph.tool_deferral import deferring_tool_node, hold_node

__all__ = ["PER_TURN_CHANNELS", "PreparedGraph", "prepare_graph"]

#: Channels LangGraph never checkpoints, so that a limit per run would start anew with every Step. The copy keeps them,
#: and a new turn begins without them.
PER_TURN_CHANNELS = frozenset({"run_model_call_count", "run_tool_call_count"})

ToolNodeTools = Mapping[str, Sequence[Any]]


@dataclass
class PreparedGraph:
    """Both copies of a graph.

    Attributes:
        model_graph: Runs model steps: its tool nodes hold their calls back.
        tool_graph: Runs one tool call: every other node stands still.
        messages_key: The state key of the conversation.
        allowed_types: Types a checkpoint may hold, from the graph's schemas.
        tools: The tools of all tool nodes by name.
    """

    model_graph: Any
    tool_graph: Any
    messages_key: str
    allowed_types: set[tuple[str, ...]] = field(default_factory=set)
    tools: dict[str, BaseTool] = field(default_factory=dict)


def prepare_graph(graph: object, messages_key: str, tool_nodes: ToolNodeTools) -> PreparedGraph:
    """Copy a compiled graph for sessions.

    Args:
        graph: A compiled graph, such as `create_agent(...)` or `builder.compile()`.
        messages_key: The state key of the conversation.
        tool_nodes: Tools by the name of each node that calls tools with code of its own.

    Raises:
        TypeError: It is no compiled graph, or its tool nodes cannot defer.
        ValueError: It has something that a session cannot make safe; names it.
    """
    if isinstance(graph, StateGraph):
        raise TypeError("the graph is not compiled: pass builder.compile()")
    if not isinstance(graph, Pregel):
        raise TypeError(f"graph must be a compiled LangGraph graph or a function that makes one, not {graph!r}")
    if messages_key not in graph.channels:
        known = ", ".join(name for name in graph.channels if not name.startswith(("_", "branch:")))
        raise ValueError(
            f"the graph's state has no {messages_key!r}; name the conversation's key in messages_key. It has: {known}. "
            "A functional @entrypoint has no state that a session could keep"
        )
    _check_breakpoints(graph, "")
    prepared = PreparedGraph(None, None, messages_key)
    used: set[str] = set()
    prepared.model_graph = _copy(graph, messages_key, tool_nodes, used, prepared.tools, holds_other_nodes=False)
    prepared.tool_graph = _copy(graph, messages_key, tool_nodes, set(), {}, holds_other_nodes=True)
    unknown = sorted(tool_nodes.keys() - used)
    if unknown:
        raise ValueError(f"tool_nodes names {', '.join(unknown)}, but the graph has no such node")
    schemas: list[Any] = []
    channels: dict[str, Any] = {}
    for number, part in enumerate(_graphs(graph)):
        schemas += getattr(getattr(part, "builder", None), "schemas", ())
        channels.update({f"{number}/{name}": channel for name, channel in part.channels.items()})
    prepared.allowed_types = allowed_checkpoint_types(schemas, channels)
    return prepared


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.nodes.values():
        for subgraph in _subgraphs(node):
            yield from _graphs(subgraph)


def _subgraphs(node: Any) -> list[Pregel[Any, Any, Any, Any]]:
    """The subgraphs of a node, also the one that LangGraph leaves out since it has no checkpoints."""
    found = [subgraph for subgraph in node.subgraphs if isinstance(subgraph, Pregel)]
    return found or ([node.bound] if isinstance(node.bound, Pregel) else [])


def _copy(
    graph: Any,
    messages_key: str,
    tool_nodes: ToolNodeTools,
    used: set[str],
    tools: dict[str, BaseTool],
    *,
    holds_other_nodes: bool,
) -> Any:
    nodes = {}
    for name, node in graph.nodes.items():
        bound = node.bound
        if name in tool_nodes:
            used.add(name)
            key = messages_key if messages_key in graph.channels else "messages"
            bound = ToolNode(list(tool_nodes[name]), messages_key=key)
        if isinstance(bound, ToolNode):
            check_tool_node(bound)
            tools.update(bound.tools_by_name)
            nodes[name] = node.copy({"bound": deferring_tool_node(bound), "retry_policy": None})
        elif isinstance(bound, Pregel):
            copied = _copy(bound, messages_key, tool_nodes, used, tools, holds_other_nodes=holds_other_nodes)
            nodes[name] = node.copy({"bound": copied, "subgraphs": [copied], "retry_policy": None})
        elif node.subgraphs:
            for subgraph in node.subgraphs:
                if isinstance(subgraph, Pregel):
                    _defer_in_place(subgraph, tools)
            nodes[name] = node.copy({"retry_policy": None})
        elif holds_other_nodes and name != "__start__":
            nodes[name] = node.copy({"bound": RunnableLambda(hold_node), "retry_policy": None, "cache_policy": None})
        else:
            # The session repeats a failed model step; a node that repeated itself would pay for the model twice.
            nodes[name] = node.copy({"retry_policy": None})
    checkpointer = graph.checkpointer if graph.checkpointer in (True, False) else None
    channels = {name: _copied_channel(name, channel) for name, channel in graph.channels.items()}
    return graph.copy({"nodes": nodes, "channels": channels, "checkpointer": checkpointer, "retry_policy": ()})


def _defer_in_place(graph: Any, tools: dict[str, BaseTool]) -> None:
    """The function that calls this subgraph holds on to it, so no copy would be called; outside of a session the
    changed tool nodes work as before."""
    for name, node in list(graph.nodes.items()):
        bound = node.bound
        if isinstance(bound, InterceptedToolNode):
            tools.update(bound.tools_by_name)  # type: ignore[attr-defined]
        elif isinstance(bound, ToolNode):
            check_tool_node(bound)
            tools.update(bound.tools_by_name)
            graph.nodes[name] = node.copy({"bound": deferring_tool_node(bound)})
        for subgraph in node.subgraphs:
            if isinstance(subgraph, Pregel):
                _defer_in_place(subgraph, tools)


def _copied_channel(name: str, channel: Any) -> Any:
    if isinstance(channel, DeltaChannel):
        copied = channel.copy()
        copied.snapshot_frequency = 1  # so that the newest checkpoint alone holds the whole value
        return copied
    if isinstance(channel, UntrackedValue) and name in PER_TURN_CHANNELS:
        kept: LastValue[Any] = LastValue(channel.typ)
        kept.key = name
        return kept
    return channel


def _check_breakpoints(graph: Any, path: str) -> None:
    where = f"the subgraph {path!r}" if path else "the graph"
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise ValueError(
            f"{where} was compiled with interrupt_before or interrupt_after; a session asks people through tool "
            "approvals and interrupt(), so compile it without"
        )
    for name, node in graph.nodes.items():
        for subgraph in _subgraphs(node):
            inner = f"{path}/{name}" if path else name
            if subgraph.checkpointer not in (None, True, False):
                raise ValueError(
                    f"the subgraph {inner!r} was compiled with a checkpointer of its own; the session stores its "
                    "state, so compile it without, or with checkpointer=True to keep a memory"
                )
            if subgraph.checkpointer is False and _has_tool_nodes(subgraph):
                raise ValueError(
                    f"the subgraph {inner!r} calls tools and was compiled with checkpointer=False, so its calls "
                    "cannot wait; compile it without"
                )
            _check_breakpoints(subgraph, inner)


def _has_tool_nodes(graph: Any) -> bool:
    return any(isinstance(node.bound, ToolNode) for part in _graphs(graph) for node in part.nodes.values())
