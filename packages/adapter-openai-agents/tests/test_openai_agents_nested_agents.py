"""Agents used as tools: one call, and what happens inside it stays inside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    RunConfig,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_input_guardrail,
)
from openai_agents_sessions import agent_with_tools, one_call, open_session, read_results

from dex_agents import ToolEffect, ToolPolicy
from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item


async def _always(context: Any, arguments: Any, call_id: str) -> bool:
    return True


def test_an_agent_behind_a_tool_that_asks_for_approval_meanwhile_fails_its_call(tmp_path: Path) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=_always)
    def inner() -> str:
        ran.append("inner")
        return ""

    async def main() -> None:
        helper = agent_with_tools(ScriptedModel([call_item("inner", "{}", "n1")]), inner).as_tool("helper", "Helps.")
        model = one_call("helper", {"input": "x"})
        async with open_session(agent_with_tools(model, helper), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("helper", "failed")]
        assert "whose own tool (inner) needs an approval" in read_results(model)[0]
        assert ran == []

    asyncio.run(main())


def test_equal_calls_of_agents_behind_tools_in_two_sessions_are_two_calls(tmp_path: Path) -> None:
    @function_tool(needs_approval=_always)
    def inner() -> str:
        return ""

    async def main() -> None:
        helper_model = ScriptedModel([call_item("inner", "{}", "n1")], [text_item("helped")])
        helper = agent_with_tools(helper_model, inner).as_tool("helper", "Helps.")
        call = [call_item("helper", {"input": "x"}, "c1")]
        model = ScriptedModel(call, [text_item("failed", 1)], call, [text_item("done", 2)])
        async with open_session(agent_with_tools(model, helper), tmp_path) as session:
            assert await session.answer_of("go") == "failed"
            await session.client.start_session("other", initial_message="go")
            await session.client.wait_until_idle("other", timeout=30)
        assert read_results(model) == ["helped"]

    asyncio.run(main())


def test_the_run_configs_model_reaches_an_agent_behind_a_tool(tmp_path: Path) -> None:
    async def main() -> None:
        helper = Agent[Any](name="Helper", instructions="help", model=ScriptedModel()).as_tool("helper", "Helps.")
        model = ScriptedModel(
            [call_item("helper", {"input": "x"}, "c1")], [text_item("helped", 1)], [text_item("done", 2)]
        )
        async with open_session(
            agent_with_tools(ScriptedModel(), helper), tmp_path, run_config=RunConfig(model=model)
        ) as session:
            assert await session.answer_of("go") == "done"
        assert [request.instructions for request in model.requests] == ["You help.", "help", "You help."]
        assert read_results(model) == ["helped"]

    asyncio.run(main())


def test_an_agent_behind_a_tool_that_does_not_end_fails_the_attempt(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "seen"

    async def main() -> None:
        helper_model = ScriptedModel(*[[call_item("look", "{}", f"n{number}")] for number in range(9)])
        helper = agent_with_tools(helper_model, look).as_tool(
            "helper", "Helps.", max_turns=2, failure_error_function=None
        )
        model = one_call("helper", {"input": "x"})
        policies = {"helper": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(agent_with_tools(model, helper), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("helper", "failed")]
        assert "MaxTurnsExceeded" in read_results(model)[0]
        assert len(helper_model.requests) == 6

    asyncio.run(main())


def test_a_guardrail_behind_an_agent_used_as_a_tool_does_not_speak_for_the_tool(tmp_path: Path) -> None:
    @tool_input_guardrail
    def closed(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.raise_exception()

    @function_tool(tool_input_guardrails=[closed])
    def inner() -> str:
        return ""

    async def main() -> None:
        helper_model = ScriptedModel([call_item("inner", "{}", "n1")])
        helper = agent_with_tools(helper_model, inner).as_tool("helper", "Helps.", failure_error_function=None)
        model = one_call("helper", {"input": "x"})
        async with open_session(agent_with_tools(model, helper), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("helper", "outcome_unknown")]

    asyncio.run(main())
