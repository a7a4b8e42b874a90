"""Questions that tools ask the user in the middle of their work, and remote work that the session polls."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai_sessions import SESSION_ID, LiveSession, ScriptedModel, ask, call, live_session, say

from dex_agents import ToolTaskPending, ToolTaskPoll, ToolTaskStarted
from dex_agents_pydantic_ai import APPROVE, RemoteTask, create_pydantic_ai_session_flow, current_tool_call


def _deploying() -> tuple[ScriptedModel, Agent[Any, Any]]:
    script = ScriptedModel(ask(call("deploy")), say("done"))
    return script, Agent(script.model)


async def _answer(session: LiveSession, question: str, answer: str) -> None:
    (interrupt,) = await session.client.wait_for_interrupts(SESSION_ID, timeout=30)
    assert interrupt.question == question
    assert await session.client.answer_question(SESSION_ID, interrupt.interrupt_id, answer)


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_tool_asks_the_user_and_runs_again_with_the_answer(tmp_path: Path, is_sync: bool) -> None:
    runs: list[str] = []
    script, agent = _deploying()

    def ask_where() -> str:
        runs.append("begun")
        try:
            where = current_tool_call().ask_user("Where to?", choices=("staging", "production"))
        except Exception as error:  # a tool that handles its errors does not swallow the question
            return f"broken: {error}"
        runs.append(where)
        return f"deployed to {where}"

    async def ask_on_loop() -> str:
        return ask_where()

    function: Any = ask_where if is_sync else ask_on_loop
    agent.tool_plain(name="deploy")(function)

    async def main() -> None:
        async with live_session(tmp_path, agent) as session:
            await session.begin("go")
            await _answer(session, "Where to?", "production")
            assert await session.answer() == "done"
        assert [result.content for result in script.results()] == ["deployed to production"]
        assert runs == ["begun", "begun", "production"]

    asyncio.run(main())


@pytest.mark.parametrize("asks_first", [True, False])
def test_a_question_and_an_approval_of_one_tool_do_not_lose_each_other(tmp_path: Path, asks_first: bool) -> None:
    script, agent = _deploying()

    @agent.tool
    def deploy(ctx: RunContext[Any]) -> str:
        where = current_tool_call().ask_user("Where to?") if asks_first else ""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"deployed to {where or current_tool_call().ask_user('Where to?')}"

    async def main() -> None:
        answers = [("Where to?", "oslo"), ("Approve the call of deploy?", APPROVE)]
        async with live_session(tmp_path, agent) as session:
            await session.begin("go")
            for question, answer in answers if asks_first else reversed(answers):
                await _answer(session, question, answer)
            assert await session.answer() == "done"
        assert [result.content for result in script.results()] == ["deployed to oslo"]

    asyncio.run(main())


def test_a_swallowed_question_fails_the_call_once(tmp_path: Path) -> None:
    runs: list[str] = []
    script, agent = _deploying()

    @agent.tool_plain
    def deploy() -> str:
        runs.append("begun")
        with contextlib.suppress(BaseException):
            current_tool_call().ask_user("Where to?")
        return "deployed"

    async def main() -> None:
        async with live_session(tmp_path, agent) as session:
            assert await session.say("go") == "done"
        assert "went on after it asked the user" in script.results()[0].content
        assert runs == ["begun"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("question", "options", "words"),
    [(" ", {}, "blank"), ("Where?", {"choices": [""]}, "blank"), ("Where?", {"allows_free_text": False}, "choices")],
)
def test_a_question_that_nobody_could_answer_is_refused(
    tmp_path: Path, question: str, options: dict[str, Any], words: str
) -> None:
    script, agent = _deploying()

    @agent.tool_plain
    def deploy() -> str:
        return current_tool_call().ask_user(question, **options)

    async def main() -> None:
        async with live_session(tmp_path, agent) as session:
            assert await session.say("go") == "done"
        assert words in script.results()[0].content

    asyncio.run(main())


def test_remote_work_is_polled_with_the_id_that_the_tool_returned(tmp_path: Path) -> None:
    script, agent = _deploying()
    polled: list[tuple[str | None, str | None]] = []

    @agent.tool_plain
    def deploy() -> ToolTaskStarted:
        return ToolTaskStarted(task_id="job-1", poll_interval_seconds=1)

    async def poll(poll: ToolTaskPoll) -> str | ToolTaskPending:
        polled.append((poll.tool_call.task_id, poll.tool_call.input_continuation))
        return "deployed" if len(polled) == 2 else ToolTaskPending(poll_interval_seconds=1, continuation="half")

    async def main() -> None:
        async with live_session(tmp_path, agent, remote_tasks={"deploy": RemoteTask(poll=poll)}) as session:
            assert await session.say("go") == "done"
        assert script.results()[0].content == "deployed"
        assert polled == [("job-1", None), ("job-1", "half")]

    asyncio.run(main())


def test_remote_work_that_nobody_polls_fails_the_call(tmp_path: Path) -> None:
    script, agent = _deploying()

    @agent.tool_plain
    def deploy() -> ToolTaskStarted:
        return ToolTaskStarted(task_id="job-1", poll_interval_seconds=1)

    async def main() -> None:
        async with live_session(tmp_path, agent) as session:
            assert await session.say("go") == "done"
        assert "remote work that this agent cannot follow" in script.results()[0].content

    asyncio.run(main())


def test_a_remote_task_of_the_wrong_type_is_refused_by_name() -> None:
    wrong: Any = {"deploy": print}
    with pytest.raises(TypeError, match="remote_tasks\\['deploy'\\] must be a RemoteTask"):
        create_pydantic_ai_session_flow(_deploying()[1], "TestAgent", remote_tasks=wrong)
