"""Questions and waits from end to end: built-in tools and function tools on the embedded engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dex_agents.session.texts import QUESTION_DECLINED
from dex_agents_stepwise import FunctionTool, ToolCallContext, function_tool

from .stepwise_agent import ask, call, say, script
from .stepwise_sessions import live_session

WHICH = "Which environment?"


def test_ask_user_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        question = ask(call("ask_user", {"question": WHICH, "choices": ["staging", "production"]}))
        async with live_session(
            tmp_path, script(question, say("deployed")), built_in_tools=["ask_user", "durable_wait"]
        ) as session:
            await session.say("deploy")
            (interrupt,) = await session.interrupts()
            assert (interrupt.kind, interrupt.choices) == ("question", ("staging", "production"))
            await session.answer(WHICH, "staging")
            assert await session.idle() == "deployed"
            assert [json.loads(text) for text in session.results_seen()] == [
                {"status": "answered", "answer": "staging"}
            ]
            for request in session.model.requests:
                assert [tool.name for tool in request.tools] == ["ask_user", "durable_wait"]

    asyncio.run(scenario())


@pytest.mark.parametrize("words", [None, "Ask me tomorrow"])
def test_ask_user_is_declined(tmp_path: Path, words: str | None) -> None:
    async def scenario() -> None:
        question = ask(call("ask_user", {"question": WHICH}))
        async with live_session(tmp_path, script(question, say("never mind")), built_in_tools=["ask_user"]) as session:
            await session.say("deploy")
            await session.decline(words)
            assert await session.idle() == "never mind"
            assert session.results_seen() == [words or QUESTION_DECLINED]

    asyncio.run(scenario())


def test_ask_user_with_bad_arguments_fails_for_the_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        question = ask(call("ask_user", {"question": " "}))
        async with live_session(tmp_path, script(question, say("sorry")), built_in_tools=["ask_user"]) as session:
            await session.say("deploy")
            assert await session.idle() == "sorry"
            (result,) = session.results_seen()
            assert result.startswith("invalid ask_user arguments")

    asyncio.run(scenario())


def test_durable_wait_ends_with_its_timer(tmp_path: Path) -> None:
    async def scenario() -> None:
        wait = ask(call("durable_wait", {"duration_seconds": 86_400, "reason": "the build"}))
        async with live_session(tmp_path, script(wait, say("built")), built_in_tools=["durable_wait"]) as session:
            await session.say("wait for the build")
            await session.record("durable_wait", "waiting_for_timer")
            await session.skip_timer("AwaitTimer")
            assert await session.idle() == "built"
            (result,) = session.results_seen()
            assert json.loads(result) == {"status": "completed", "waited_seconds": 86_400, "reason": "the build"}

    asyncio.run(scenario())


runs: list[str] = []


def deploy(context: ToolCallContext) -> str:
    """Deploys once it knows where, and asks twice for production."""
    runs.append(context.idempotency_key)
    environment = context.ask_user(WHICH, choices=("staging", "production"), allows_free_text=False)
    if environment == "production":
        context.ask_user("Really?", continuation="asked twice")
        assert context.input_continuation == "asked twice"
    return f"deployed to {environment}"


async def deploy_async(context: ToolCallContext) -> str:
    return deploy(context)


TOOLS: list[FunctionTool[..., Any]] = [
    function_tool(deploy, name="deploy", effect="non_idempotent_write", requires_approval=False),
    function_tool(deploy_async, name="deploy", effect="read"),
]


@pytest.mark.parametrize("tool", TOOLS, ids=["sync", "async"])
def test_a_tool_asks_twice_and_then_runs(tmp_path: Path, tool: FunctionTool[..., Any]) -> None:
    async def scenario() -> None:
        runs.clear()
        async with live_session(tmp_path, script(ask(call("deploy")), say("done")), tools=[tool]) as session:
            await session.say("deploy")
            await session.answer(WHICH, "production")
            await session.answer("Really?", "yes")
            assert await session.idle() == "done"
            assert session.results_seen() == ["deployed to production"]
            assert len(runs) == 3
            assert len(set(runs)) == 1

    asyncio.run(scenario())


def test_a_declined_question_of_a_tool_ends_the_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        runs.clear()
        async with live_session(tmp_path, script(ask(call("deploy")), say("fine")), tools=[TOOLS[0]]) as session:
            await session.say("deploy")
            await session.decline("Not on a Friday")
            assert await session.idle() == "fine"
            assert session.results_seen() == ["Not on a Friday"]
            assert len(runs) == 1

    asyncio.run(scenario())


def test_parallel_tools_ask_at_once(tmp_path: Path) -> None:
    @function_tool(effect="read")
    def choose(topic: str, context: ToolCallContext) -> str:
        return f"{topic}: {context.ask_user(f'Which {topic}?')}"

    async def scenario() -> None:
        both = ask(call("choose", {"topic": "colour"}), call("choose", {"topic": "size"}))
        async with live_session(tmp_path, script(both, say("done")), tools=[choose]) as session:
            await session.say("go")
            for interrupt in reversed(await session.interrupts(2)):
                await session.answer_interrupt(interrupt.interrupt_id, f"the {interrupt.question}")
            assert await session.idle() == "done"
            assert session.results_seen() == ["colour: the Which colour?", "size: the Which size?"]

    asyncio.run(scenario())
