"""Planning turns under the loop: what they offer, what they force, and where the model reads the plan."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dex_agents import (
    AgentPlan,
    AgentPlanTask,
    InteractionMode,
    PlanModeSupport,
    ToolCallsRequested,
    TurnCompleted,
    build_plan_note,
)
from dex_agents.session.texts import CONTEXT_SUMMARY_NOTE_HEADER
from dex_agents_stepwise import ModelToolResult, ModelUserText, RequiredTool

from .stepwise_agent import Agent, ask, call, say
from .stepwise_session_driver import NOW

TODOS = {"todos": [{"content": "migrate", "status": "pending"}]}
DRAFT = AgentPlan(revision=2, status="draft", updated_at=NOW, tasks=(AgentPlanTask(content="migrate"),))


def planning_agent(*replies: Any, plan: AgentPlan | None = None, **fields: Any) -> Agent:
    agent = Agent(*replies, built_in_tools=("ask_user", "write_todos"), plan_mode_enabled=True, **fields)
    agent.session.interaction_mode = InteractionMode.PLANNING
    agent.session.plan = plan
    return agent


def test_a_planning_turn_offers_the_plan_alone() -> None:
    agent = planning_agent(say("What for?"))
    assert asyncio.run(agent.session.run_turn("Plan it")) == "What for?"
    (request,) = agent.model.requests
    assert [tool.name for tool in request.tools] == ["write_todos"]
    assert request.tool_choice == "auto"
    assert isinstance(agent.runner, PlanModeSupport)
    assert agent.runner.supports_plan_mode is True


@pytest.mark.parametrize("mode", [InteractionMode.CHAT, InteractionMode.EXECUTING])
def test_other_turns_offer_every_tool(mode: InteractionMode) -> None:
    agent = planning_agent(say("done"), plan=DRAFT, planning_tool_choice="required")
    agent.session.interaction_mode = mode
    asyncio.run(agent.session.run_turn("Go"))
    (request,) = agent.model.requests
    assert [tool.name for tool in request.tools] == ["lookup_order", "refund_order", "note", "ask_user", "write_todos"]
    assert request.tool_choice == "auto"


def test_the_plan_is_forced_once_while_there_is_no_draft() -> None:
    agent = planning_agent(ask(call("write_todos", TODOS)), say("Shall I?"), planning_tool_choice="required")
    agent.session.begin_turn("Plan it")

    async def turn() -> None:
        requested = await agent.session.model_step()
        assert isinstance(requested, ToolCallsRequested)
        await agent.session.run_tools()
        assert isinstance(await agent.session.model_step(), TurnCompleted)

    asyncio.run(turn())
    first, second = agent.model.requests
    assert first.tool_choice == RequiredTool(tool_name="write_todos")
    assert second.tool_choice == "auto"


@pytest.mark.parametrize(("status", "is_forced"), [("draft", False), ("active", True), ("completed", True)])
def test_a_draft_is_revised_without_force(status: Any, is_forced: bool) -> None:
    plan = AgentPlan(revision=1, status=status, updated_at=NOW, tasks=DRAFT.tasks)
    agent = planning_agent(say("What?"), plan=plan, planning_tool_choice="required")
    asyncio.run(agent.session.run_turn("Not so"))
    assert isinstance(agent.model.requests[0].tool_choice, RequiredTool) is is_forced


def test_a_planning_turn_of_a_session_without_the_tool_offers_and_forces_nothing() -> None:
    """A deploy may turn plan mode off while a planning turn runs."""
    agent = planning_agent(say("hm"), planning_tool_choice="required")
    agent.session.begin_turn("Plan it")
    asyncio.run(agent.runner.run_model_step(agent.session.turn_context(enabled_built_in_tools=("ask_user",))))
    assert agent.model.requests[0].tools == ()
    assert agent.model.requests[0].tool_choice == "none"


def test_the_plan_stands_before_the_turns_messages_in_every_model_call() -> None:
    agent = Agent(say("one"), ask(call("note"), call("note")), say("two"), built_in_tools=("write_todos",))
    asyncio.run(agent.session.run_turn("first"))
    agent.session.plan = DRAFT
    asyncio.run(agent.session.run_turn("second"))
    note = build_plan_note(DRAFT, InteractionMode.CHAT)
    assert note is not None
    for request in agent.model.requests[1:]:
        texts = [item.text for item in request.input_items if isinstance(item, ModelUserText)]
        assert texts == ["first", note, "second"]
    assert len(agent.session.messages) == 7  # the note is not stored


def test_the_plan_of_a_turn_that_was_cut_stands_behind_the_summary() -> None:
    agent = Agent(ask(call("note")), ask(call("note")), say("done"), built_in_tools=("write_todos",))
    agent.session.plan = DRAFT

    async def turn() -> None:
        agent.session.begin_turn("go")
        for _ in range(2):
            await agent.session.model_step()
            await agent.session.run_tools()
        agent.session.store_summary("so far", 3)
        await agent.session.model_step()

    asyncio.run(turn())
    items = agent.model.requests[-1].input_items
    note = build_plan_note(DRAFT, InteractionMode.CHAT)
    assert [item.text for item in items[:2] if isinstance(item, ModelUserText)] == [
        f"{CONTEXT_SUMMARY_NOTE_HEADER}\nso far",
        note,
    ]
    assert isinstance(items[-1], ModelToolResult)
    assert len(items) == 4


def test_without_a_plan_there_is_no_note() -> None:
    agent = Agent(say("one"), built_in_tools=("write_todos",))
    agent.session.plan = AgentPlan(revision=3, status="cleared", updated_at=NOW)
    asyncio.run(agent.session.run_turn("first"))
    assert agent.model.requests[0].input_items == (ModelUserText(text="first"),)
