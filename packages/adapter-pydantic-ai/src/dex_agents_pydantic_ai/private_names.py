"""The names of Pydantic AI that this adapter needs and that are not in its documentation, each with the reason.

Most are on `AgentRun.ctx`, which the framework's documentation uses for `node.stream(run.ctx)`. A test runs each of
them against the installed version.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any

from pydantic_ai import CallToolsNode
from pydantic_ai._agent_graph import build_run_context
from pydantic_ai.models import Model
from pydantic_ai.tools import ToolDefinition

__all__ = [
    "observed_events",
    "offered_tools",
    "output_retries_used",
    "output_tool_names",
    "pending_messages",
    "set_output_retries_used",
    "structured_text_output",
    "with_client",
]


def offered_tools(run: Any) -> Mapping[str, ToolDefinition]:
    """The tools of the run's current step by name.

    Which tool a call is for decides whether it is an output, what its effect is and whether it needs approval. The
    documented way, a capability's `prepare_tools`, does not see the framework's own tools (tool search, loading of
    capabilities) nor what wrapper toolsets add behind it.
    """
    tools = run.ctx.deps.tool_manager.tools
    return {} if tools is None else {name: tool.tool_def for name, tool in tools.items()}


def output_tool_names(run: Any) -> frozenset[str]:
    """The names of the tools that give the run's final output."""
    return frozenset(name for name, definition in offered_tools(run).items() if definition.kind == "output")


def output_retries_used(run: Any) -> int:
    """How often the output was refused; the budget of a turn spans its model steps, and a run counts its own only."""
    state = run.ctx.state
    return int(state.output_retries_used if hasattr(state, "output_retries_used") else state.retries)


def set_output_retries_used(run: Any, count: int) -> None:
    """Let the run count on from the turn's earlier model steps."""
    state = run.ctx.state
    setattr(state, "output_retries_used" if hasattr(state, "output_retries_used") else "retries", count)


def pending_messages(run: Any) -> Sequence[Any]:
    """Messages that `ctx.enqueue` put behind the run, which would be lost when the run is left."""
    return tuple(getattr(run.ctx.state, "pending_messages", ()))


def observed_events(run: Any, stream: Any) -> AsyncIterable[Any]:
    """The events of a streamed request as the agent's capabilities pass them on, its own event handler among them.

    Newer versions let the capabilities see what is read from `node.stream`; older ones do that in `Agent.run` alone.
    """
    methods = [getattr(method, "__code__", None) for method in vars(type(stream)).values()]
    if any(code is not None and "wrap_run_event_stream" in code.co_names for code in methods):
        return stream  # type: ignore[no-any-return]
    observed: AsyncIterable[Any] = run.ctx.deps.root_capability.wrap_run_event_stream(
        build_run_context(run.ctx), stream=stream
    )
    return observed


def structured_text_output(run: Any) -> bool:
    """Whether text of a response may be the final output although the response also calls function tools.

    Newer versions of the framework do that under `end_strategy="early"` when text must fit a schema.
    """
    if not hasattr(CallToolsNode, "_process_response_output"):
        return False
    processor = getattr(run.ctx.deps.output_schema, "text_processor", None)
    return processor is not None and any(
        base.__name__ == "BaseObjectOutputProcessor" for base in type(processor).__mro__
    )


def with_client(model: Model, client: Any) -> Model:
    """A copy of a provider's model that asks through another client.

    Versions of the framework without the setting `max_retries` leave no other way than another client, and a model
    takes one only when it is made, by a provider whose class and arguments are the application's.
    """
    provider: Any = copy.copy(model._provider)
    provider._client = client
    quiet: Any = copy.copy(model)
    quiet._provider = provider
    assert quiet.client is client, f"{type(model).__name__} does not ask through its provider's client"
    return quiet  # type: ignore[no-any-return]
