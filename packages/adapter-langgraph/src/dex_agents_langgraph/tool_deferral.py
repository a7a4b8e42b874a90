"""Tool nodes that hold their calls back, and run one of them alone in a Step of its own."""

from __future__ import annotations

import contextvars
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import Interrupt, interrupt

from dex_agents import ToolExecutionError
from dex_agents.session.texts import unknown_tool_text
from dex_agents_langgraph.private_names import (
    StateWrite,
    combine_outputs,
    has_call_wrapper,
    intercepted_tool_node,
    parse_calls,
    run_one_call,
    send_state_writes,
)

__all__ = [
    "HELD_CALLS",
    "CallKey",
    "CallOutput",
    "HeldCall",
    "ToolDeferral",
    "active_deferral",
    "deferring_tool_node",
    "hold_node",
]

#: The key of an interrupt's value that says: these calls were held back.
HELD_CALLS = "__dex_held_tool_calls__"

CallKey = str
"""Tells the calls of a session apart: the task's own checkpoint namespace, which stays the same while the task is
pending and is new for every later one, the provider's ID, and a number where it repeats in one task."""


class HeldCall(NamedTuple):
    """A call that was held back.

    Attributes:
        call: The call.
        tool: Its tool; None when the node does not list it.
        is_wrapped: Whether middleware stands around the call, which may run tools that the node does not list.
    """

    call: Any
    tool: BaseTool | None
    is_wrapped: bool


class CallOutput(NamedTuple):
    """What a call gave to its node.

    Attributes:
        results: Messages and commands.
        state_writes: What it sent to the state besides, by channel.
    """

    results: list[Any]
    state_writes: Sequence[StateWrite] = ()


@dataclass
class ToolDeferral:
    """What the tool nodes of one attempt do with their calls.

    Attributes:
        outcomes: Makes the node's output of a call that is final, by key.
        run_key: The one call to run; None in a model step.
        run_call: Changes that call before it runs: a person may have changed its arguments.
        call_configurable: What its `config["configurable"]` holds besides.
        output: What the call gave; None while it has not run.
        questions: What it asked with `interrupt`.
        held_calls: The calls held back by key.
    """

    outcomes: Mapping[CallKey, Callable[[], CallOutput]] = field(default_factory=dict)
    run_key: CallKey | None = None
    run_call: Callable[[Any], Any] = lambda call: call
    call_configurable: Mapping[str, Any] = field(default_factory=dict)
    output: CallOutput | None = None
    questions: tuple[Interrupt, ...] = ()
    held_calls: dict[CallKey, HeldCall] = field(default_factory=dict)


#: The deferral of the running attempt; tool nodes outside of a session find none and work as ever.
active_deferral: contextvars.ContextVar[ToolDeferral | None] = contextvars.ContextVar("dex_tool_deferral", default=None)


async def _run_deferred(node: Any, value: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
    """One interrupt of the task holds all of its calls."""
    deferral = active_deferral.get()
    assert deferral is not None
    calls, input_type = parse_calls(node, value)
    keys = _keys(calls, config)
    if deferral.run_key is not None:
        if deferral.run_key in keys and deferral.output is None:
            call = calls[keys.index(deferral.run_key)]
            await _run_held_call(node, deferral, call, value, input_type, config, runtime)
        interrupt({HELD_CALLS: []})
    held = [(key, call) for key, call in zip(keys, calls, strict=True) if key not in deferral.outcomes]
    if held:
        wrapped = has_call_wrapper(node)
        for key, call in held:
            deferral.held_calls[key] = HeldCall(call, node.tools_by_name.get(call["name"]), wrapped)
        interrupt({HELD_CALLS: [key for key, _ in held]})
    outputs = [deferral.outcomes[key]() for key in keys]
    send_state_writes(config, [write for output in outputs for write in output.state_writes])
    return combine_outputs(node, [output.results for output in outputs], input_type)


def _run_in_session() -> Any:
    return None if active_deferral.get() is None else _run_deferred


async def _run_held_call(
    node: ToolNode,
    deferral: ToolDeferral,
    call: Any,
    value: Any,
    input_type: Any,
    config: RunnableConfig,
    runtime: Runtime[Any],
) -> None:
    if call["name"] not in node.tools_by_name and not has_call_wrapper(node):
        # The node's own text would list the session's tools too, offered or not.
        raise ToolExecutionError(unknown_tool_text(call["name"]))
    configurable = {**config["configurable"], **deferral.call_configurable}
    call_config: RunnableConfig = {**config, "configurable": configurable}
    token = active_deferral.set(None)  # an agent inside the tool runs its own tools
    try:
        result, writes = await run_one_call(node, deferral.run_call(call), value, input_type, call_config, runtime)
        deferral.output = CallOutput(result if isinstance(result, list) else [result], writes)
    except GraphInterrupt as asked:
        deferral.questions = tuple(asked.args[0]) if asked.args else ()
        raise
    finally:
        active_deferral.reset(token)


def _keys(calls: list[Any], config: RunnableConfig) -> list[CallKey]:
    namespace = config["configurable"].get("checkpoint_ns", "")
    task = hashlib.sha256(namespace.encode()).hexdigest()[:16]
    seen: Counter[str] = Counter()
    keys = []
    for call in calls:
        seen[call["id"] or ""] += 1
        number = seen[call["id"] or ""]
        keys.append(f"{task}/{call['id']}" if number == 1 else f"{task}/{call['id']}~{number}")
    return keys


def deferring_tool_node(node: ToolNode) -> ToolNode:
    """A copy of a tool node, of any subclass, that defers while a deferral is active."""
    return intercepted_tool_node(node, _run_in_session)


async def hold_node(_: Any) -> None:
    """Stands for every other node while one tool call runs: what is pending beside it stays pending."""
    interrupt({HELD_CALLS: []})
