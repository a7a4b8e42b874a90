"""Built-in tools under the loop: offered behind the function tools, and left to the session."""

from __future__ import annotations

import asyncio

import pytest

from dex_agents import (
    BUILT_IN_TOOL_DEFINITIONS,
    ResolvedToolPolicy,
    ToolCallsRequested,
    ToolEffect,
    ToolPolicy,
    TurnCompleted,
)
from dex_agents_stepwise import ModelToolDefinition, function_tool

from .stepwise_agent import Agent, ask, call, say

FREE_READ = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)


@pytest.mark.parametrize("enabled", [(), ("ask_user",), ("durable_wait", "ask_user")])
def test_the_enabled_ones_are_offered_behind_the_function_tools(enabled: tuple[str, ...]) -> None:
    agent = Agent(say("hello"), built_in_tools=enabled)
    asyncio.run(agent.session.run_turn("hi"))
    (request,) = agent.model.requests
    assert [tool.name for tool in request.tools] == ["lookup_order", "refund_order", "note", *enabled]
    for offered, name in zip(request.tools[3:], enabled, strict=True):
        definition = BUILT_IN_TOOL_DEFINITIONS[name]
        assert offered == ModelToolDefinition(
            name=name, description=definition.description, parameters=definition.parameters
        )


def test_an_agent_may_have_built_in_tools_alone() -> None:
    agent = Agent(say("hello"), tools=(), built_in_tools=("ask_user",))
    asyncio.run(agent.session.run_turn("hi"))
    assert agent.model.requests[0].tool_choice == "auto"


def test_their_calls_are_deferred_like_any_other_and_nobody_approves_them() -> None:
    agent = Agent(
        ask(call("ask_user", {"question": "Which?"}), call("refund_order"), call("durable_wait", "{broken")),
        built_in_tools=("ask_user", "durable_wait"),
        default_tool_effect=ToolEffect.NON_IDEMPOTENT_WRITE,
        session_policies={"ask_user": ToolPolicy(requires_approval=True)},
    )
    agent.session.begin_turn("hi")
    outcome = asyncio.run(agent.session.model_step())
    assert isinstance(outcome, ToolCallsRequested)
    question, refund, wait = outcome.tool_calls
    assert (question.tool_name, question.arguments, question.policy) == (
        "ask_user",
        '{"question": "Which?"}',
        FREE_READ,
    )
    assert refund.policy == ResolvedToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
    assert (wait.tool_name, wait.policy) == ("durable_wait", FREE_READ)


def test_one_that_is_not_enabled_is_an_unknown_tool() -> None:
    agent = Agent(ask(call("durable_wait", {"duration_seconds": 5})), say("oh"), built_in_tools=("ask_user",))
    asyncio.run(agent.session.run_turn("hi"))
    assert agent.results_seen() == ["unknown tool durable_wait"]


def test_after_the_model_call_limit_they_are_not_offered_either() -> None:
    question = ask(call("ask_user", {"question": "Again?"}))
    limited = Agent(question, max_model_calls_per_turn=1, built_in_tools=("ask_user",))
    limited.session.begin_turn("hi")
    limited.session.run_state = '{"model_calls": 1}'
    outcome = asyncio.run(limited.session.model_step())
    assert isinstance(outcome, TurnCompleted)
    assert limited.model.requests[0].tools == ()
    assert limited.model.requests[0].tool_choice == "none"
    assert outcome.new_messages[-1].text.startswith("The tool call was not run")


@function_tool(name="ask_user")
def ask_own_question(question: str) -> str:
    return question


def test_a_session_may_enable_only_what_the_agent_and_this_release_allow() -> None:
    """A Flow built without the definition's options can enable anything."""
    agent = Agent(say("never"), tools=(ask_own_question,))
    agent.session.begin_turn("hi")
    with pytest.raises(TypeError, match="tool ask_user uses the name of an enabled built-in tool"):
        asyncio.run(agent.runner.run_model_step(agent.session.turn_context(enabled_built_in_tools=("ask_user",))))
    with pytest.raises(ValueError, match="'write_poems'"):
        asyncio.run(agent.runner.run_model_step(agent.session.turn_context(enabled_built_in_tools=("write_poems",))))
    assert agent.model.requests == ()
