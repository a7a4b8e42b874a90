"""Turns of a session, from the user's message to the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry
from pydantic_ai_sessions import SESSION_ID, ScriptedModel, ask, call, live_session, say

from dex_agents import ToolPolicy
from dex_agents_pydantic_ai import APPROVE, current_tool_call


@pytest.mark.parametrize("can_stream", [False, True])
def test_a_text_turn(tmp_path: Path, can_stream: bool) -> None:
    async def scenario() -> None:
        script = ScriptedModel(say("hello you there"), say("again"), can_stream=can_stream)
        async with live_session(tmp_path, Agent(script.model, instructions="Be kind.")) as session:
            assert await session.say("hi") == "hello you there"
            assert await session.say("more") == "again"
            assert script.part_kinds() == ["user-prompt", "text", "user-prompt"]
            text = ""
            async for event in session.client.stream_events(SESSION_ID):
                if event.type == "text_delta":
                    text += event.payload["text"]
                if event.type == "turn_completed":
                    break
            assert text == "hello you there"
            usage = (await session.client.get_agent_snapshot(SESSION_ID)).usage
            assert usage.model_calls == 2
            assert usage.input_tokens > 0

    asyncio.run(scenario())


def test_parallel_calls_run_in_steps_of_their_own_and_are_seen_in_call_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(
            ask(call("add", {"a": 1, "b": 2}, "c1"), call("nope", {}, "c2"), call("add", {"a": "x"}, "c3")), say("done")
        )
        agent = Agent(script.model)

        @agent.tool_plain
        def add(a: int, b: int = 0) -> dict[str, int]:
            return {"sum": a + b}

        async with live_session(tmp_path, agent) as session:
            assert await session.say("add") == "done"
            first, second, third = script.results()
            assert (first.tool_call_id, first.content) == ("c1", {"sum": 3})
            assert "Unknown tool name: 'nope'" in str(second.content)
            assert (third.tool_call_id, third.tool_name) == ("c3", "add")

    asyncio.run(scenario())


def test_a_write_waits_for_approval_and_knows_its_idempotency_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("refund", {"amount": 5}, "c1")), say("done"))
        agent = Agent(script.model)
        seen: list[Any] = []

        @agent.tool(requires_approval=True, metadata={"effect": "non_idempotent_write"})
        def refund(ctx: RunContext[object], amount: int) -> str:
            assert ctx.metadata is not None
            seen.append(
                (
                    ctx.tool_call_approved,
                    ctx.metadata["dex_agents"]["idempotency_key"],
                    ctx.tool_call_metadata["dex_agents"]["idempotency_key"],
                    current_tool_call().idempotency_key,
                )
            )
            return f"refunded {amount}"

        async with live_session(tmp_path, agent) as session:
            await session.begin("refund")
            await session.client.approve(SESSION_ID, tool_name="refund")
            assert await session.answer() == "done"
            key = f"{SESSION_ID}/turn-1/c1"
            assert seen == [(True, key, key, key)]
            assert script.results()[0].content == "refunded 5"

    asyncio.run(scenario())


def test_a_rejected_call_is_denied_with_the_persons_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("refund")), say("done"))
        agent = Agent(script.model)

        @agent.tool_plain(requires_approval=True)
        def refund() -> str:
            raise AssertionError("nobody approved it")

        async with live_session(tmp_path, agent) as session:
            await session.begin("refund")
            await session.client.reject(SESSION_ID, tool_name="refund", rejection_message="Not today")
            assert await session.answer() == "done"
            (result,) = script.results()
            assert result.content == "Not today"
            assert getattr(result, "outcome", "denied") == "denied"

    asyncio.run(scenario())


def test_approval_asked_in_a_tool_is_a_decision_of_the_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("pay", {"amount": 500}, "c1")), say("done"))
        agent = Agent(script.model)
        approvals: list[bool] = []

        @agent.tool
        def pay(ctx: RunContext[object], amount: int) -> str:
            approvals.append(ctx.tool_call_approved)
            if not ctx.tool_call_approved:
                raise ApprovalRequired(metadata={"amount": amount})
            return f"paid {amount}"

        async with live_session(tmp_path, agent) as session:
            await session.begin("pay")
            (interrupt,) = await session.client.wait_for_interrupts(SESSION_ID, timeout=30)
            assert interrupt.question == 'Approve the call of pay? {"amount": 500}'
            assert await session.client.answer_question(SESSION_ID, interrupt.interrupt_id, APPROVE)
            assert await session.answer() == "done"
            assert approvals == [False, True]
            assert script.results()[0].content == "paid 500"

    asyncio.run(scenario())


def test_a_call_run_elsewhere_asks_for_its_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("later")), say("done"))
        agent = Agent(script.model)

        @agent.tool_plain
        def later() -> str:
            raise CallDeferred

        async with live_session(tmp_path, agent) as session:
            await session.begin("go")
            (interrupt,) = await session.client.wait_for_interrupts(SESSION_ID, timeout=30)
            assert await session.client.answer_question(SESSION_ID, interrupt.interrupt_id, "42 pages")
            assert await session.answer() == "done"
            assert script.results()[0].content == "42 pages"

    asyncio.run(scenario())


def test_a_waived_approval_is_approved_and_one_inside_the_tool_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("refund"), call("note")), say("done"))
        agent = Agent(script.model)
        approvals: dict[str, bool] = {}

        @agent.tool(requires_approval=True)
        def refund(ctx: RunContext[object]) -> str:
            approvals["refund"] = ctx.tool_call_approved
            return "refunded"

        @agent.tool
        def note(ctx: RunContext[object]) -> str:
            approvals["note"] = ctx.tool_call_approved
            return "noted"

        policies = {"refund": ToolPolicy(requires_approval=False)}
        async with live_session(tmp_path, agent, tool_policies=policies) as session:
            assert await session.say("go") == "done"
            assert approvals == {"refund": True, "note": False}

    asyncio.run(scenario())


def test_retries_are_counted_over_steps_and_end_the_turn_like_a_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("flaky", {}, "c1")), ask(call("flaky", {}, "c2")), ask(call("flaky", {}, "c3")))
        agent = Agent(script.model)
        counts: list[tuple[int, int]] = []

        @agent.tool(retries=2)
        def flaky(ctx: RunContext[object]) -> str:
            counts.append((ctx.retry, ctx.max_retries))
            raise ModelRetry("try again")

        async with live_session(tmp_path, agent) as session:
            error_type, message = await session.fail("go")
            assert error_type == "AgentRunRefusedError"
            assert "flaky" in message
            assert counts == [(0, 2), (1, 2), (2, 2)]
            assert len(script.seen) == 3

    asyncio.run(scenario())


def test_a_write_that_does_not_end_in_time_is_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        script = ScriptedModel(ask(call("slow")), say("checked"))
        agent = Agent(script.model)

        @agent.tool_plain(timeout=0.05, metadata={"effect": "non_idempotent_write"})
        async def slow() -> str:
            await asyncio.Event().wait()
            raise AssertionError

        policies = {"slow": ToolPolicy(requires_approval=False)}
        async with live_session(tmp_path, agent, tool_policies=policies) as session:
            assert await session.say("go") == "checked"
            assert "unknown whether this tool call took effect" in script.results()[0].content

    asyncio.run(scenario())
