"""Retries are counted over the Steps of a turn as in one run, and end the turn where they would end the run."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, ToolOutput
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_sessions import ScriptedModel, ask, call, live_session, say

MakeAgent = Callable[[FunctionModel, list[tuple[int, int]]], Agent[Any, Any]]


class City(BaseModel):
    name: str


def text(model: FunctionModel, counts: list[tuple[int, int]]) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model, retries=2)
    agent.output_validator(_refusing(counts))
    return agent


def output_tool(model: FunctionModel, counts: list[tuple[int, int]]) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model, output_type=ToolOutput(City, name="answer"), retries=2)
    agent.output_validator(_refusing(counts))
    agent.tool_plain(look)
    return agent


def output_function(model: FunctionModel, counts: list[tuple[int, int]]) -> Agent[Any, Any]:
    refuse = _refusing(counts)

    def answer(ctx: RunContext[Any], name: str) -> str:
        return str(refuse(ctx, name))

    return Agent(model, output_type=ToolOutput(answer, name="answer"), retries=2)


def function_tool(model: FunctionModel, counts: list[tuple[int, int]]) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model, retries=2)

    @agent.tool
    def answer(ctx: RunContext[Any], name: str) -> str:
        return str(_refusing(counts)(ctx, name))

    return agent


def _refusing(counts: list[tuple[int, int]]) -> Callable[[RunContext[Any], Any], Any]:
    def refuse(ctx: RunContext[Any], output: Any) -> Any:
        counts.append((ctx.retry, ctx.max_retries))
        raise ModelRetry("not this one")

    return refuse


def look() -> str:
    return "seen"


def _answer(number: int, arguments: Any) -> ModelResponse:
    return ask(call("answer", arguments, f"c{number}"))


FITTING = {"name": "Oslo"}
CASES: dict[str, tuple[MakeAgent, Callable[[int], ModelResponse]]] = {
    "text that a validator refuses": (text, lambda number: say("Oslo")),
    "output tool that a validator refuses": (output_tool, lambda number: _answer(number, FITTING)),
    "output tool with wrong arguments": (output_tool, lambda number: _answer(number, {"nonsense": 1})),
    "output function that asks for a retry": (output_function, lambda number: _answer(number, FITTING)),
    "tool that asks for a retry": (function_tool, lambda number: _answer(number, FITTING)),
    "tool with wrong arguments": (function_tool, lambda number: _answer(number, {"nonsense": 1})),
}


@pytest.mark.parametrize("name", CASES)
def test_used_up_retries_end_the_turn_after_as_many_requests_as_the_run(tmp_path: Path, name: str) -> None:
    make_agent, reply = CASES[name]
    replies = [reply(number) for number in range(9)]

    async def main() -> None:
        native, native_counts = ScriptedModel(*replies), list[tuple[int, int]]()
        with pytest.raises(UnexpectedModelBehavior) as raised:
            await make_agent(native.model, native_counts).run("go")
        script, counts = ScriptedModel(*replies), list[tuple[int, int]]()
        async with live_session(tmp_path, make_agent(script.model, counts)) as session:
            error = await session.fail("go")
        assert error == ("AgentRunRefusedError", f"UnexpectedModelBehavior: {raised.value}")
        assert len(script.seen) == len(native.seen) == 3
        assert counts == native_counts

    asyncio.run(main())


@pytest.mark.parametrize("strategy", ["early", "graceful", "exhaustive"])
def test_outputs_refused_beside_calls_are_counted(tmp_path: Path, strategy: Any) -> None:
    """Each response calls a tool too, so that its output is refused in a Step between the calls."""
    replies = [ask(call("look", {}, f"c{n}"), call("answer", {"nonsense": 1}, f"o{n}")) for n in range(9)]

    async def main() -> None:
        native = ScriptedModel(*replies)
        with pytest.raises(UnexpectedModelBehavior):
            await _with_strategy(native.model, strategy).run("go")
        script = ScriptedModel(*replies)
        async with live_session(tmp_path, _with_strategy(script.model, strategy)) as session:
            assert (await session.fail("go"))[0] == "AgentRunRefusedError"
        assert len(script.seen) == len(native.seen) == 3

    asyncio.run(main())


def _with_strategy(model: FunctionModel, strategy: Any) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model, output_type=ToolOutput(City, name="answer"), retries=2, end_strategy=strategy)
    agent.tool_plain(look)
    return agent


def test_counts_begin_anew_with_each_turn(tmp_path: Path) -> None:
    async def main() -> None:
        wrong, right = {"nonsense": 1}, FITTING
        replies = [_answer(number, arguments) for number, arguments in enumerate([wrong, wrong, right] * 2)]
        script = ScriptedModel(*[dataclasses.replace(reply) for reply in replies])
        agent: Agent[Any, Any] = Agent(script.model, output_type=ToolOutput(City, name="answer"), retries=2)
        async with live_session(tmp_path, agent) as session:
            assert await session.say("go") == '{"name":"Oslo"}'
            assert await session.say("again") == '{"name":"Oslo"}'

    asyncio.run(main())
