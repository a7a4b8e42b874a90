"""Calling a function of the application: on the event loop when it is async, else in a thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dex_agents import run_sync_call

__all__ = ["ApplicationFunction"]

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class ApplicationFunction:
    """A function of the application, and how to call it.

    Attributes:
        function: The function.
        is_async: Whether calling it gives a coroutine for sure; another one may still return an awaitable.
    """

    function: Callable[..., Any]
    is_async: bool

    @classmethod
    def of(cls, function: Callable[..., Any], tool_name: str) -> ApplicationFunction:
        """Look at a function of a tool.

        Raises:
            TypeError: It is a generator function; names the tool.
        """
        target = function.func if isinstance(function, functools.partial) else function
        call = target if inspect.isroutine(target) else type(target).__call__
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise TypeError(
                f"tool {tool_name!r}: a generator function yields nothing to a model; return a list instead"
            )
        return cls(function, inspect.iscoroutinefunction(call))

    async def call(self, finish: Callable[[object], Outcome], /, *args: Any, **kwargs: Any) -> Outcome:
        """Call the function and return what `finish` makes of its result, in the same thread.

        What the function raises passes through.
        """
        if self.is_async:
            return finish(await self.function(*args, **kwargs))
        result = await run_sync_call(self._call_in_thread, finish, args, kwargs)
        return finish(await result.awaitable) if isinstance(result, _Awaited) else result

    def _call_in_thread(
        self, finish: Callable[[object], Outcome], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Outcome | _Awaited:
        result = self.function(*args, **kwargs)
        # The function was not declared async but returned a coroutine, as a wrapped or partial one may.
        return _Awaited(result) if inspect.isawaitable(result) else finish(result)


@dataclass(frozen=True)
class _Awaited:
    awaitable: Any
