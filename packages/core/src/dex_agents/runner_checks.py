"""What is wrong with a runner, found when its Flow is built instead of in the middle of a session."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from dex_agents.runner import ContextCompactor, ToolTaskCanceller, ToolTaskPoller
from dex_agents.session.options import AgentSessionOptions

__all__ = ["check_capabilities", "check_runner"]

_REQUIRED_METHODS = ("build_user_message", "run_model_step", "execute_deferred_tool_call")
_COMPACTION_METHODS = ("estimate_input_tokens", "select_compaction_cutoff", "summarize_context")
_ASYNC_METHODS = (
    "run_model_step",
    "execute_deferred_tool_call",
    "poll_tool_task",
    "cancel_tool_task",
    "summarize_context",
)
_PURE_METHODS = (
    "build_user_message",
    "build_unfinished_turn_messages",
    "estimate_input_tokens",
    "select_compaction_cutoff",
)


def check_runner(runner: object) -> None:
    """Refuse a runner that breaks the contract in a way its class shows.

    Raises:
        TypeError: It is a class, lacks a method, implements half a capability, or a method is synchronous that must
            be asynchronous or the other way round; names the method.
    """
    if isinstance(runner, type):
        raise TypeError(f"pass an instance of {runner.__name__}, not the class itself")
    name = type(runner).__name__
    missing = _missing_methods(runner, _REQUIRED_METHODS)
    if missing:
        raise TypeError(
            f"{name} is not an AgentFrameworkRunner: it has no method {', '.join(missing)}; "
            "see dex_agents.runner for the contract"
        )
    missing = _missing_methods(runner, _COMPACTION_METHODS)
    if missing and len(missing) < len(_COMPACTION_METHODS):
        raise TypeError(f"{name} is only half a ContextCompactor: it has no method {', '.join(missing)}")
    if isinstance(runner, ToolTaskCanceller) and not isinstance(runner, ToolTaskPoller):
        raise TypeError(
            f"{name} has cancel_tool_task but no method poll_tool_task: without it no call ever has a task to cancel"
        )
    for method in _ASYNC_METHODS:
        if _is_known_synchronous(getattr(runner, method, None)):
            raise TypeError(
                f"{name}.{method} must be an async method and no generator; write `async def {method}`, and put "
                "blocking work in `await run_sync_call(...)`"
            )
    for method in _PURE_METHODS:
        if _is_asynchronous(getattr(runner, method, None)):
            raise TypeError(f"{name}.{method} must not be async: it must be pure, without I/O; write `def {method}`")


def check_capabilities(runner: object, options: AgentSessionOptions) -> None:
    """Refuse options that need what the runner does not have.

    Raises:
        TypeError: Compaction without its three methods, or plan mode without `supports_plan_mode`; names them.
    """
    name = type(runner).__name__
    if options.compaction is not None and not isinstance(runner, ContextCompactor):
        raise TypeError(f"compaction needs a runner with {', '.join(_COMPACTION_METHODS)}; {name} has none of them")
    if options.plan_mode_enabled and getattr(runner, "supports_plan_mode", False) is not True:
        raise TypeError(f"plan_mode_enabled needs a runner whose supports_plan_mode is True; {name} has none")


def _missing_methods(runner: object, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not callable(getattr(runner, name, None))]


def _is_known_synchronous(method: Any) -> bool:
    """Whether it is a function no layer of which makes a coroutine; another callable shows only when it is called."""
    layers = list(_layers(method))
    return inspect.isroutine(layers[-1]) and not any(map(inspect.iscoroutinefunction, layers))


def _is_asynchronous(method: Any) -> bool:
    return any(inspect.iscoroutinefunction(layer) or inspect.isasyncgenfunction(layer) for layer in _layers(method))


def _layers(method: Any) -> Iterator[Any]:
    """A callable and what it wraps, outermost first: decorators and partial applications hide an `async def`."""
    yield method
    while True:
        if isinstance(method, functools.partial):
            method = method.func
        elif hasattr(method, "__wrapped__"):
            method = method.__wrapped__
        else:
            return
        yield method
