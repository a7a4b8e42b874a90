"""The session Flow of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from langchain_core.messages import BaseMessage

from dex_agents import AgentSessionFlow, create_agent_session_flow
from dex_agents_langgraph.context_compaction import SummaryModel
from dex_agents_langgraph.graph_runner import LangGraphRunner
from dex_agents_langgraph.remote_tasks import RemoteTask

__all__ = ["create_langgraph_session_flow"]


def create_langgraph_session_flow(
    graph: Any,
    flow_type: str,
    *,
    messages_key: str = "messages",
    tool_nodes: Mapping[str, Sequence[Any]] | None = None,
    allowed_types: Iterable[type[Any]] = (),
    context: Any = None,
    make_input: Callable[[list[BaseMessage], Mapping[str, Any]], Any] | None = None,
    summary_model: SummaryModel | None = None,
    remote_tasks: Mapping[str, RemoteTask] = MappingProxyType({}),
    **options: Any,
) -> AgentSessionFlow:
    """Build the Flow of a graph's sessions. The graph needs no changes, and no checkpointer.

    Args:
        graph: A compiled graph, such as `create_agent(...)` or `builder.compile()`, or a function of the session's
            settings that makes one.
        flow_type: Durable name of the Flow type; sessions are stored under it, so it never changes.
        messages_key: The state key of the conversation.
        tool_nodes: Tools by the name of each node that calls tools with code of its own; the node's code is replaced.
        allowed_types: Types a stored state may hold besides those of the graph's schemas, such as a `response_format`.
        context: The graph's run context, or a function of the session's settings that makes it.
        make_input: Makes the graph's input of a turn from the new messages and the session's settings; by default it is
            `{messages_key: messages}`.
        summary_model: Summarises earlier messages where `compaction` is an option: a chat model without tools, or a
            function of the session's settings that gives one.
        remote_tasks: How remote work is followed, by name of the tool that starts it with
            `current_session_tool_call().start_task(...)`.
        options: Further fields of `dex_agents.AgentSessionOptions`.

    Raises:
        TypeError: It is no compiled graph, or an option is unknown or has the wrong type; names it.
        ValueError: The graph has something that a session cannot make safe, or an option has a value it cannot have;
            names it.
    """
    runner = LangGraphRunner(
        graph,
        messages_key=messages_key,
        tool_nodes=tool_nodes,
        allowed_types=allowed_types,
        context=context,
        make_input=make_input,
        summary_model=summary_model,
        remote_tasks=remote_tasks,
    )
    if options.get("compaction") is not None and summary_model is None:
        raise ValueError("compaction needs summary_model=: a graph's own models are known to its nodes alone")
    if options.setdefault("tool_calls_read_messages", True) is not True:
        raise ValueError("tool_calls_read_messages must be True: a tool of a graph reads the graph's state")
    runner.check_built_in_tools(options.get("built_in_tools", ()))
    return create_agent_session_flow(runner, flow_type, **options)
