"""What the model sees in a session is what it sees in runs of the framework, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, FunctionToolset, RunContext, ToolReturn
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.output import NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai_sessions import ScriptedModel, ask, call, comparable, live_session, say


class Order(BaseModel):
    number: int
    note: str = ""


def plain(model: FunctionModel) -> Agent[Any, Any]:
    return Agent(model, instructions="Be kind.", system_prompt="You help.")


def with_tools(model: FunctionModel) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model, retries=3)

    @agent.system_prompt
    def prompt() -> str:
        return "You look things up."

    @agent.tool_plain
    def lookup(number: int) -> Order:
        return Order(number=number)

    @agent.tool
    def flaky(ctx: RunContext[Any]) -> str:
        if ctx.retry < 2:
            raise ModelRetry(f"attempt {ctx.retry} is too early")
        return "at last"

    @agent.tool_plain
    def picture() -> ToolReturn:
        image = BinaryContent(b"\x89PNG", media_type="image/png")
        return ToolReturn(return_value={"size": 4}, content=["see", image], metadata={"cached": True})

    @agent.tool_plain
    def nothing() -> None:
        return None

    return agent


def dynamic(model: FunctionModel) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model)

    @agent.toolset
    def tools(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        toolset: FunctionToolset[Any] = FunctionToolset()

        @toolset.tool_plain
        def search(query: str) -> list[str]:
            return [query.upper()]

        return toolset

    return agent


def structured(output_type: Any, **options: Any) -> Callable[[FunctionModel], Agent[Any, Any]]:
    def make(model: FunctionModel) -> Agent[Any, Any]:
        agent: Agent[Any, Any] = Agent(model, output_type=output_type, retries=3, **options)

        @agent.tool_plain
        def lookup(number: int) -> str:
            return f"order {number}"

        @agent.tool_plain
        def broken() -> str:
            raise ModelRetry("not now")

        @agent.output_validator
        def validate(output: Any) -> Any:
            if isinstance(output, Order) and output.number < 0:
                raise ModelRetry("numbers are positive")
            return output

        return agent

    return make


THINKING = ModelResponse(
    parts=[
        ThinkingPart("hm", signature="sig==", provider_name="function"),
        TextPart("let me look"),
        call("lookup", {"number": 1}, "c1"),
        ThinkingPart("more", signature="sig2==", provider_name="function"),
        call("lookup", {"number": 2}, "c2"),
    ]
)
FINAL = "final_result"

# Each case: the agent, and what its model replies to the messages of each turn.
CASES: dict[str, tuple[Callable[[FunctionModel], Agent[Any, Any]], list[list[ModelResponse]]]] = {
    "text": (plain, [[say("hi")], [say("again")], [say("bye")]]),
    "a tool": (with_tools, [[ask(call("lookup", {"number": 7})), say("found")], [say("bye")]]),
    "parallel tools": (
        with_tools,
        [
            [
                ask(
                    call("lookup", {"number": 1}, "c1"), call("nothing", {}, "c2"), call("lookup", {"number": 2}, "c3")
                ),
                say("found"),
            ]
        ],
    ),
    "a tool that retries": (
        with_tools,
        [[ask(call("flaky", {}, "c1")), ask(call("flaky", {}, "c2")), ask(call("flaky", {}, "c3")), say("done")]],
    ),
    "invalid arguments": (
        with_tools,
        [[ask(call("lookup", {"number": "x"}, "c1")), ask(call("lookup", {"number": 1}, "c2")), say("done")]],
    ),
    "an unknown tool": (with_tools, [[ask(call("nope", {}, "c1")), say("done")], [say("bye")]]),
    "images beside other results": (
        with_tools,
        [[ask(call("picture", {}, "c1"), call("lookup", {"number": 1}, "c2")), say("seen")], [say("bye")]],
    ),
    "thinking": (with_tools, [[THINKING, say("found")], [say("bye")]]),
    "a dynamic toolset": (dynamic, [[ask(call("search", {"query": "a"})), say("found")], [say("bye")]]),
    "an empty reply": (plain, [[ModelResponse(parts=[]), say("sorry")], [say("bye")]]),
    "an output tool": (structured(Order), [[ask(call(FINAL, {"number": 1}))], [ask(call(FINAL, {"number": 2}))]]),
    "an output that does not fit": (
        structured(Order),
        [
            [ask(call(FINAL, {"number": "x"}, "o1")), ask(call(FINAL, {"number": 1}, "o2"))],
            [ask(call(FINAL, {"number": 2}))],
        ],
    ),
    "an output that a validator refuses": (
        structured(Order),
        [
            [ask(call(FINAL, {"number": -1}, "o1")), ask(call(FINAL, {"number": 1}, "o2"))],
            [ask(call(FINAL, {"number": 2}))],
        ],
    ),
    "native output": (
        structured(NativeOutput(Order)),
        [[say('{"number": "x"}'), say('{"number": 1}')], [say('{"number": 2}')]],
    ),
    "prompted output": (structured(PromptedOutput(Order)), [[say("no JSON"), say('{"number": 1}')]]),
    "an output function": (
        structured(ToolOutput(lambda number: f"order {number}", name="finish")),
        [[say("text"), ask(call("finish", {"number": 1}))]],
    ),
    **{
        f"an output beside a call, {strategy}": (
            structured(Order, end_strategy=strategy),
            [
                [ask(call("lookup", {"number": 1}, "c1"), call(FINAL, {"number": 1}, "o1"))],
                [ask(call(FINAL, {"number": 2}, "o2"))],
            ],
        )
        for strategy in ("early", "graceful", "exhaustive")
    },
    **{
        f"a refused output beside a call, {strategy}": (
            structured(Order, end_strategy=strategy),
            [
                [
                    ask(call("lookup", {"number": 1}, "c1"), call(FINAL, {"number": -1}, "o1")),
                    ask(call(FINAL, {"number": 2}, "o2")),
                ],
                [ask(call(FINAL, {"number": 3}, "o3"))],
            ],
        )
        for strategy in ("early", "graceful", "exhaustive")
    },
    "native output beside a call, early": (
        structured(NativeOutput(Order), end_strategy="early"),
        [
            [ask(call("lookup", {"number": 1}, "c1"), text='{"number": 1}'), say('{"number": 2}')],
            [say('{"number": 3}')],
        ],
    ),
}


async def seen_natively(
    make_agent: Callable[[FunctionModel], Agent[Any, Any]], turns: list[list[ModelResponse]]
) -> tuple[ScriptedModel, list[Any]]:
    script = ScriptedModel(*[reply for turn in turns for reply in turn])
    agent = make_agent(script.model)
    history: list[ModelMessage] = []
    outputs = []
    for number in range(len(turns)):
        result = await agent.run(f"message {number}", message_history=history)
        history = result.all_messages()
        outputs.append(result.output)
    return script, outputs


@pytest.mark.parametrize("name", CASES)
def test_the_model_sees_the_same_as_in_runs_of_the_framework(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        make_agent, turns = CASES[name]
        native, outputs = await seen_natively(make_agent, turns)
        script = ScriptedModel(*[reply for turn in turns for reply in turn])
        async with live_session(tmp_path, make_agent(script.model)) as session:
            answers = [await session.say(f"message {number}") for number in range(len(turns))]
        assert [comparable(request) for request in script.seen] == [comparable(request) for request in native.seen]
        assert [info.instructions for info in script.infos] == [info.instructions for info in native.infos]
        expected = [output if isinstance(output, str) else output.model_dump_json() for output in outputs]
        assert answers == expected

    asyncio.run(scenario())
