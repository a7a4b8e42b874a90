"""Steering and stopping turns from end to end: a strict provider accepts what is left of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dex_agents.session.texts import (
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
)
from dex_agents_stepwise import ModelUserText, ScriptedModelReply, ScriptedReplyHold, ToolCallContext, function_tool

from .stepwise_agent import ask, call, say, script
from .stepwise_sessions import live_session


class SlowTool:
    """A tool that runs until the test lets it end."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()
        self.tool = function_tool(self.run, name="slow", effect="read")

    async def run(self) -> str:
        self.started.set()
        await self.may_end.wait()
        return "slow but done"


@function_tool(effect="non_idempotent_write")
def pay(amount: int) -> str:
    raise AssertionError("nobody approved it")


@function_tool(effect="read")
def choose(context: ToolCallContext) -> str:
    return context.ask_user("Which?")


@pytest.mark.parametrize("is_steered", [True, False])
def test_a_turn_ends_while_its_tools_run_and_wait(tmp_path: Path, is_steered: bool) -> None:
    async def scenario() -> None:
        slow = SlowTool()
        waiting = ask(
            call("pay", {"amount": 5}),
            call("slow"),
            call("choose"),
            call("ask_user", {"question": "Sure?"}),
            call("durable_wait", {"duration_seconds": 60, "reason": "a minute"}),
        )
        async with live_session(
            tmp_path,
            script(waiting, say("hello")),
            tools=[slow.tool, pay, choose],
            built_in_tools=["ask_user", "durable_wait"],
        ) as session:
            await session.say("go")
            await session.interrupts(3)
            await slow.started.wait()
            if is_steered:
                await session.steer("use staging instead")
            else:
                await session.cancel_turn()
                await session.say("use staging instead")
            slow.may_end.set()
            assert await session.idle() == "hello"
            not_run = (
                TOOL_CALL_CANCELLED_BY_STEERING_RESULT
                if is_steered
                else TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT
            )
            assert session.results_seen() == [not_run, "slow but done", not_run, not_run, not_run]
            assert session.users_seen() == ["go", "use staging instead"]
            assert isinstance(session.model.requests[-1].input_items[-1], ModelUserText)

    asyncio.run(scenario())


@pytest.mark.parametrize("has_results", [False, True])
def test_a_turn_is_stopped_while_the_model_answers(tmp_path: Path, has_results: bool) -> None:
    async def scenario() -> None:
        slow = SlowTool()
        slow.may_end.set()
        hold = ScriptedReplyHold(after_deltas=1)
        held = ScriptedModelReply(text="never stored", hold=hold)
        replies = [ask(call("slow")), held] if has_results else [held]
        async with live_session(tmp_path, script(*replies, say("hello")), tools=[slow.tool]) as session:
            await session.say("go")
            await hold.wait_until_reached()
            await session.cancel_turn()
            assert await session.idle() == ("slow but done" if has_results else "go")
            assert session.model.cancelled_requests == session.model.requests[-1:]
            await session.say("next")
            assert await session.idle() == "hello"
            assert session.users_seen() == ["go", "next"]
            assert session.results_seen() == (["slow but done"] if has_results else [])
            assert len(session.model.cancelled_requests) == 1

    asyncio.run(scenario())


def test_a_running_model_call_finishes_under_a_steer(tmp_path: Path) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold(after_deltas=1)
        asking = ScriptedModelReply(text="I pay", tool_calls=ask(call("pay", {"amount": 5})).tool_calls, hold=hold)
        async with live_session(tmp_path, script(asking, say("hello")), tools=[pay]) as session:
            await session.say("go")
            await hold.wait_until_reached()
            await session.steer("do not pay")
            hold.release()
            assert await session.idle() == "hello"
            assert session.results_seen() == [TOOL_CALL_CANCELLED_BY_STEERING_RESULT]
            assert session.users_seen() == ["go", "do not pay"]
            assert session.model.cancelled_requests == ()

    asyncio.run(scenario())


def test_several_steered_messages_follow_each_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold()
        asking = ScriptedModelReply(tool_calls=ask(call("pay", {"amount": 5})).tool_calls, hold=hold)
        async with live_session(tmp_path, script(asking, say("hello")), tools=[pay]) as session:
            await session.say("go")
            await hold.wait_until_reached()
            await session.steer("stop")
            await session.steer("use staging")
            hold.release()
            assert await session.idle() == "hello"
            assert session.users_seen() == ["go", "stop", "use staging"]

    asyncio.run(scenario())
