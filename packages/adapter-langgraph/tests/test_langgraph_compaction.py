"""Compaction: what is summarised, what stays, and that the graph's own state outlives it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph_parity_agents import MoodState, add, read_mood, set_mood
from langgraph_sessions import SESSION, Models, calls, run_session

from dex_agents import CompactionPolicy, ToolEffect
from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS, CONTEXT_SUMMARY_NOTE_HEADER
from dex_agents.testing import AgentTestEnvironment
from dex_agents_langgraph import create_langgraph_session_flow

LONG = "word " * 300
SUMMARY = f"{CONTEXT_SUMMARY_NOTE_HEADER}\nThey said words."


def _policy(tokens: int = 1_000) -> CompactionPolicy:
    return CompactionPolicy(context_window_tokens=tokens, trigger_ratio=0.8, retained_ratio=0.3)


def _plain(models: Models, saver: Any) -> Any:
    replies = [AIMessage(f"{LONG}{number}", id=f"said-{number}") for number in range(6)]
    return create_agent(models.make("main", *replies), [], checkpointer=saver)


def _with_state(models: Models, saver: Any) -> Any:
    replies = [
        calls(("set_mood", {"mood": "calm"}, "c1")),
        AIMessage(f"{LONG}1"),
        AIMessage(f"{LONG}2"),
        calls(("read_mood", {}, "c1")),
        AIMessage("done"),
    ]
    agent = models.make("main", *replies)
    return create_agent(agent, [set_mood, read_mood], state_schema=MoodState, checkpointer=saver)


def _texts(request: Any) -> list[str]:
    return [message["content"] for message in request[1]]


def test_earlier_turns_become_a_summary_and_what_stays_keeps_its_ids(tmp_path: Path) -> None:
    models = Models()
    summarizer = models.make("summary", AIMessage("They said words."))
    turns = ["one", "two", "three"]
    options: Any = {"compaction": _policy(), "summary_model": summarizer}
    _, state = asyncio.run(run_session(tmp_path, _plain, models, turns, "", **options))
    (asked,) = models.requests["summary"]
    assert asked[0] == []
    assert _texts(asked)[0] == CONTEXT_SUMMARY_INSTRUCTIONS
    assert _texts(asked)[1:-1] == ["one", f"{LONG}0", "two", f"{LONG}1"]
    assert _texts(models.requests["main"][-1]) == [SUMMARY, "three"]
    assert state["messages"][-1].id == "said-2"


def test_the_graphs_state_outlives_the_messages_it_came_with(tmp_path: Path) -> None:
    models = Models()
    summarizer = models.make("summary", *[AIMessage("They said words.") for _ in range(3)])
    turns = ["one", "two", "three"]
    options: Any = {"compaction": _policy(), "summary_model": summarizer}
    messages, state = asyncio.run(run_session(tmp_path, _with_state, models, turns, "", **options))
    assert models.requests["summary"]
    assert state["mood"] == "calm"
    last = models.requests["main"][-1]
    assert _texts(last)[0] == SUMMARY
    assert last[1][-1]["content"].startswith("calm ")
    assert [message.role for message in messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip


def test_a_long_turn_is_summarised_between_its_rounds(tmp_path: Path) -> None:
    models = Models()
    summarizer = models.make("summary", *[AIMessage("They said words.") for _ in range(5)])

    def make(models: Models, saver: Any) -> Any:
        rounds = [calls(("add", {"a": number, "b": 1}, "c1"), text=LONG) for number in range(4)]
        return create_agent(models.make("main", *rounds, AIMessage("done")), [add], checkpointer=saver)

    options: Any = {"compaction": _policy(), "summary_model": summarizer}
    messages, _ = asyncio.run(run_session(tmp_path, make, models, ["go"], "", **options))
    assert models.requests["summary"]
    last = models.requests["main"][-1][1]
    assert last[0]["content"] == SUMMARY
    assert [message["type"] for message in last][-2:] == ["ai", "tool"]
    assert len(last) < len(messages)


class _RefusedError(Exception):
    status_code = 400


def test_a_turn_goes_on_where_a_summary_is_refused(tmp_path: Path) -> None:
    models = Models()
    summarizer = models.make("summary", _RefusedError("too long"), AIMessage("not asked"))

    def create_flow(_: Path) -> Any:
        return create_langgraph_session_flow(
            _plain(models, None), "Refused", compaction=_policy(), summary_model=lambda _: summarizer
        )

    async def run() -> None:
        async with AgentTestEnvironment(create_flow, runs_worker=True, directory=tmp_path) as environment:
            await environment.client.start_session(SESSION)
            for text in ("one", "two", "three"):
                result = await environment.client.send_and_wait(SESSION, text, timeout=60)
                assert result.status == "completed"

    asyncio.run(run())
    assert len(models.requests["summary"]) == 1
    assert len(models.requests["main"]) == 3


def test_a_policy_needs_a_model_that_summarises() -> None:
    with pytest.raises(ValueError, match="summary_model"):
        create_langgraph_session_flow(
            _plain(Models(), None), "A", compaction=_policy(), default_tool_effect=ToolEffect.READ
        )
