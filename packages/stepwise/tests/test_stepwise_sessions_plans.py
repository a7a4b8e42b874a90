"""Plans from end to end: written, reviewed, approved and carried out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dex_agents import InteractionMode, build_plan_note
from dex_agents.session.plans import plan_execution_message
from dex_agents.session.texts import TOOL_CALL_NOT_RUN_IN_PLANNING_TURN
from dex_agents_stepwise import RequiredTool, ScriptedModelReply

from .stepwise_agent import TOOLS, ask, call, say, script
from .stepwise_sessions import live_session


def todos(*tasks: str) -> ScriptedModelReply:
    """A call of write_todos; a task is its status and its content."""
    words = [task.split(" ", 1) for task in tasks]
    return ask(call("write_todos", {"todos": [{"content": content, "status": status} for status, content in words]}))


PLANNING: dict[str, Any] = {"tools": TOOLS, "built_in_tools": ["write_todos"], "plan_mode_enabled": True}


@pytest.mark.parametrize("tool_choice", ["auto", "required"])
def test_a_plan_is_drafted_revised_approved_and_carried_out(tmp_path: Path, tool_choice: str) -> None:
    async def scenario() -> None:
        replies = script(
            todos("pending look up", "pending refund"),
            say("Shall I?"),
            todos("pending look up"),
            say("Better?"),
            todos("in_progress look up"),
            ask(call("lookup_order", {"order_id": 7})),
            todos("completed look up"),
            say("It is paid."),
        )
        async with live_session(tmp_path, replies, planning_tool_choice=tool_choice, **PLANNING) as session:
            await session.plan("Plan the refund")
            assert await session.idle() == "Shall I?"
            draft = (await session.snapshot()).plan
            assert draft is not None
            assert (draft.status, draft.revision, len(draft.tasks)) == ("draft", 1, 2)

            await session.say("Do not refund")  # a draft waits, so this plans too
            assert await session.idle() == "Better?"
            draft = (await session.snapshot()).plan
            assert draft is not None
            assert (draft.status, draft.revision, len(draft.tasks)) == ("draft", 2, 1)

            assert not await session.execute_plan(1)
            assert await session.execute_plan(2)
            assert await session.idle() == "It is paid."
            plan = (await session.snapshot()).plan
            assert plan is not None
            assert (plan.status, plan.revision) == ("completed", 4)

            note = build_plan_note(plan, InteractionMode.EXECUTING)
            assert session.users_seen() == ["Plan the refund", "Do not refund", note, plan_execution_message(2)]
            requests = session.model.requests
            planning = [[tool.name for tool in request.tools] for request in requests]
            assert planning[:4] == [["write_todos"]] * 4
            assert all(len(offered) == 4 for offered in planning[4:])
            forced = [isinstance(request.tool_choice, RequiredTool) for request in requests]
            assert forced == [tool_choice == "required", *[False] * 7]

    asyncio.run(scenario())


def test_any_other_tool_of_a_planning_turn_is_not_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        eager = ask(call("refund_order", {"order_id": 7}), call("nope"))
        async with live_session(tmp_path, script(eager, say("Sorry.")), **PLANNING) as session:
            await session.plan("Plan the refund")
            assert await session.idle() == "Sorry."
            assert session.results_seen() == [TOOL_CALL_NOT_RUN_IN_PLANNING_TURN] * 2

    asyncio.run(scenario())


def test_without_plan_mode_no_plan_can_be_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        replies = script(todos("pending look up"), say("Noted."))
        async with live_session(tmp_path, replies, built_in_tools=["write_todos"]) as session:
            await session.say("Remember to look it up")
            assert await session.idle() == "Noted."
            plan = (await session.snapshot()).plan
            assert plan is not None
            assert plan.status == "active"
            assert session.results_seen() == ['{"status": "updated", "revision": 1, "task_count": 1}']
            assert not await session.client.send_user_message("s", "Plan it", plan_mode=True)

    asyncio.run(scenario())
