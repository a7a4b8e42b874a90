"""LangChain's own models against a provider that speaks their wire formats: one request per attempt, always."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph_sessions import SESSION
from langgraph_wire_server import (
    Answer,
    WireServer,
    chat_stream,
    messages_stream,
    status,
    text_block,
    thinking_block,
    tool_use_block,
)

from dex_agents import AgentEvent, ToolEffect, ToolExecutionError
from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.testing import AgentTestEnvironment, poll_until
from dex_agents_langgraph import create_langgraph_session_flow

langchain_openai = pytest.importorskip("langchain_openai")
langchain_anthropic = pytest.importorskip("langchain_anthropic")


@tool
def weather(city: str) -> str:
    """The weather."""
    if city == "Atlantis":
        raise ToolExecutionError("there is no Atlantis")
    return f"sunny in {city}"


def _openai(server: WireServer, **options: Any) -> Any:
    options = {"max_retries": 0, "stream_usage": True, **options}
    return langchain_openai.ChatOpenAI(model="gpt-wire", base_url=f"{server.url}/v1", api_key="none", **options)


def _anthropic(server: WireServer, **options: Any) -> Any:
    options = {"max_retries": 0, **options}
    return langchain_anthropic.ChatAnthropic(model="claude-wire", base_url=server.url, api_key="none", **options)


MODELS: dict[str, Callable[..., Any]] = {"openai": _openai, "anthropic": _anthropic}


def _say(kind: str, text: str, *, breaks_off: bool = False) -> Answer:
    if kind == "openai":
        return chat_stream(text, breaks_off=breaks_off)
    return messages_stream(text_block(text), breaks_off=breaks_off)


class _Wire:
    """A session of an agent with a model."""

    def __init__(self, directory: Path, model: Any) -> None:
        agent = create_agent(model, [weather], system_prompt="You help.")
        options: Any = {"default_tool_effect": ToolEffect.READ, "attempt_backoff": timedelta(0)}
        flow = create_langgraph_session_flow(agent, "WireAgent", **options)
        self._environment = AgentTestEnvironment(lambda _: flow, runs_worker=True, directory=directory)

    async def __aenter__(self) -> _Wire:
        await self._environment.__aenter__()
        self.client = self._environment.client
        await self.client.start_session(SESSION)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._environment.__aexit__(*error)

    async def say(self, text: str) -> Any:
        return await self.client.send_and_wait(SESSION, text, timeout=60)

    async def events(self, type: str) -> list[dict[str, Any]]:
        stream = self._environment.flow.streams[AGENT_EVENTS.name]
        found = await self._environment.engine.read_stream(SESSION, stream, limit=100_000)
        events: list[AgentEvent] = [event.value for event in found]
        return [decode_event_payload(event) for event in events if event.type == type]

    async def streamed(self, type: str) -> str:
        return "".join(payload["text"] for payload in await self.events(type))


def test_a_tool_turn_over_chat_completions(tmp_path: Path) -> None:
    async def main() -> None:
        with WireServer(
            [chat_stream(calls=(("c1", "weather", '{"city":"Oslo"}'),)), chat_stream("It is sunny.")]
        ) as server:
            async with _Wire(tmp_path, _openai(server)) as session:
                assert (await session.say("weather?")).text == "It is sunny."
                assert await session.streamed("text_delta") == "It is sunny."
                usage = (await session.client.get_agent_snapshot(SESSION)).usage
        assert [path for path, _ in server.requests] == ["/v1/chat/completions"] * 2
        first, second = (body for _, body in server.requests)
        assert first["stream"] is True
        assert [each["function"]["name"] for each in first["tools"]] == ["weather"]
        assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
        assert second["messages"][2]["tool_calls"][0]["id"] == "c1"
        assert second["messages"][3] == {"role": "tool", "tool_call_id": "c1", "content": "sunny in Oslo"}
        assert (usage.model_calls, usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2, 100, 18, 118)
        assert (usage.cached_input_tokens, usage.reasoning_tokens) == (40, 8)

    asyncio.run(main())


def test_a_tool_turn_over_messages_with_reasoning_that_is_sent_back(tmp_path: Path) -> None:
    async def main() -> None:
        asked = (
            thinking_block("look twice", "proof=="),
            tool_use_block("c1", "weather", city="Oslo"),
            tool_use_block("c2", "weather", city="Atlantis"),
        )
        with WireServer([messages_stream(*asked), messages_stream(text_block("It is sunny."))]) as server:
            model = _anthropic(server, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048)
            async with _Wire(tmp_path, model) as session:
                assert (await session.say("weather?")).text == "It is sunny."
                assert await session.streamed("text_delta") == "It is sunny."
                assert await session.streamed("reasoning_delta") == "look twice"
                snapshot = await session.client.get_agent_snapshot(SESSION)
        messages = server.requests[1][1]["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "user"]
        thinking, first, second = messages[1]["content"]
        assert (thinking["thinking"], thinking["signature"]) == ("look twice", "proof==")
        assert [(use["id"], use["input"]) for use in (first, second)] == [
            ("c1", {"city": "Oslo"}),
            ("c2", {"city": "Atlantis"}),
        ]
        results = messages[2]["content"]
        assert [(result["tool_use_id"], bool(result.get("is_error"))) for result in results] == [
            ("c1", False),
            ("c2", True),
        ]
        assert snapshot.messages[1].reasoning_text == "look twice"
        assert snapshot.usage.model_calls == 2
        assert (snapshot.usage.cached_input_tokens, snapshot.usage.cache_write_tokens) == (40, 10)

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
            async with _Wire(tmp_path, MODELS[kind](server)) as session:
                assert (await session.say("weather?")).text == "It is sunny."
                assert len(server.requests) == 3
                stored = (await session.client.get_agent_snapshot(SESSION)).messages
                assert [message.text for message in stored] == ["weather?", "It is sunny."]
                assert len(await session.events("model_call_retrying")) == 2

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
def test_a_failure_to_the_end_makes_three_requests(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        with WireServer([status(500)] * 9) as server:
            async with _Wire(tmp_path, MODELS[kind](server)) as session:
                result = await session.say("weather?")
                assert result.status == "failed"
                assert "Error code: 500" in result.error.message
        assert len(server.requests) == 3

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("code", [400, 401, 404])
def test_a_refused_request_is_not_repeated(tmp_path: Path, kind: str, code: int) -> None:
    async def main() -> None:
        with WireServer([status(code, "your input is wrong")]) as server:
            async with _Wire(tmp_path, MODELS[kind](server)) as session:
                result = await session.say("weather?")
                assert result.status == "failed"
                assert "your input is wrong" in result.error.message
        assert len(server.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
def test_the_next_attempt_waits_as_long_as_the_provider_asks(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        with WireServer([status(429, retry_after="600"), _say(kind, "It is sunny.")]) as server:
            async with _Wire(tmp_path, MODELS[kind](server)) as session:
                await session.client.send_user_message(SESSION, "weather?")

                async def retry() -> Any:
                    return next(iter(await session.events("model_call_retrying")), None)

                seen = await poll_until(retry, awaited="an event model_call_retrying")
                wait = datetime.fromisoformat(seen["next_attempt_at"]) - datetime.now(UTC)
                assert wait > timedelta(seconds=300)
                assert len(server.requests) == 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", MODELS)
def test_a_client_that_repeats_requests_by_itself_is_named(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with WireServer([_say(kind, "It is sunny.")]) as server:
            # Each client's own default, of two repetitions.
            model = MODELS[kind](server, **({"max_retries": None} if kind == "openai" else {"max_retries": 2}))
            async with _Wire(tmp_path, model) as session:
                assert (await session.say("weather?")).text == "It is sunny."

    with caplog.at_level(logging.WARNING, logger="dex_agents_langgraph"):
        asyncio.run(main())
    assert f"{'ChatOpenAI' if kind == 'openai' else 'ChatAnthropic'} repeats failed requests by itself" in caplog.text
