"""What else an agent of the framework may use, in a session."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, messages
from pydantic_ai.capabilities import AbstractCapability, ProcessEventStream, ProcessHistory
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits
from pydantic_ai_sessions import SESSION_ID, ScriptedModel, ask, call, comparable, live_session, say

from dex_agents_pydantic_ai import SessionContext, create_pydantic_ai_session_flow


async def _play(directory: Path, agent: Agent[Any, Any], turns: int, **options: Any) -> list[str]:
    async with live_session(directory, agent, **options) as session:
        return [await session.say(f"message {number}") for number in range(turns)]


async def _play_natively(agent: Agent[Any, Any], turns: int) -> list[str]:
    history: list[ModelMessage] = []
    answers = []
    for number in range(turns):
        result = await agent.run(f"message {number}", message_history=history)
        history = result.all_messages()
        answers.append(result.output)
    return answers


def _check_parity(
    directory: Path, build: Any, replies: list[ModelResponse], turns: int = 1, **model: Any
) -> ScriptedModel:
    native, script = ScriptedModel(*replies, **model), ScriptedModel(*replies, **model)
    expected = asyncio.run(_play_natively(build(native.model), turns))
    assert asyncio.run(_play(directory, build(script.model), turns)) == expected
    assert [comparable(request) for request in script.seen] == [comparable(request) for request in native.seen]
    tools = [[sorted(tool.name for tool in info.function_tools) for info in model.infos] for model in (script, native)]
    assert tools[0] == tools[1]
    return script


def test_history_processors_change_what_the_model_sees_and_not_what_is_stored(tmp_path: Path) -> None:
    def shout(history: list[ModelMessage]) -> list[ModelMessage]:
        return [ModelRequest(parts=[UserPromptPart("SHORTENED")]), *history[-1:]]

    async def main() -> None:
        script = ScriptedModel(say("one"), say("two"), say("three"))
        agent: Agent[Any, Any] = Agent(script.model, capabilities=[ProcessHistory(shout)])
        async with live_session(tmp_path, agent) as session:
            for number in range(3):
                await session.say(f"message {number}")
            stored = (await session.client.get_agent_snapshot(SESSION_ID)).messages
        assert [message.text for message in stored] == ["message 0", "one", "message 1", "two", "message 2", "three"]
        for number, request in enumerate(script.seen):
            texts = [part.content for message in request for part in message.parts if part.part_kind == "user-prompt"]
            assert texts == ["SHORTENED", f"message {number}"]

    asyncio.run(main())


class _Recorder(AbstractCapability[Any]):
    def __init__(self) -> None:
        self.fired: list[str] = []

    async def before_run(self, ctx: RunContext[Any]) -> None:
        self.fired.append("run")

    async def after_run(self, ctx: RunContext[Any], *, result: Any) -> Any:
        self.fired.append("end")
        return result

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        self.fired.append("request")
        return request_context

    async def before_tool_execute(self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
        self.fired.append(f"before {call.tool_name}")
        return {**args, "text": args["text"].upper()}

    async def after_tool_execute(
        self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any, result: Any
    ) -> Any:
        self.fired.append(f"after {call.tool_name}")
        return f"<{result}>"


def test_hooks_of_capabilities_fire_where_their_step_runs(tmp_path: Path) -> None:
    recorder = _Recorder()
    script = ScriptedModel(ask(call("echo", {"text": "hi"})), say("done"))
    agent: Agent[Any, Any] = Agent(script.model, capabilities=[recorder])

    @agent.tool_plain
    def echo(text: str) -> str:
        return text

    assert asyncio.run(_play(tmp_path, agent, 1)) == ["done"]
    assert script.results()[0].content == "<HI>"
    assert recorder.fired == ["run", "request", "run", "before echo", "after echo", "run", "request", "end"]


class _Refuser(AbstractCapability[Any]):
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        if any(isinstance(part, TextPart) and part.content == "draft" for part in response.parts):
            raise ModelRetry("no drafts")
        return response


def test_a_hook_that_refuses_a_response_costs_a_step_and_counts_as_in_a_run(tmp_path: Path) -> None:
    def build(model: FunctionModel) -> Agent[Any, Any]:
        return Agent(model, capabilities=[_Refuser()], retries=2)

    script = _check_parity(tmp_path, build, [say("draft"), say("draft"), say("final")])
    assert len(script.seen) == 3


@pytest.mark.parametrize("limits", [UsageLimits(request_limit=2), UsageLimits(tool_calls_limit=1)], ids=str)
def test_usage_limits_count_over_the_steps_of_a_turn_and_begin_anew_with_the_next(
    tmp_path: Path, limits: UsageLimits
) -> None:
    async def main() -> None:
        calls = [ask(call("look", {}, "c1")), ask(call("look", {}, "c2"))]
        script = ScriptedModel(*calls, ask(call("look", {}, "c3")), say("done"))
        agent: Agent[Any, Any] = Agent(script.model)
        agent.tool_plain(name="look")(_look)
        async with live_session(tmp_path, agent, usage_limits=limits) as session:
            error_type, message = await session.fail("go")
            assert error_type == "AgentRunRefusedError"
            assert "UsageLimitExceeded" in message
            assert len(script.seen) == 2
            assert await session.say("again") == "done"

    asyncio.run(main())


def _look() -> str:
    return "seen"


@pytest.mark.skipif(not hasattr(RunContext, "enqueue"), reason="this version has no ctx.enqueue")
def test_messages_that_a_tool_enqueues_are_refused_instead_of_lost(tmp_path: Path) -> None:
    script = ScriptedModel(ask(call("note")), say("done"))
    agent: Agent[Any, Any] = Agent(script.model)

    @agent.tool
    def note(ctx: RunContext[Any]) -> str:
        ctx.enqueue("look at this")
        return "noted"

    assert asyncio.run(_play(tmp_path, agent, 1)) == ["done"]
    (result,) = script.results()
    assert "EnqueuedMessagesError" in result.content
    assert "return a ToolReturn with content instead" in result.content


def test_sequential_tools_are_warned_about_when_the_flow_is_built(caplog: pytest.LogCaptureFixture) -> None:
    agent: Agent[Any, Any] = Agent(ScriptedModel().model)
    agent.tool_plain(name="look", sequential=True)(_look)
    with caplog.at_level(logging.WARNING):
        create_pydantic_ai_session_flow(agent, "TestAgent")
    (record,) = caplog.records
    assert "'look' is sequential=True" in record.getMessage()


def test_deferred_tools_are_searched_revealed_and_called_as_in_a_run(tmp_path: Path) -> None:
    def build(model: FunctionModel) -> Agent[Any, Any]:
        toolset: FunctionToolset[Any] = FunctionToolset()

        @toolset.tool_plain(defer_loading=True)
        def book_flight(city: str) -> str:
            """Book a flight to a city."""
            return f"booked {city}"

        @toolset.tool_plain
        def weather(city: str) -> str:
            return f"sunny in {city}"

        return Agent(model, toolsets=[toolset])

    arguments = asyncio.run(_search_arguments(build))
    script = _check_parity(
        tmp_path,
        build,
        [
            ask(call("search_tools", arguments, "s1"), call("weather", {"city": "Oslo"}, "w1")),
            ask(call("book_flight", {"city": "Oslo"}, "b1")),
            say("booked"),
            ask(call("book_flight", {"city": "Rome"}, "b2")),
            say("booked again"),
        ],
        turns=2,
        has_provider_tools=False,
    )
    assert [result.content for result in script.results() if result.tool_name == "book_flight"] == [
        "booked Oslo",
        "booked Rome",
    ]


async def _search_arguments(build: Any) -> dict[str, Any]:
    """What this version's search wants."""
    script = ScriptedModel(say("hi"), has_provider_tools=False)
    await build(script.model).run("hello")
    (search,) = [tool for tool in script.infos[0].function_tools if tool.name == "search_tools"]
    (name,) = search.parameters_json_schema["required"]
    is_list = search.parameters_json_schema["properties"][name].get("type") == "array"
    return {name: ["flight"] if is_list else "flight"}


@pytest.mark.filterwarnings("ignore:`BuiltinTool:DeprecationWarning")  # events of versions before 2.0
def test_calls_of_the_providers_own_tools_pass_through(tmp_path: Path) -> None:
    names: Any = messages
    prefix = "Native" if hasattr(messages, "NativeToolCallPart") else "Builtin"
    call_type, return_type = getattr(names, f"{prefix}ToolCallPart"), getattr(names, f"{prefix}ToolReturnPart")
    reply = ModelResponse(
        parts=[
            call_type("web_search", {"query": "x"}, tool_call_id="n1", provider_name="function"),
            return_type("web_search", {"found": 1}, tool_call_id="n1", provider_name="function"),
            TextPart("it says"),
            call("look", {}, "c1"),
        ]
    )

    def build(model: FunctionModel) -> Agent[Any, Any]:
        agent: Agent[Any, Any] = Agent(model)
        agent.tool_plain(name="look")(_look)
        return agent

    _check_parity(tmp_path, build, [reply, say("done"), say("bye")], turns=2)


def test_an_external_tool_asks_for_its_result(tmp_path: Path) -> None:
    async def main() -> None:
        script = ScriptedModel(ask(call("choose_color", {}, "c1")), say("done"))
        toolset: Any = ExternalToolset([ToolDefinition(name="choose_color")])
        async with live_session(tmp_path, Agent(script.model, toolsets=[toolset])) as session:
            await session.begin("go")
            (interrupt,) = await session.client.wait_for_interrupts(SESSION_ID, timeout=30)
            assert await session.client.answer_question(SESSION_ID, interrupt.interrupt_id, "blue")
            assert await session.answer() == "done"
        assert script.results()[0].content == "blue"

    asyncio.run(main())


def test_a_read_that_does_not_end_in_time_asks_for_a_retry(tmp_path: Path) -> None:
    script = ScriptedModel(ask(call("slow")), say("done"))
    agent: Agent[Any, Any] = Agent(script.model)

    @agent.tool_plain(timeout=0.05, metadata={"effect": "read"})
    async def slow() -> str:
        await asyncio.Event().wait()
        raise AssertionError

    assert asyncio.run(_play(tmp_path, agent, 1)) == ["done"]
    assert "Timed out after 0.05 seconds" in str(script.results()[0].content)


def test_dependencies_are_made_for_every_step_and_never_stored(tmp_path: Path) -> None:
    steps: list[tuple[str, str | None]] = []

    async def make(context: SessionContext) -> object:
        steps.append((context.turn_id, None if context.tool_call is None else context.tool_call.tool_name))
        return object()  # which nothing could store

    script = ScriptedModel(ask(call("use")), say("done"))
    agent: Agent[Any, Any] = Agent(script.model, deps_type=object)

    @agent.tool
    def use(ctx: RunContext[Any]) -> str:
        return type(ctx.deps).__name__

    assert asyncio.run(_play(tmp_path, agent, 1, deps_factory=make)) == ["done"]
    assert script.results()[0].content == "object"
    assert steps == [("turn-1", None), ("turn-1", "use"), ("turn-1", None)]


def test_the_agents_own_event_handler_sees_the_stream(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handle(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
        async for event in events:
            seen[len(seen) :] = [event.event_kind]

    script = ScriptedModel(say("one two"), can_stream=True)
    options: dict[str, Any] = {"capabilities": [ProcessEventStream(handle)]}
    if "event_stream_handler" in inspect.signature(Agent.__init__).parameters:
        options = {"event_stream_handler": handle}
    agent: Agent[Any, Any] = Agent(script.model, **options)
    assert asyncio.run(_play(tmp_path, agent, 1)) == ["one two"]
    assert "part_delta" in seen
    assert seen.count("part_start") == 1


class _WholeModel(Model):
    """A model of an application that has no streamed requests."""

    @property
    def model_name(self) -> str:
        return "whole"

    @property
    def system(self) -> str:
        return "test"

    async def request(
        self, messages: list[ModelMessage], model_settings: Any, model_request_parameters: ModelRequestParameters
    ) -> ModelResponse:
        return say("whole")


def test_a_model_without_streaming_is_asked_for_whole_responses_also_behind_another(tmp_path: Path) -> None:
    broken = ScriptedModel(RuntimeError("down"), can_stream=True)
    fallback = FallbackModel(broken.model, _WholeModel(), fallback_on=(RuntimeError,))
    for number, model in enumerate([_WholeModel(), fallback]):
        directory = tmp_path / str(number)
        directory.mkdir()
        assert asyncio.run(_play(directory, Agent(model), 1)) == ["whole"]
    assert len(broken.seen) == 1


def test_retries_that_the_tools_reader_sees_are_the_frameworks_own(tmp_path: Path) -> None:
    """The words in which the model reads that it must try again, with what a tool said before."""

    def build(model: FunctionModel) -> Agent[Any, Any]:
        agent: Agent[Any, Any] = Agent(model, retries=3)

        @agent.tool
        def pick(ctx: RunContext[Any], city: str) -> str:
            if ctx.retry < 2:
                raise ModelRetry(f"{city} is closed, {ctx.retry} of {ctx.max_retries}")
            return city

        return agent

    replies = [ask(call("pick", {"city": city}, f"c{n}")) for n, city in enumerate(("a", "b", "c"))]
    _check_parity(tmp_path, build, [dataclasses.replace(reply) for reply in [*replies, say("done")]])


def _with(**options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel().model, **options)


def _with_tool(**options: Any) -> Agent[Any, Any]:
    agent = _with()
    agent.tool_plain(**options)(_look)
    return agent


@pytest.mark.parametrize(
    ("build", "options", "words"),
    [
        (lambda: Agent(), {}, "has no model; pass resolve_model"),
        (lambda: _with(deps_type=int), {}, "has deps_type int; pass deps or deps_factory"),
        (lambda: _with(), {"deps": 1, "deps_factory": print}, "deps or deps_factory, not both"),
        (lambda: _with_tool(name="ask_user"), {"built_in_tools": ("ask_user",)}, "'ask_user' uses the name"),
        (lambda: _with_tool(metadata={"effect": "harmless"}), {}, "metadata['effect'] must be one of"),
        (lambda: Agent, {}, "needs an Agent"),
        (lambda: _with(), {"no_such_option": 1}, "no_such_option"),
    ],
)
def test_what_cannot_work_is_refused_by_name_when_the_flow_is_built(build: Any, options: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        create_pydantic_ai_session_flow(build(), "TestAgent", **options)
    assert words in str(raised.value)


def test_agents_of_other_durable_engines_are_refused_by_name() -> None:
    for name in ("TemporalAgent", "DBOSAgent", "PrefectAgent"):
        agent = type(name, (Agent,), {})(ScriptedModel().model)
        with pytest.raises(TypeError, match=f"{name} makes the agent of 'TestAgent' durable"):
            create_pydantic_ai_session_flow(agent, "TestAgent")
