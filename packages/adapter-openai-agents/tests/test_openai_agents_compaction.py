"""Compaction: what is summarised and by whom, what stays, and which agent goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import Agent, HandoffInputData, ModelSettings, ToolOutputImage, function_tool, handoff
from openai_agents_sessions import SESSION, LiveSession, open_session

from dex_agents import CompactionPolicy, FrameworkMessage
from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS
from dex_agents_openai_agents.summary_agent_note import agent_of_summary, with_agent_note, without_agent_note
from dex_agents_openai_agents.testing import ScriptedModel, SeenRequest, call_item, reasoning_item, text_item
from dex_agents_openai_agents.token_estimate import message_tokens

LONG = "word " * 400


@function_tool
def look() -> str:
    """Looks."""
    return LONG


@function_tool
def photo() -> ToolOutputImage:
    """A large picture."""
    return ToolOutputImage(image_url=f"data:image/png;base64,{'A' * 200_000}")


def _policy(tokens: int, **ratios: float) -> CompactionPolicy:
    return CompactionPolicy(context_window_tokens=tokens, **{"trigger_ratio": 0.8, "retained_ratio": 0.4, **ratios})


def _agent(model: ScriptedModel, **fields: Any) -> Agent[Any]:
    return Agent[Any](**{"name": "Assistant", "instructions": "You help.", "model": model, "tools": [look], **fields})


def _is_summary(request: SeenRequest) -> bool:
    return request.instructions == CONTEXT_SUMMARY_INSTRUCTIONS


async def _summary(session: LiveSession) -> str:
    summary = (await session.client.get_agent_snapshot(SESSION)).context_summary
    assert summary is not None
    return summary.text


def test_earlier_turns_are_summarised_and_read_as_a_summary(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel(
            [text_item(LONG, 1)], [text_item(LONG, 2)], [text_item("They said words.", 3)], [text_item("done", 4)]
        )
        settings = ModelSettings(tool_choice="auto", parallel_tool_calls=True)
        agent = _agent(model, model_settings=settings)
        async with open_session(agent, tmp_path, compaction=_policy(1_500)) as session:
            await session.answer_of("one")
            await session.answer_of("two")
            assert await session.answer_of("three") == "done"
            assert await _summary(session) == "They said words."
            assert "They said words." not in await session.streamed_text()
            usage = (await session.client.get_agent_snapshot(SESSION)).usage
        asked, after = model.requests[2:]
        assert (asked.tools, asked.tool_choice) == ([], None)
        assert asked.items[-1]["content"].startswith("[Dex] Write the summary")
        assert after.items[0]["content"].endswith("They said words.")
        assert after.items[-1] == {"role": "user", "content": "three"}
        assert usage.model_calls == 4

    asyncio.run(main())


def test_a_long_turn_is_summarised_between_its_rounds(tmp_path: Path) -> None:
    async def main() -> None:
        def answer(request: SeenRequest) -> list[Any]:
            if _is_summary(request):
                return [text_item("They looked.", 90)]
            number = len([seen for seen in model.requests if not _is_summary(seen)])
            if number > 6:
                return [text_item("done", 99)]
            return [reasoning_item("look", number), call_item("look", "{}", f"c{number}")]

        model = ScriptedModel(*[answer] * 30)
        async with open_session(_agent(model), tmp_path, compaction=_policy(2_500)) as session:
            assert await session.answer_of("look six times") == "done"
            assert await session.statuses() == [("look", "succeeded")] * 6
        summaries = [request for request in model.requests if _is_summary(request)]
        assert summaries
        for request in model.requests:
            calls = [item["call_id"] for item in request.items if item.get("type") == "function_call"]
            results = [item["call_id"] for item in request.items if item.get("type") == "function_call_output"]
            assert calls == results
            types = [item.get("type") for item in request.items]
            assert all(types[place - 1] == "reasoning" for place, kind in enumerate(types) if kind == "function_call")

    asyncio.run(main())


def test_the_agent_of_a_summarised_conversation_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        def answer(request: SeenRequest) -> list[Any]:
            if _is_summary(request):
                return [text_item("They were handed over.", 90)]
            if request.instructions == "first":
                return [call_item("transfer_to_second", "{}", "h1")]
            return [text_item(LONG, len(model.requests))]

        model = ScriptedModel(*[answer] * 30)
        second = _agent(model, name="Second", instructions="second")
        first = _agent(model, instructions="first", handoffs=[second])
        policy = _policy(1_500, retained_ratio=0.1)
        async with open_session(first, tmp_path, compaction=policy) as session:
            for text in ("one", "two", "three", "four", "five", "six"):
                await session.answer_of(text)
            assert agent_of_summary(await _summary(session)) == "Second"
        summaries = [request for request in model.requests if _is_summary(request)]
        assert len(summaries) >= 2
        # The model that summarises never reads the line, so that it cannot repeat an old one.
        assert all("The conversation is with the agent" not in str(request.items) for request in summaries)
        spoken = [request.instructions for request in model.requests if not _is_summary(request)]
        assert spoken == ["first", *["second"] * 6]

    asyncio.run(main())


def test_a_handoff_filter_keeps_its_effect_when_its_messages_are_summarised(tmp_path: Path) -> None:
    def nothing_before(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=({"role": "user", "content": "You take over."},))

    async def main() -> None:
        def answer(request: SeenRequest) -> list[Any]:
            if _is_summary(request):
                return [text_item("They looked.", 90)]
            if request.instructions == "first":
                return [call_item("transfer_to_second", "{}", "h1")]
            number = len([seen for seen in model.requests if seen.instructions == "second"])
            return [text_item("done", 99)] if number > 6 else [call_item("look", "{}", f"c{number}")]

        model = ScriptedModel(*[answer] * 30)
        second = _agent(model, name="Second", instructions="second")
        first = _agent(model, instructions="first", handoffs=[handoff(second, input_filter=nothing_before)])
        async with open_session(first, tmp_path, compaction=_policy(2_500)) as session:
            assert await session.answer_of("go") == "done"
        assert any(map(_is_summary, model.requests))
        taken_over = [request for request in model.requests if request.instructions == "second"]
        assert all(request.items[0]["content"] != "go" for request in taken_over)
        assert taken_over[0].items == [{"role": "user", "content": "You take over."}]

    asyncio.run(main())


def test_a_picture_does_not_count_as_its_text(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([call_item("photo")], [text_item("a picture", 1)], [text_item("again", 2)])
        agent = _agent(model, tools=[photo])
        async with open_session(agent, tmp_path, compaction=_policy(10_000)) as session:
            await session.answer_of("show")
            await session.answer_of("again")
            assert (await session.client.get_agent_snapshot(SESSION)).context_summary is None
            stored = [message for message in await session.messages() if message.role == "tool"]
        assert 1_000 < message_tokens(stored[0]) < 1_200

    asyncio.run(main())


def test_a_user_message_counts_its_text() -> None:
    message = FrameworkMessage(role="user", framework_item="{}", text="x" * 70)
    assert message_tokens(message) == 24


def test_the_line_of_an_agent_is_written_once_and_read_back() -> None:
    name = 'Billing "EU" \\ ü'
    text = with_agent_note(with_agent_note("They talked.\nA lot.", "Old"), name)
    assert agent_of_summary(text) == name
    assert without_agent_note(text) == "They talked.\nA lot."
    assert text.count("The conversation is with the agent") == 1
    assert agent_of_summary("They talked.") is None
    assert with_agent_note(text, None) == "They talked.\nA lot."
