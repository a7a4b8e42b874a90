"""Questions that tools ask the user in the middle of their work."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from agents import (
    function_tool,
)
from openai_agents_sessions import SESSION, agent_with_tools, one_call, open_session, read_results

from dex_agents import ToolEffect, ToolPolicy
from dex_agents_openai_agents import current_tool_call


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_tool_asks_the_user_and_runs_again_with_the_answer(tmp_path: Path, is_sync: bool) -> None:
    runs: list[str] = []

    def ask() -> str:
        runs.append("begun")
        try:
            where = current_tool_call().ask_user("Where to?", choices=("staging", "production"))
        except Exception as error:  # a tool that handles its errors does not swallow the question
            return f"broken: {error}"
        runs.append(where)
        return f"deployed to {where}"

    async def ask_on_loop() -> str:
        return ask()

    async def main() -> None:
        model = one_call("deploy")
        tool = function_tool(ask if is_sync else ask_on_loop, name_override="deploy")
        async with open_session(agent_with_tools(model, tool), tmp_path) as session:
            await session.say("go")
            await session.client.answer(SESSION, "production")
            await session.finished()
        assert read_results(model) == ["deployed to production"]
        assert runs == ["begun", "begun", "production"]

    asyncio.run(main())


def test_a_swallowed_question_fails_the_call_once(tmp_path: Path) -> None:
    runs: list[str] = []

    @function_tool
    def deploy() -> str:
        runs.append("begun")
        with contextlib.suppress(BaseException):
            current_tool_call().ask_user("Where to?")
        return "deployed"

    async def main() -> None:
        model = one_call("deploy")
        policies = {"deploy": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(agent_with_tools(model, deploy), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("deploy", "failed")]
        assert "went on after it asked the user" in read_results(model)[0]
        assert runs == ["begun"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("question", "options", "words"),
    [(" ", {}, "blank"), ("Where?", {"choices": [""]}, "blank"), ("Where?", {"allows_free_text": False}, "choices")],
)
def test_a_question_that_nobody_could_answer_is_refused(
    tmp_path: Path, question: str, options: dict[str, Any], words: str
) -> None:
    @function_tool
    def deploy() -> str:
        return current_tool_call().ask_user(question, **options)

    async def main() -> None:
        model = one_call("deploy")
        policies = {"deploy": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(
            agent_with_tools(model, deploy), tmp_path, tool_policies=policies, tool_errors="retry"
        ) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("deploy", "failed")]
        assert words in read_results(model)[0]

    asyncio.run(main())
