"""The SDK's own models against a provider that speaks their wire formats: one request per attempt, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    OpenAIResponsesModel,
    RunConfig,
    function_tool,
    retry_policies,
)
from openai import AsyncOpenAI
from openai_agents_sessions import SESSION, open_session
from openai_wire_server import (
    Answer,
    WireServer,
    chat_stream,
    function_call,
    incomplete_stream,
    message,
    reasoning,
    responses_stream,
    status,
)

Model = OpenAIResponsesModel | OpenAIChatCompletionsModel


@function_tool
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


def _client(server: WireServer) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="none", base_url=server.url)  # with the client's default of two retries


def _responses(server: WireServer) -> Model:
    return OpenAIResponsesModel("gpt-wire", _client(server))


def _chat(server: WireServer) -> Model:
    return OpenAIChatCompletionsModel("gpt-wire", _client(server))


MODELS: dict[str, Callable[[WireServer], Model]] = {"responses": _responses, "chat": _chat}


def _say(kind: str, text: str, *, breaks_off: bool = False) -> Answer:
    if kind == "chat":
        return chat_stream(text, breaks_off=breaks_off)
    return responses_stream(message(text), breaks_off=breaks_off)


def _agent(model: Any, **fields: Any) -> Agent[Any]:
    return Agent[Any](name="Assistant", instructions="You help.", model=model, tools=[weather], **fields)


def test_a_tool_turn_over_the_responses_api(tmp_path: Path) -> None:
    async def main() -> None:
        with WireServer(
            [
                responses_stream(reasoning("hm", "proof=="), function_call("weather", '{"city":"Oslo"}', "c1")),
                responses_stream(message("It is sunny.")),
            ]
        ) as server:
            settings = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
            agent = _agent(_responses(server), model_settings=settings)
            async with open_session(agent, tmp_path) as session:
                assert await session.answer_of("weather?") == "It is sunny."
                assert await session.streamed_text() == "It is sunny."
                usage = (await session.client.get_agent_snapshot(SESSION)).usage
                stored = await session.messages()
        first, second = (body for _, body in server.requests)
        assert {path for path, _ in server.requests} == {"/v1/responses"}
        assert (first["stream"], first["store"]) == (True, False)
        assert [item.get("type") for item in second["input"]] == [
            None,
            "reasoning",
            "function_call",
            "function_call_output",
        ]
        assert second["input"][1] == reasoning("hm", "proof==")
        assert second["input"][3]["output"] == "sunny in Oslo"
        assert stored[1].reasoning_text == "hm"
        assert (usage.model_calls, usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2, 100, 18, 118)
        assert (usage.cached_input_tokens, usage.reasoning_tokens) == (40, 8)

    asyncio.run(main())


def test_a_tool_turn_over_chat_completions(tmp_path: Path) -> None:
    async def main() -> None:
        with WireServer(
            [chat_stream(calls=(("c1", "weather", '{"city":"Oslo"}'),)), chat_stream("It is sunny.")]
        ) as server:
            async with open_session(_agent(_chat(server)), tmp_path) as session:
                assert await session.answer_of("weather?") == "It is sunny."
                assert await session.streamed_text() == "It is sunny."
                usage = (await session.client.get_agent_snapshot(SESSION)).usage
        assert {path for path, _ in server.requests} == {"/v1/chat/completions"}
        messages = server.requests[1][1]["messages"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
        assert messages[3]["content"] == "sunny in Oslo"
        assert (usage.model_calls, usage.input_tokens, usage.reasoning_tokens) == (2, 100, 8)

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("failure", ["500", "429", "reset mid-stream"])
def test_a_failure_that_may_pass_costs_one_request_per_attempt(tmp_path: Path, kind: str, failure: str) -> None:
    async def main() -> None:
        failures = {
            "500": status(500),
            "429": status(429, retry_after="0"),
            "reset mid-stream": _say(kind, "It is half", breaks_off=True),
        }
        with WireServer([failures[failure], failures[failure], _say(kind, "It is sunny.")]) as server:
            async with open_session(_agent(MODELS[kind](server)), tmp_path) as session:
                assert await session.answer_of("weather?") == "It is sunny."
                assert len(server.requests) == 3
                assert [message.text for message in await session.messages()] == ["weather?", "It is sunny."]
                retries = await session.events("model_call_retrying")
                usage = (await session.client.get_agent_snapshot(SESSION)).usage
        assert len(retries) == 2
        assert usage.model_calls == 1
        assert all(headers["x-stainless-retry-count"] == "0" for headers in server.headers)

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
def test_a_failure_to_the_end_makes_three_requests(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        with WireServer([status(500)] * 9) as server:
            async with open_session(_agent(MODELS[kind](server)), tmp_path) as session:
                assert (await session.say("weather?")).status == "failed"
                assert "InternalServerError" in await session.error()
        assert len(server.requests) == 3

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_refused_request_is_not_repeated(tmp_path: Path, kind: str, code: int) -> None:
    async def main() -> None:
        with WireServer([status(code, "your input is wrong")]) as server:
            async with open_session(_agent(MODELS[kind](server)), tmp_path) as session:
                assert (await session.say("weather?")).status == "failed"
                assert "your input is wrong" in await session.error()
        assert len(server.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
def test_the_next_attempt_waits_as_long_as_the_provider_asks(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        with WireServer([status(429, retry_after="600"), _say(kind, "It is sunny.")]) as server:
            async with open_session(_agent(MODELS[kind](server)), tmp_path) as session:
                await session.client.start_session(SESSION, initial_message="weather?")
                retry = await session.event("model_call_retrying")
                wait = datetime.fromisoformat(retry["next_attempt_at"]) - datetime.now(UTC)
                assert wait > timedelta(seconds=300)
                assert len(server.requests) == 1

    asyncio.run(main())


def test_an_answer_that_the_provider_cuts_off_is_paid_once(tmp_path: Path) -> None:
    async def main() -> None:
        with WireServer([incomplete_stream("It is", "max_output_tokens")]) as server:
            async with open_session(_agent(_responses(server)), tmp_path) as session:
                assert (await session.say("weather?")).status == "failed"
                assert "cut the model's answer off: max_output_tokens" in await session.error()
        assert len(server.requests) == 1

    asyncio.run(main())


def test_a_retry_policy_of_the_sdk_is_left_to_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        retry = ModelRetrySettings(max_retries=5, policy=retry_policies.network_error())
        with WireServer([status(500)] * 20) as server:
            agent = _agent(_responses(server), model_settings=ModelSettings(retry=retry))
            config = RunConfig(model_settings=ModelSettings(retry=retry))
            async with open_session(agent, tmp_path, run_config=config) as session:
                assert (await session.say("weather?")).status == "failed"
        assert len(server.requests) == 3

    asyncio.run(main())


def test_a_model_by_name_comes_from_the_run_configs_provider(tmp_path: Path) -> None:
    async def main() -> None:
        with WireServer([responses_stream(message("hi")), responses_stream(message("ho"))]) as server:
            provider = OpenAIProvider(openai_client=_client(server), use_responses=True)
            config = RunConfig(model_provider=provider)
            async with open_session(_agent("gpt-4.1"), tmp_path, run_config=config) as session:
                assert await session.answer_of("hello") == "hi"
                await session.client.update_session_settings(SESSION, {"model": "gpt-4.1-mini"})
                assert await session.answer_of("hello") == "ho"
        assert [body["model"] for _, body in server.requests] == ["gpt-4.1", "gpt-4.1-mini"]

    asyncio.run(main())
