"""The names that the framework does not document are there in this version and mean what the adapter takes them for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, PromptedOutput, RunContext, ToolOutput
from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRun
from pydantic_ai_sessions import ScriptedModel, ask, call, say

from dex_agents_pydantic_ai import private_names


class City(BaseModel):
    name: str


async def _to_the_response(run: AgentRun[Any, Any]) -> Any:
    node: Any = run.next_node
    while not Agent.is_call_tools_node(node):
        node = await run.next(node)
    return node


def test_the_tools_of_a_step_are_known_by_name_and_kind() -> None:
    agent = Agent(ScriptedModel(say("hi")).model, output_type=[str, ToolOutput(City, name="answer")])

    @agent.tool_plain(requires_approval=True)
    def refund() -> str:
        raise AssertionError("nobody calls it")

    async def main() -> None:
        async with agent.iter("hello") as run:
            assert private_names.offered_tools(run) == {}  # no step has begun
            await _to_the_response(run)
            tools = private_names.offered_tools(run)
            assert {name: tool.kind for name, tool in tools.items()} == {"refund": "unapproved", "answer": "output"}
            assert private_names.output_tool_names(run) == {"answer"}

    asyncio.run(main())


def test_refused_outputs_are_counted_on_from_the_number_that_is_set() -> None:
    """The second refusal of an agent with one retry ends a run."""
    agent = Agent(retries=1)

    @agent.output_validator
    def refuse(output: str) -> str:
        raise ModelRetry("no")

    async def main(used_before: int) -> None:
        async with agent.iter("hello", model=ScriptedModel(say("hi")).model) as run:
            node = await _to_the_response(run)
            assert private_names.output_retries_used(run) == 0
            private_names.set_output_retries_used(run, used_before)
            assert private_names.output_retries_used(run) == used_before
            await run.next(node)
            assert private_names.output_retries_used(run) == used_before + 1

    asyncio.run(main(0))
    with pytest.raises(UnexpectedModelBehavior, match="retries"):
        asyncio.run(main(1))


@pytest.mark.skipif(not hasattr(RunContext, "enqueue"), reason="this version has no ctx.enqueue")
def test_messages_that_a_tool_enqueued_are_seen() -> None:
    agent = Agent(ScriptedModel(ask(call("note"))).model)
    pending: list[Sequence[Any]] = []

    @agent.tool
    def note(ctx: RunContext[object]) -> str:
        ctx.enqueue("look at this")
        return "noted"

    async def main() -> None:
        async with agent.iter("hello") as run:
            node = await _to_the_response(run)
            pending.append(private_names.pending_messages(run))
            await run.next(node)
            pending.append(private_names.pending_messages(run))

    asyncio.run(main())
    assert [len(messages) for messages in pending] == [0, 1]


@pytest.mark.parametrize(
    "output_type",
    [str, City, ToolOutput(City), PromptedOutput(City), [str, City]],
    ids=["text", "schema", "tool", "prompted", "text or schema"],
)
def test_text_beside_calls_is_an_output_when_a_run_of_the_framework_takes_it(output_type: Any) -> None:
    def build(*replies: Any) -> tuple[ScriptedModel, Agent[None, Any]]:
        script = ScriptedModel(ask(call("look"), text='{"name": "Oslo"}'), *replies)
        agent: Agent[None, Any] = Agent(script.model, output_type=output_type, end_strategy="early")
        agent.tool_plain(look)
        return script, agent

    async def main() -> bool:
        async with build()[1].iter("hello") as run:
            await _to_the_response(run)
            return private_names.structured_text_output(run)

    # Whatever way the output takes in a second request.
    takes_text = output_type in (str, [str, City]) or isinstance(output_type, PromptedOutput)
    last = say('{"name": "x"}') if takes_text else ask(call("final_result", {"name": "x"}))
    native, agent = build(last)
    asyncio.run(agent.run("hello"))
    assert asyncio.run(main()) is (len(native.seen) == 1)


def test_a_copy_of_a_model_asks_through_another_client() -> None:
    client = AsyncOpenAI(api_key="none")
    model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
    quiet: Any = private_names.with_client(model, client.with_options(max_retries=0))
    assert (quiet.client.max_retries, model.client.max_retries) == (0, 2)
    assert (quiet.model_name, quiet.base_url) == (model.model_name, model.base_url)
    assert model.client is client


def look() -> str:
    return "seen"
