"""State that a newer version of the framework wrote and this one cannot read: a named error, which is not retried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import RetryPromptPart, ToolReturnPart
from pydantic_ai_sessions import SESSION_ID, LiveSession, ScriptedModel, ask, call, live_session, say

from dex_agents import TurnRefusedError
from dex_agents_pydantic_ai import IncompatibleFrameworkVersionError, framework_messages, run_state
from dex_agents_pydantic_ai.framework_messages import FRAMEWORK_VERSION, decode_messages, encode_message
from dex_agents_pydantic_ai.run_state import RunState, decode_run_state

NEWER = "97.5.3"


def _write_as_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its responses hold a kind of part that the installed version has not heard of."""
    dump = framework_messages._dump
    monkeypatch.setattr(framework_messages, "FRAMEWORK_VERSION", NEWER)
    monkeypatch.setattr(
        framework_messages,
        "_dump",
        lambda message: dump(message).replace(b'"part_kind":"text"', b'"part_kind":"hologram"'),
    )


def test_a_turn_ends_at_once_and_names_the_version_that_wrote_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        script = ScriptedModel(say("hello"))
        async with live_session(tmp_path, Agent(script.model)) as session:
            with monkeypatch.context() as patch:
                _write_as_a_newer_version(patch)
                assert await session.say("hi") == "hello"
            _check(*await session.fail("again"))
            assert "model_call_retrying" not in await _events_to_the_failure(session)
        assert len(script.seen) == 1

    asyncio.run(scenario())


def test_a_version_that_changes_in_the_middle_of_a_turn_ends_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("look"), text="let me see"))
        agent = Agent(script.model)

        @agent.tool_plain
        def look() -> str:
            monkeypatch.undo()  # the next Step runs on a worker that was not upgraded yet
            return "seen"

        async with live_session(tmp_path, agent) as session:
            _write_as_a_newer_version(monkeypatch)
            _check(*await session.fail("hi"))
            assert "model_call_retrying" not in await _events_to_the_failure(session)
        assert len(script.seen) == 1

    asyncio.run(scenario())


def _check(error_type: str, message: str) -> None:
    assert error_type == "IncompatibleFrameworkVersionError"
    assert f"Pydantic AI {NEWER} wrote" in message
    assert f"the installed version {FRAMEWORK_VERSION} cannot read" in message
    assert f"{NEWER} or newer" in message
    assert "hologram" in message


async def _events_to_the_failure(session: LiveSession) -> list[str]:
    return [event.type async for event in _events(session)]


async def _events(session: LiveSession) -> AsyncIterator[Any]:
    async for event in session.client.stream_events(SESSION_ID):
        yield event
        if event.type == "turn_failed":
            break


def test_a_tool_is_not_run_when_the_state_of_its_turn_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("look")), say("back"))
        agent = Agent(script.model)
        attempts: list[str] = []

        @agent.tool_plain
        def look() -> str:
            attempts.append("run")
            return "seen"

        monkeypatch.setattr(run_state, "FORMAT_VERSION", 0)  # so that what this release writes is too new for it
        async with live_session(tmp_path, agent) as session:
            error_type, message = await session.fail("hi")
            events = [event async for event in _events(session)]
            monkeypatch.undo()
            assert await session.say("again") == "back"
        assert error_type == "IncompatibleFrameworkVersionError"
        assert f"Pydantic AI {FRAMEWORK_VERSION} wrote" in message
        (ended,) = [event.payload for event in events if event.type == "tool_call_finished"]
        assert ended["status"] == "failed"
        # The call has its result, or the model's provider would refuse the conversation for good.
        (result,) = script.results()
        assert (result.tool_call_id, "IncompatibleFrameworkVersionError" in result.content) == ("call_look", True)
        assert attempts == []

    asyncio.run(scenario())


def test_the_error_ends_a_turn_instead_of_being_retried() -> None:
    assert issubclass(IncompatibleFrameworkVersionError, TurnRefusedError)


def test_of_several_messages_the_unreadable_ones_version_is_named() -> None:
    texts = [encode_message(say("old")), '{"kind":"hologram"}', encode_message(say("last"))]
    with pytest.raises(IncompatibleFrameworkVersionError, match=NEWER):
        decode_messages(texts, ["1.88.0", NEWER, "2.0.0"])
    assert len(decode_messages([texts[0], texts[2]], ["1.88.0", "2.0.0"])) == 2


def test_a_run_state_of_a_newer_form_is_refused() -> None:
    newer = msgspec.structs.replace(RunState(), pydantic_ai=NEWER, format_version=2)
    with pytest.raises(IncompatibleFrameworkVersionError, match=f"{NEWER}.*format 2 of the run state"):
        decode_run_state(newer.encode())


def test_fields_that_a_newer_release_added_to_the_run_state_are_ignored() -> None:
    assert decode_run_state('{"format_version":1,"output_retries":3,"hologram":[1]}').output_retries == 3


def test_an_unreadable_usage_names_the_version_that_wrote_it() -> None:
    state = RunState(pydantic_ai=NEWER, usage={"requests": "many"})
    with pytest.raises(IncompatibleFrameworkVersionError, match=NEWER):
        decode_run_state(state.encode()).run_usage()


def test_an_older_versions_retry_prompt_is_read() -> None:
    text = (
        '{"parts":[{"content":"try again","tool_name":"look","tool_call_id":"c1",'
        '"timestamp":"2025-01-01T00:00:00Z","part_kind":"retry-prompt"}],"instructions":null,"kind":"request"}'
    )
    (request,) = decode_messages([text], ["1.88.0"])
    (part,) = request.parts
    assert isinstance(part, RetryPromptPart | ToolReturnPart)  # newer versions say it with the latter
    assert (part.content, part.tool_call_id) == ("try again", "c1")
