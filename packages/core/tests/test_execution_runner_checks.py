"""What is wrong with a runner shows when its Flow is built."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dex_agents import AgentSessionOptions, FrameworkMessage, create_agent_session_flow
from dex_agents.agent_session_flow import AgentSessionFlow


class WholeRunner:
    """A runner with every optional method of this release."""

    def build_user_message(self, text: str) -> FrameworkMessage:
        return FrameworkMessage(role="user", framework_item="{}", text=text)

    def build_unfinished_turn_messages(self, turn: Any) -> tuple[FrameworkMessage, ...]:
        raise AssertionError

    async def run_model_step(self, turn: Any) -> Any:
        raise AssertionError

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        raise AssertionError

    async def poll_tool_task(self, poll: Any) -> Any:
        raise AssertionError

    async def cancel_tool_task(self, cancellation: Any) -> None:
        raise AssertionError


ASYNC_METHODS = ["run_model_step", "execute_deferred_tool_call", "poll_tool_task", "cancel_tool_task"]
PURE_METHODS = ["build_user_message", "build_unfinished_turn_messages"]


def runner_with(**methods: Any) -> Any:
    return type("OddRunner", (WholeRunner,), methods)()


def synchronous(self: Any, argument: Any) -> Any:
    raise AssertionError


async def asynchronous(self: Any, argument: Any) -> Any:
    raise AssertionError


async def generating(self: Any, argument: Any) -> AsyncIterator[Any]:
    yield argument


def test_a_whole_runner_is_accepted() -> None:
    runner = WholeRunner()
    assert create_agent_session_flow(runner, "SupportAgent").runner is runner


@pytest.mark.parametrize("method", ASYNC_METHODS)
@pytest.mark.parametrize("function", [synchronous, generating, functools.partial(synchronous, None)])
def test_a_method_that_must_be_async_and_is_not_is_refused_by_its_name(method: str, function: Any) -> None:
    with pytest.raises(TypeError, match=rf"OddRunner\.{method} must be an async method and no generator"):
        create_agent_session_flow(runner_with(**{method: function}), "SupportAgent")


@pytest.mark.parametrize("method", PURE_METHODS)
@pytest.mark.parametrize("function", [asynchronous, generating])
def test_a_method_that_must_be_pure_and_is_async_is_refused_by_its_name(method: str, function: Any) -> None:
    with pytest.raises(TypeError, match=rf"OddRunner\.{method} must not be async"):
        create_agent_session_flow(runner_with(**{method: function}), "SupportAgent")


def test_building_the_flow_class_directly_checks_too() -> None:
    with pytest.raises(TypeError, match="run_model_step must be an async method"):
        AgentSessionFlow(runner_with(run_model_step=synchronous), "SupportAgent", AgentSessionOptions())


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that knows nothing of coroutines and passes one on."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


class CallableObject:
    def __call__(self, argument: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize("method", ASYNC_METHODS)
def test_a_wrapped_async_method_and_a_callable_that_cannot_be_known_are_accepted(method: str) -> None:
    for function in (traced(asynchronous), functools.partial(asynchronous, None), CallableObject()):
        create_agent_session_flow(runner_with(**{method: function}), "SupportAgent")


def test_a_runner_that_cancels_tasks_but_never_polls_them_is_refused() -> None:
    with pytest.raises(TypeError, match="OddRunner has cancel_tool_task but no method poll_tool_task"):
        create_agent_session_flow(runner_with(poll_tool_task=None), "SupportAgent")
    create_agent_session_flow(runner_with(poll_tool_task=None, cancel_tool_task=None), "SupportAgent")
    create_agent_session_flow(runner_with(cancel_tool_task=None), "SupportAgent")
