"""Turns that end without an answer: a strict provider still accepts the transcript, with one exact result per call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents import AgentToolCall, AgentToolCallStatus, ToolCallsRequested, UnfinishedTurnMessageBuilder
from dex_agents.session.texts import (
    OUTCOME_UNKNOWN_TOOL_RESULT,
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
    TOOL_CALL_REJECTED_RESULT,
    TURN_FAILURE_NOTE_HEADER,
)
from dex_agents_stepwise import (
    ModelOutput,
    ModelToolResult,
    ModelUserText,
    ScriptedModelReply,
    ScriptedReplyHold,
    ScriptedToolCall,
)

from .stepwise_agent import Agent, ask, call, say
from .stepwise_session_driver import final, patient

Status = AgentToolCallStatus

# How a call of a turn that ends early may have ended, and what the model must read about it.
ENDINGS: dict[str, tuple[Status, dict[str, Any], str]] = {
    "succeeded": (Status.SUCCEEDED, {"output": "noted"}, "noted"),
    "succeeded empty": (Status.SUCCEEDED, {"output": ""}, ""),
    "failed": (Status.FAILED, {"error": "it is broken"}, "it is broken"),
    "rejected": (Status.REJECTED, {}, TOOL_CALL_REJECTED_RESULT),
    "rejected with words": (Status.REJECTED, {"rejection_message": "Not today"}, "Not today"),
    "steered": (Status.REJECTED, {"cancellation_reason": "steered"}, TOOL_CALL_CANCELLED_BY_STEERING_RESULT),
    "cancelled": (
        Status.REJECTED,
        {"cancellation_reason": "turn_cancelled"},
        TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
    ),
    "lost": (Status.OUTCOME_UNKNOWN, {"error": "lost"}, OUTCOME_UNKNOWN_TOOL_RESULT),
    "abandoned task": (
        Status.OUTCOME_UNKNOWN,
        {"task_id": "job-1", "cancellation_reason": "turn_cancelled"},
        OUTCOME_UNKNOWN_TOOL_RESULT,
    ),
}


def end(tool_call: AgentToolCall, ending: str) -> AgentToolCall:
    status, fields, _ = ENDINGS[ending]
    return final(tool_call, status, **fields)


def end_turn_early(agent: Agent, endings: Sequence[str], *, has_failed: bool = False) -> list[str | None]:
    """Make the open calls final from the last to the first, store what the session would, return the results' IDs."""
    first = len(agent.session.tool_calls) - len(endings)
    for position in reversed(range(len(endings))):
        agent.session.tool_calls[first + position] = end(agent.session.tool_calls[first + position], endings[position])
    messages = agent.runner.build_unfinished_turn_messages(agent.session.turn_context())
    agent.session.store(*messages)
    if has_failed:
        agent.session.store(agent.runner.build_user_message(f"{TURN_FAILURE_NOTE_HEADER}\n- note {{}}: succeeded"))
    return [message.tool_call_id for message in messages]


def test_the_runner_completes_unfinished_turns() -> None:
    assert isinstance(Agent().runner, UnfinishedTurnMessageBuilder)


@pytest.mark.parametrize("has_failed", [False, True])
@pytest.mark.parametrize("has_odd_ids", [False, True])
def test_every_call_of_the_last_step_gets_its_result_in_call_order(has_failed: bool, has_odd_ids: bool) -> None:
    call_id = "same" if has_odd_ids else None
    steps = [ask(call("note", {"text": "first"}, call_id)), ask(*(call("note", "{}", call_id) for _ in ENDINGS))]
    agent = Agent(*steps, say("hello"), has_odd_ids=has_odd_ids)

    async def turn() -> None:
        agent.session.begin_turn("go")
        await agent.session.model_step()
        await agent.session.run_tools()
        await agent.session.model_step()

    asyncio.run(turn())
    ids = end_turn_early(agent, list(ENDINGS), has_failed=has_failed)
    assert ids == [record.tool_call_id for record in agent.session.tool_calls[1:]]
    assert len(set(ids)) == len(ENDINGS)
    assert asyncio.run(agent.session.run_turn("next")) == "hello"
    assert agent.results_seen() == ["noted first", *(text for _, _, text in ENDINGS.values())]
    users = [item.text for item in agent.model.requests[-1].input_items if isinstance(item, ModelUserText)]
    assert len(users) == 2 + has_failed


def test_a_turn_that_ends_before_any_model_step_adds_nothing() -> None:
    agent = Agent(say("hello"))
    agent.session.begin_turn("go")
    assert end_turn_early(agent, []) == []
    asyncio.run(agent.session.run_turn("use staging instead"))
    assert agent.model.requests[0].input_items == (ModelUserText(text="go"), ModelUserText(text="use staging instead"))


def test_a_turn_that_ends_while_the_model_answers_the_results_keeps_them_once() -> None:
    hold = ScriptedReplyHold(after_deltas=1)
    agent = Agent(ask(call("note", {"text": "x"})), ScriptedModelReply(text="never said", hold=hold), say("hello"))

    async def scenario() -> None:
        agent.session.begin_turn("go")
        await agent.session.model_step()
        await agent.session.run_tools()
        model_step = asyncio.create_task(agent.session.model_step())
        await hold.wait_until_reached()
        model_step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await model_step

    asyncio.run(scenario())
    assert len(agent.model.cancelled_requests) == 1
    assert end_turn_early(agent, []) == [agent.session.tool_calls[0].tool_call_id]
    asyncio.run(agent.session.run_turn("next"))
    assert [type(item) for item in agent.model.requests[-1].input_items] == [
        ModelUserText,
        ModelOutput,
        ModelToolResult,
        ModelUserText,
    ]
    assert agent.results_seen() == ["noted x"]


def test_a_step_that_continued_stored_its_own_messages() -> None:
    """No step of this loop continues; one of another release may have."""
    agent = Agent(ask(call("note", {"text": "x"})))

    async def turn() -> None:
        agent.session.begin_turn("go")
        await agent.session.model_step()
        await agent.session.run_tools()

    asyncio.run(turn())
    context = agent.session.turn_context(model_step_count=2)
    assert agent.runner.build_unfinished_turn_messages(context) == ()


def test_building_the_messages_again_gives_the_same() -> None:
    agent = Agent(ask(call("note"), call("refund_order")))
    agent.session.begin_turn("go")
    asyncio.run(agent.session.model_step())
    agent.session.tool_calls = [end(tool_call, "steered") for tool_call in agent.session.tool_calls]
    context = agent.session.turn_context()
    assert agent.runner.build_unfinished_turn_messages(context) == agent.runner.build_unfinished_turn_messages(context)


def test_a_call_that_is_not_final_is_an_error() -> None:
    agent = Agent(ask(call("note")))
    agent.session.begin_turn("go")
    asyncio.run(agent.session.model_step())
    with pytest.raises(ValueError, match="has no result yet"):
        agent.runner.build_unfinished_turn_messages(agent.session.turn_context())


calls = st.tuples(st.sampled_from([None, "", "same", "call_1", "x~2"]), st.sampled_from(list(ENDINGS)))
turns = st.tuples(
    st.lists(st.lists(calls, min_size=1, max_size=4), max_size=3),
    st.sampled_from(["answered", "steered or cancelled", "failed"]),
)


@given(st.lists(turns, max_size=4))
@patient
def test_any_turns_in_a_row_leave_a_transcript_that_providers_accept(
    plan: list[tuple[list[list[tuple[str | None, str]]], str]],
) -> None:
    replies: list[ScriptedModelReply] = []
    expected: list[str] = []
    for steps, ending in plan:
        for step in steps:
            replies.append(ask(*(ScriptedToolCall(tool_name="note", tool_call_id=call_id) for call_id, _ in step)))
            expected += [ENDINGS[call_ending][2] for _, call_ending in step]
        if ending == "answered":
            replies.append(say("answer"))
    agent = Agent(*replies, say("hello"), has_odd_ids=True)

    async def scenario() -> None:
        for number, (steps, ending) in enumerate(plan):
            agent.session.begin_turn(f"turn {number}")
            for position, step in enumerate(steps):
                assert isinstance(await agent.session.model_step(), ToolCallsRequested)
                endings = [call_ending for _, call_ending in step]
                if position + 1 < len(steps) or ending == "answered":
                    first = len(agent.session.tool_calls) - len(step)
                    for offset, call_ending in enumerate(endings):
                        agent.session.tool_calls[first + offset] = end(
                            agent.session.tool_calls[first + offset], call_ending
                        )
                else:
                    end_turn_early(agent, endings, has_failed=ending == "failed")
            if ending == "answered":
                await agent.session.model_step()
        await agent.session.run_turn("next")

    asyncio.run(scenario())
    assert agent.results_seen() == expected
