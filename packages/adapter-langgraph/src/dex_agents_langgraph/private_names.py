"""Every name of LangGraph and LangChain this package uses although it is not public, and why.

A session needs four things that LangGraph offers no public way to: to hold a tool node's calls back and run one of
them alone, to see what a tool writes into the state behind its result, to derive from a graph which types its
checkpoints may hold, and to read a delta snapshot. Nothing else in this package names anything with an underscore.
`check_tool_node` runs when a Flow is built, so an incompatible release is refused then and not in the middle of a turn.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._constants import CONFIG_KEY_SEND
from langgraph._internal._serde import build_serde_allowlist
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.runtime import Runtime

__all__ = [
    "TOOL_NODE_METHODS",
    "InterceptedToolNode",
    "StateWrite",
    "allowed_checkpoint_types",
    "check_tool_node",
    "combine_outputs",
    "delta_snapshot",
    "has_call_wrapper",
    "intercepted_tool_node",
    "is_result_formatting_error",
    "parse_calls",
    "run_one_call",
    "send_state_writes",
    "unwrap_delta_snapshot",
]

TOOL_NODE_METHODS = ("_func", "_afunc", "_parse_input", "_extract_state", "_arun_one", "_combine_tool_outputs")
_FORMATTING_FUNCTIONS = frozenset({"_format_output", "_stringify"})


StateWrite: TypeAlias = tuple[str, Any]
"""What a tool sent to one channel of the state by itself, as deep agents' files do."""

RunToolNode: TypeAlias = Callable[[Any, Any, RunnableConfig, Any], Awaitable[Any]]
"""Runs a tool node: the node, its input, config and runtime."""


class InterceptedToolNode:
    """Stands in front of a tool node's class.

    Attributes:
        run_in_session: Runs the node's calls instead of it; None outside of a session, where it works as ever.
    """

    run_in_session: Callable[[], RunToolNode | None]

    async def _afunc(self, input: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        run = self.run_in_session()
        if run is None:
            return await super()._afunc(input, config, runtime)  # type: ignore[misc]
        return await run(self, input, config, runtime)

    def _func(self, input: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        if self.run_in_session() is not None:
            raise RuntimeError("a node called a subgraph with `invoke`; sessions need `await subgraph.ainvoke(...)`")
        return super()._func(input, config, runtime)  # type: ignore[misc]


def intercepted_tool_node(node: ToolNode, run_in_session: Callable[[], RunToolNode | None]) -> ToolNode:
    """A copy of a tool node, of any subclass, whose calls something else runs.

    Args:
        node: The node.
        run_in_session: As in `InterceptedToolNode`.
    """
    intercepted = type(f"Deferring{type(node).__name__}", (InterceptedToolNode, type(node)), {})
    copied: Any = object.__new__(intercepted)
    copied.__dict__.update(node.__dict__)
    copied.run_in_session = run_in_session
    copied.func, copied.afunc = copied._func, copied._afunc
    return copied  # type: ignore[no-any-return]


def check_tool_node(node: ToolNode) -> None:
    """Refuse a tool node whose calls cannot be held back.

    Raises:
        TypeError: This release of langgraph-prebuilt has none of the methods; names them.
    """
    missing = [name for name in TOOL_NODE_METHODS if not callable(getattr(node, name, None))]
    if missing:
        raise TypeError(
            f"{type(node).__name__} of this langgraph-prebuilt release has no {', '.join(missing)}; "
            "dex-agents-langgraph cannot defer its tool calls"
        )


def parse_calls(node: ToolNode, value: Any) -> tuple[list[Any], Any]:
    """The calls in a tool node's input, and the kind of that input."""
    return node._parse_input(value)


def combine_outputs(node: ToolNode, outputs: list[Any], input_type: Any) -> Any:
    """What the node returns for the outputs of its calls, by its own rule for messages and commands."""
    return node._combine_tool_outputs(outputs, input_type)


def has_call_wrapper(node: ToolNode) -> bool:
    """Whether middleware may run tools that the node does not list."""
    return any(getattr(node, name, None) is not None for name in ("_wrap_tool_call", "_awrap_tool_call"))


async def run_one_call(
    node: ToolNode, call: Any, value: Any, input_type: Any, config: RunnableConfig, runtime: Runtime[Any]
) -> tuple[Any, list[StateWrite]]:
    """Run one call the way the node runs it: with its wrappers, its injected arguments and its error handling.

    Returns:
        What it gave, and what it and its wrappers sent to the state besides.
    """
    send = config["configurable"][CONFIG_KEY_SEND]
    sent: list[StateWrite] = []

    def record(writes: Sequence[StateWrite]) -> None:
        # Names with underscores are LangGraph's own, such as the answers to interrupts.
        sent.extend((channel, written) for channel, written in writes if not channel.startswith("__"))
        send(writes)

    config = {**config, "configurable": {**config["configurable"], CONFIG_KEY_SEND: record}}
    known = {field.name for field in dataclasses.fields(ToolRuntime)}
    offered = {
        "state": node._extract_state(value, config),
        "tool_call_id": call["id"],
        "config": config,
        "context": runtime.context,
        "store": runtime.store,
        "stream_writer": runtime.stream_writer,
        "tools": list(node.tools_by_name.values()),
        "execution_info": getattr(runtime, "execution_info", None),
        "server_info": getattr(runtime, "server_info", None),
    }
    tool_runtime: Any = ToolRuntime(**{name: given for name, given in offered.items() if name in known})
    token = var_child_runnable_config.set(config)  # what `get_config` gives to wrappers
    try:
        return await node._arun_one(call, input_type, tool_runtime), sent
    finally:
        var_child_runnable_config.reset(token)


def send_state_writes(config: RunnableConfig, writes: Sequence[StateWrite]) -> None:
    """Send to the state what a call sent when it ran."""
    if writes:
        config["configurable"][CONFIG_KEY_SEND](writes)


def allowed_checkpoint_types(schemas: Iterable[Any], channels: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """The types LangGraph itself would allow in the checkpoints of a graph with these schemas and channels."""
    return build_serde_allowlist(schemas=list(schemas), channels=dict(channels))


def delta_snapshot(value: Any) -> Any:
    """A delta channel's whole value as a checkpoint holds it."""
    return _DeltaSnapshot(value)


def unwrap_delta_snapshot(value: Any) -> tuple[Any, bool]:
    """The value in a delta channel's snapshot, and whether it was one."""
    return (value.value, True) if isinstance(value, _DeltaSnapshot) else (value, False)


def is_result_formatting_error(error: BaseException) -> bool:
    """Whether a tool ran to its end and only the text of what it returned could not be made.

    LangChain formats the result after the tool returned, outside of the tool's own error handling; nothing but the
    traceback tells the two apart, and running the tool again would repeat its effect.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name in _FORMATTING_FUNCTIONS and frame.filename.endswith("base.py") for frame in frames)
