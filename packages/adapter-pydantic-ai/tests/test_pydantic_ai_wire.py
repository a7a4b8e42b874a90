"""The framework's own models against a provider that speaks their wire formats: one request per attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic_wire_format import messages_stream, redacted_thinking, text, thinking, tool_use
from openai import AsyncOpenAI
from openai_wire_server import (
    Answer,
    WireServer,
    chat_stream,
    function_call,
    message,
    reasoning,
    responses_stream,
    status,
)
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage
from pydantic_ai_sessions import SESSION_ID, LiveSession, ScriptedModel, live_session, say

from dex_agents import AgentUsage

# The signatures of real providers are long and hold every character of base64.
SIGNATURE = "EqoBCkgIAR+/ABgCIkDx" + "aB3/+9" * 300 + "=="


def anthropic(server: WireServer) -> Model:
    client = AsyncAnthropic(api_key="none", base_url=server.url.removesuffix("/v1"))  # with its default of two retries
    return AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=client))


def responses(server: WireServer) -> Model:
    return OpenAIResponsesModel("gpt-5", provider=_openai(server))


def chat(server: WireServer) -> Model:
    return OpenAIChatModel("gpt-4o", provider=_openai(server))


def _openai(server: WireServer) -> OpenAIProvider:
    return OpenAIProvider(openai_client=AsyncOpenAI(api_key="none", base_url=server.url))


MODELS: dict[str, Callable[[WireServer], Model]] = {"anthropic": anthropic, "responses": responses, "chat": chat}


# Some versions of the framework read no usage with a newer release of the library that reads it for them.
READS_USAGE = bool(
    RequestUsage.extract(
        {
            "model": "gpt-wire-2026",
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        },
        provider="openai",
        provider_url="https://api.openai.com/v1",
        provider_fallback="openai",
        api_flavor="responses",
    ).input_tokens
)


def _check_usage(usage: AgentUsage, model_calls: int, *tokens: int) -> None:
    """Tokens of input, output, read from and written to the cache, and of reasoning."""
    assert usage.model_calls == model_calls
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.cache_write_tokens)
    assert not tokens or (*counts, usage.reasoning_tokens) == tokens


def _say(kind: str, words: str, *, breaks_off: bool = False) -> Answer:
    if kind == "anthropic":
        return messages_stream(text(words), breaks_off=breaks_off)
    if kind == "chat":
        return chat_stream(words, breaks_off=breaks_off)
    return responses_stream(message(words), breaks_off=breaks_off)


def _agent(model: Model, **options: Any) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(model, instructions="You help.", **options)

    @agent.tool_plain(retries=3)
    def weather(city: str) -> str:
        if city == "Nowhere":
            raise ModelRetry("no such city")
        return f"sunny in {city}"

    return agent


async def _streamed_text(session: LiveSession) -> str:
    streamed = ""
    async for event in session.client.stream_events(SESSION_ID):
        if event.type == "text_delta":
            streamed += event.payload["text"]
        if event.type == "turn_completed":
            break
    return streamed


def test_a_tool_turn_over_anthropics_messages_replays_thinking_byte_for_byte(tmp_path: Path) -> None:
    blocks = [
        thinking("Where is Oslo? \N{EARTH GLOBE EUROPE-AFRICA}", SIGNATURE),
        redacted_thinking(SIGNATURE[::-1]),
        tool_use("weather", {"city": "Oslo"}, "toolu_1"),
        tool_use("weather", {"city": "Nowhere"}, "toolu_2"),
    ]

    async def main() -> None:
        with WireServer(
            [messages_stream(*blocks), messages_stream(text("It is sunny.")), _say("anthropic", "Bye.")]
        ) as server:
            async with live_session(tmp_path, _agent(anthropic(server))) as session:
                assert await session.say("weather?") == "It is sunny."
                assert await _streamed_text(session) == "It is sunny."
                snapshot = await session.client.get_agent_snapshot(SESSION_ID)
                assert await session.say("thanks") == "Bye."
        second, third = (body["messages"] for _, body in server.requests[1:])
        assert all(body["stream"] for _, body in server.requests)
        assert [entry["role"] for entry in second] == ["user", "assistant", "user"]
        for replayed in (second[1]["content"], third[1]["content"]):
            assert replayed == blocks
        results = second[2]["content"]
        assert [result["tool_use_id"] for result in results] == ["toolu_1", "toolu_2"]
        assert [result.get("is_error", False) for result in results] == [False, True]
        _check_usage(snapshot.usage, 2, *((234, 18, 200, 14, 0) if READS_USAGE else ()))
        assert snapshot.messages[1].reasoning_text == "Where is Oslo? \N{EARTH GLOBE EUROPE-AFRICA}"

    asyncio.run(main())


def test_a_tool_turn_over_the_responses_api_replays_reasoning_byte_for_byte(tmp_path: Path) -> None:
    async def main() -> None:
        proof = reasoning("hm", SIGNATURE)
        with WireServer(
            [
                responses_stream(proof, function_call("weather", '{"city":"Oslo"}', "c1")),
                responses_stream(message("It is sunny.")),
            ]
        ) as server:
            async with live_session(tmp_path, _agent(responses(server))) as session:
                assert await session.say("weather?") == "It is sunny."
                assert await _streamed_text(session) == "It is sunny."
                usage = (await session.client.get_agent_snapshot(SESSION_ID)).usage
        sent = {item.get("type", item.get("role")): item for item in server.requests[1][1]["input"]}
        assert {key: sent["reasoning"][key] for key in proof} == proof
        assert (sent["function_call"]["id"], sent["function_call"]["call_id"]) == ("fc_c1", "c1")
        assert sent["function_call_output"]["output"] == "sunny in Oslo"
        _check_usage(usage, 2, *((100, 18, 40, 0, 8) if READS_USAGE else ()))

    asyncio.run(main())


def test_a_tool_turn_over_chat_completions(tmp_path: Path) -> None:
    async def main() -> None:
        calls = (("c1", "weather", '{"city":"Oslo"}'),)
        with WireServer([chat_stream(calls=calls), chat_stream("It is sunny.")]) as server:
            async with live_session(tmp_path, _agent(chat(server))) as session:
                assert await session.say("weather?") == "It is sunny."
                assert await _streamed_text(session) == "It is sunny."
        messages = server.requests[1][1]["messages"]
        assert [entry["role"] for entry in messages] == ["system", "user", "assistant", "tool"]
        assert messages[3]["content"] == "sunny in Oslo"

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
            model: Any = MODELS[kind](server)
            async with live_session(tmp_path, _agent(model)) as session:
                assert await session.say("weather?") == "It is sunny."
                usage = (await session.client.get_agent_snapshot(SESSION_ID)).usage
        assert len(server.requests) == 3
        assert usage.model_calls == 1
        assert all(headers["x-stainless-retry-count"] == "0" for headers in server.headers)
        assert model.client.max_retries == 2  # the application's own client is as it was

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
def test_a_failure_to_the_end_makes_three_requests(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        with WireServer([status(500)] * 9) as server:
            async with live_session(tmp_path, _agent(MODELS[kind](server))) as session:
                assert (await session.fail("weather?"))[0] in ("ModelHTTPError", "ModelServerError")
        assert len(server.requests) == 3

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("code", [400, 401, 404])
def test_a_refused_request_is_not_repeated(tmp_path: Path, kind: str, code: int) -> None:
    async def main() -> None:
        with WireServer([status(code, "your input is wrong")]) as server:
            async with live_session(tmp_path, _agent(MODELS[kind](server))) as session:
                error_type, words = await session.fail("weather?")
        assert error_type == "AgentRunRefusedError"
        assert "your input is wrong" in words
        assert len(server.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
def test_the_next_attempt_waits_as_long_as_the_provider_asks(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        with WireServer([status(429, retry_after="600"), _say(kind, "It is sunny.")]) as server:
            async with live_session(tmp_path, _agent(MODELS[kind](server))) as session:
                await session.begin("weather?")
                async for event in session.client.stream_events(SESSION_ID):
                    if event.type == "model_call_retrying":
                        break
                wait = datetime.fromisoformat(event.payload["next_attempt_at"]) - datetime.now(UTC)
                assert wait > timedelta(seconds=300)
                assert len(server.requests) == 1

    asyncio.run(main())


def _wrapped(model: Model) -> Model:
    return WrapperModel(model)


def _before_a_model_without_a_client(model: Model) -> Model:
    return FallbackModel(
        model, ScriptedModel(*[RuntimeError("down")] * 9, can_stream=True).model, fallback_on=(Exception,)
    )


@pytest.mark.parametrize("wrap", [_wrapped, _before_a_model_without_a_client])
def test_clients_behind_other_models_make_one_request_per_attempt_too(
    tmp_path: Path, wrap: Callable[[Model], Model]
) -> None:
    async def main() -> None:
        with WireServer([status(500)] * 9) as server:
            async with live_session(tmp_path, _agent(wrap(chat(server)))) as session:
                await session.fail("weather?")
        assert len(server.requests) == 3

    asyncio.run(main())


def test_a_fallback_model_asks_the_next_model_in_the_same_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        with WireServer([status(500), _say("anthropic", "It is sunny.")]) as server:
            agent = _agent(FallbackModel(chat(server), anthropic(server)))
            async with live_session(tmp_path, agent) as session:
                assert await session.say("weather?") == "It is sunny."
                assert await _streamed_text(session) == "It is sunny."
        assert [path.partition("?")[0] for path, _ in server.requests] == ["/v1/chat/completions", "/v1/messages"]

    asyncio.run(main())


@pytest.mark.skipif("max_retries" not in ModelSettings.__annotations__, reason="this version has no such setting")
def test_a_setting_of_the_agent_that_lets_its_client_retry_is_left_to_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        settings: Any = {"max_retries": 5}
        with WireServer([status(500)] * 20) as server:
            async with live_session(tmp_path, _agent(chat(server), model_settings=settings)) as session:
                await session.fail("weather?")
        assert len(server.requests) == 3

    asyncio.run(main())


def test_a_model_of_the_settings_makes_one_request_per_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        with WireServer([status(500), _say("chat", "It is sunny.")]) as server:
            agent = _agent(ScriptedModel(say("never asked")).model)
            async with live_session(tmp_path, agent, resolve_model=lambda settings: chat(server)) as session:
                assert await session.say("weather?") == "It is sunny."
        assert [headers["x-stainless-retry-count"] for headers in server.headers] == ["0", "0"]

    asyncio.run(main())
