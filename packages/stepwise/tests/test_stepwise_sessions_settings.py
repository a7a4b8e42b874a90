"""Settings, changed arguments and turn limits from end to end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dex_agents import AgentUsage, CompactionPolicy, TurnLimits, TurnRefusedError
from dex_agents.session.texts import ARGUMENTS_CHANGED_BY_USER
from dex_agents_stepwise import (
    InstructionContext,
    ModelOutput,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedReplyHold,
)

from .stepwise_agent import ask, call, note, refund_order, say, script
from .stepwise_session_driver import StrictModelClient
from .stepwise_sessions import live_session


def test_a_turn_keeps_the_model_it_started_with(tmp_path: Path) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold()
        calling = ask(call("note", {"text": "x"}))
        held = ScriptedModelReply(tool_calls=calling.tool_calls, hold=hold)
        scripted = {
            "small": ScriptedModelClient(script(held, say("small's answer")), provider="small"),
            "large": ScriptedModelClient(script(say("large's answer")), provider="large"),
        }
        models = {name: StrictModelClient(model) for name, model in scripted.items()}
        seen: list[Any] = []

        def instructions(context: InstructionContext) -> str:
            seen.append(context.session_settings["model"])
            return "Help."

        async with live_session(
            tmp_path,
            script(),
            tools=[note],
            instructions=instructions,
            resolve_model=lambda settings: models[settings["model"]],
        ) as session:
            await session.update_settings(model="small")
            await session.say("go")
            await hold.wait_until_reached()
            await session.update_settings(model="large")
            hold.release()
            assert await session.idle() == "small's answer"
            await session.say("go on")
            assert await session.idle() == "large's answer"
            assert [len(model.requests) for model in scripted.values()] == [2, 1]
            assert seen == ["small", "small", "large"]
            outputs = [i for i in scripted["large"].requests[0].input_items if isinstance(i, ModelOutput)]
            assert [output.item for output in outputs] == [None, None]  # text and calls of the other provider
            assert outputs[1].text == "small's answer"
            assert session.model.requests == ()

    asyncio.run(scenario())


def test_the_chosen_model_also_summarises(tmp_path: Path) -> None:
    async def scenario() -> None:
        other = ScriptedModelClient(lambda request: say("a summary" if request.tool_choice == "none" else "ok"))
        async with live_session(
            tmp_path,
            script(),
            tools=[note],
            resolve_model=lambda settings: StrictModelClient(other),
            compaction=CompactionPolicy(context_window_tokens=400),
        ) as session:
            for _ in range(6):
                await session.say("x" * 500)
                assert await session.idle() == "ok"
            assert (await session.snapshot()).context_summary is not None
            assert any(ScriptedModelClient.is_summary_request(request) for request in other.requests)

    asyncio.run(scenario())


@pytest.mark.parametrize("has_compaction", [False, True])
@pytest.mark.parametrize("returned", [None, ScriptedModelClient])
def test_a_model_that_cannot_be_chosen_fails_the_turn_without_the_settings(
    tmp_path: Path, has_compaction: bool, returned: Any
) -> None:
    async def scenario() -> None:
        answers: dict[str, Any] = {"nothing": returned}
        policy = CompactionPolicy(context_window_tokens=1_000) if has_compaction else None
        async with live_session(
            tmp_path, script(), resolve_model=lambda settings: answers[settings["model"]], compaction=policy
        ) as session:
            await session.update_settings(model="confidential")
            await session.say("go")
            error = (await session.ended_state()).last_turn_error
            assert error is not None
            assert error.type == "ModelResolutionError"
            assert error.message == "AgentDefinition.resolve_model raised KeyError"
            assert "confidential" not in repr(error)
            await session.update_settings(model="nothing")
            await session.say("go")
            error = (await session.ended_state()).last_turn_error
            assert error is not None
            assert "resolve_model must return a ModelClient" in error.message

    asyncio.run(scenario())


def test_a_refusal_to_choose_a_model_is_shown_as_it_is(tmp_path: Path) -> None:
    def refuse(settings: Any) -> Any:
        calls.append(1)
        raise TurnRefusedError("no model for this customer")

    calls: list[int] = []

    async def scenario() -> None:
        async with live_session(tmp_path, script(), resolve_model=refuse) as session:
            await session.say("go")
            error = (await session.ended_state()).last_turn_error
            assert error is not None
            assert (error.type, error.message) == ("TurnRefusedError", "no model for this customer")
            assert calls == [1]

    asyncio.run(scenario())


def test_changed_arguments_reach_the_tool_and_the_model(tmp_path: Path) -> None:
    """F29."""

    async def scenario() -> None:
        replies = script(ask(call("refund_order", {"order_id": 7})), say("done"))
        async with live_session(tmp_path, replies, tools=[refund_order]) as session:
            await session.say("refund order 7")
            await session.interrupts()
            for refused in ({"order_id": "nine"}, {"order_id": 9, "amount": 5}, {"order_id": None}):
                assert not await session.approve_with(refused)
            assert await session.approve_with({"order_id": 9})
            assert await session.idle() == "done"
            assert session.results_seen() == [f'{ARGUMENTS_CHANGED_BY_USER}{{"order_id": 9}}\nrefunded 9']
            (asked,) = [i for i in session.model.requests[-1].input_items if isinstance(i, ModelOutput)]
            assert asked.tool_calls[0].arguments == '{"order_id": 7}'  # what the model said stays what it said

    asyncio.run(scenario())


@pytest.mark.parametrize("is_setting", [False, True])
def test_a_turn_that_reached_a_limit_makes_one_last_call_without_tools(tmp_path: Path, is_setting: bool) -> None:
    async def scenario() -> None:
        again = ask(call("note", {"text": "x"}), call("note", {"text": "y"}))
        insisting = ScriptedModelReply(text="I insist.", tool_calls=again.tool_calls)
        replies = script(again, again, insisting, say("hello"))
        options = {} if is_setting else {"turn_limits": TurnLimits(model_calls=2)}
        async with live_session(tmp_path, replies, flow_options=options, tools=[note]) as session:
            if is_setting:
                await session.update_settings(turn_limits={"model_calls": 2})
            await session.say("go")
            refused = "The tool call was not run: this turn reached its limit of 2 model calls."
            assert await session.idle() == refused
            stored = (await session.snapshot()).messages
            assert [message.text for message in stored[-3:]] == ["I insist.", refused, refused]
            assert [request.tool_choice for request in session.model.requests] == ["auto", "auto", "none"]
            assert session.model.requests[-1].tools == ()
            await session.say("again")
            assert await session.idle() == "hello"
            assert session.results_seen() == ["noted x", "noted y"] * 2 + [refused, refused]
            assert session.model.requests[-1].tool_choice == "auto"

    asyncio.run(scenario())


def test_a_limit_of_tokens_says_which_one_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        again = ask(call("note", {"text": "x"}))
        usage = {"input_tokens": 60, "output_tokens": 50, "total_tokens": 110}
        costly = ScriptedModelReply(tool_calls=again.tool_calls, usage=AgentUsage(**usage))
        options = {"turn_limits": TurnLimits(total_tokens=100)}
        async with live_session(tmp_path, script(costly, again), flow_options=options, tools=[note]) as session:
            await session.say("go")
            assert await session.idle() == "The tool call was not run: this turn reached its limit of 100 total tokens."

    asyncio.run(scenario())
