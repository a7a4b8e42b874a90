"""Whether a Step can work: its methods are there and of the right kind, and its options mean something for it."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from dex_flow.options import StepOptions
from dex_flow.steps import ActivityStep, InlineStep, Step

__all__ = ["find_inline_option_problem", "find_step_problem", "is_synchronous"]

_PURE_METHODS = ("wait_for", "execute", "before_run", "load", "commit", "on_attempt_failed")


def find_step_problem(step: Step[Any]) -> str | None:
    """What keeps the Step from working, as the end of a sentence about it; None when nothing does."""
    kind: type[Step[Any]] = InlineStep if isinstance(step, InlineStep) else ActivityStep
    if not isinstance(step.options, StepOptions):
        return f"has options that are no StepOptions: {step.options!r}"
    required = ("execute",) if kind is InlineStep else ("load", "run", "commit")
    for name in required:
        method = getattr(step, name)
        if not callable(method) or getattr(method, "__func__", method) is getattr(kind, name):
            return f"must define {name}"
    for name in _PURE_METHODS:
        method = getattr(step, name, None)
        if callable(method) and not is_synchronous(method):
            return f"defines {name} with 'async def' or 'yield'; it is pure code, so make it a plain method"
    if kind is InlineStep:
        return find_inline_option_problem(step.options)
    if _is_plain_function(step.run):  # type: ignore[attr-defined]
        return "defines run as a plain method; make it 'async def'"
    return None


def find_inline_option_problem(options: StepOptions) -> str | None:
    """Which option an InlineStep could not keep, because it runs at once, as the end of a sentence about it."""
    for name in ("attempt_timeout", "heartbeat_timeout", "start_timeout"):
        if getattr(options, name) is not None:
            return f"is an InlineStep and can have no {name}; only an ActivityStep takes time"
    return None


def is_synchronous(code: Any) -> bool:
    """Whether calling `code` runs it at once: no coroutine function and no generator."""
    function = _find_function(code)
    return not (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
    )


def _is_plain_function(code: Any) -> bool:
    """Whether `code` is a function that no coroutine function is behind; a decorator may hide one."""
    function = inspect.unwrap(_find_function(code))
    return inspect.isroutine(function) and not inspect.iscoroutinefunction(function)


def _find_function(code: Any) -> Any:
    while isinstance(code, functools.partial):
        code = code.func
    if inspect.isroutine(code) or isinstance(code, type):
        return code
    return type(code).__call__
