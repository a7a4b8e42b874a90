"""Plans and plan mode: what a planning turn offers and refuses, what the model is shown, and what a person approves."""

from __future__ import annotations

import json

from dex_agents import ExecutePlanResult, InteractionMode, ToolEffect
from dex_agents.session.plans import build_plan_note
from dex_agents.session.texts import TODOS_WRITTEN_TWICE, TOOL_CALL_NOT_RUN_IN_PLANNING_TURN
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply, ToolCallPart, calls, say

__all__ = ["PlanCases"]

_TODOS = "write_todos"
_DRAFT = (("migrate orders", "pending"), ("check totals", "pending"))


def _write(tool_call_id: str, *tasks: tuple[str, str]) -> ToolCallPart:
    todos = [{"content": content, "status": status} for content, status in tasks]
    return ToolCallPart(tool_call_id=tool_call_id, tool_name=_TODOS, arguments=json.dumps({"todos": todos}))


def _script(setup: CaseSetup, **replies: list[ScriptedReply]) -> ConversationScript:
    """Replies by user text; an execution's replies follow those to the text before it."""
    return ConversationScript(
        directory=setup.directory,
        replies={text.replace("_", " "): said for text, said in replies.items()},
        tools=[setup.tool("work", effect=ToolEffect.IDEMPOTENT_WRITE, returns="worked")],
        built_in_tools=(_TODOS,),
        plan_mode_enabled=True,
    )


def _drafted(setup: CaseSetup) -> ConversationScript:
    return _script(
        setup,
        plan_it=[
            calls(_write("c1", *_DRAFT)),
            say("This is the plan."),
            calls(("c2", "work"), _write("c3", ("migrate orders", "completed"), ("check totals", "in_progress"))),
            calls(_write("c4", ("migrate orders", "completed"), ("check totals", "completed"))),
            say("All done."),
        ],
        shorter=[calls(_write("c5", ("migrate orders", "pending"))), say("Shorter.")],
        hello=[say("hi")],
    )


def _works_while_planning(setup: CaseSetup) -> ConversationScript:
    return _script(setup, plan_it=[calls(("c1", "work"), _write("c2", *_DRAFT)), say("This is the plan.")])


def _only_answers(setup: CaseSetup) -> ConversationScript:
    return _script(setup, plan_it=[say("Which tables?")], hello=[say("hi")])


def _clears(setup: CaseSetup) -> ConversationScript:
    return _script(
        setup,
        plan_it=[calls(_write("c1", *_DRAFT)), say("This is the plan.")],
        forget_it=[calls(_write("c2")), say("Forgotten.")],
        hello=[say("hi")],
    )


def _without_plan_mode(setup: CaseSetup) -> ConversationScript:
    return _script(
        setup,
        go=[
            calls(_write("c1", ("a", "in_progress")), ("c2", "work")),
            calls(_write("c3", ("b", "pending")), _write("c4", ("c", "pending"))),
            calls(("c5", _TODOS, '{"todos": [{"content": " ", "status": "pending"}]}')),
            say("done"),
        ],
    )


class PlanCases(AdapterDescription):
    """The model plans with `write_todos` alone, sees its plan in every call, and works only once a person approved."""

    @case(_drafted, capability=Capability.PLAN_MODE)
    async def test_a_planning_turn_offers_write_todos_alone(self, run: CaseRun) -> None:
        """In each of its model calls; a chat turn offers every tool."""
        await run.answer_of("hello")
        assert sorted(run.last_request.tool_names) == ["work", _TODOS], "[enabled-built-in-tools-are-offered]"
        await run.run_turn("plan it", plan_mode=True)
        for request in run.requests[1:]:
            assert request.tool_names == (_TODOS,), "[planning-turns-offer-write_todos-alone]"
        assert len(run.requests) == 3

    @case(_drafted, capability=Capability.PLAN_MODE)
    async def test_a_planning_turn_writes_a_draft(self, run: CaseRun) -> None:
        """It waits for a person; the model reads that the list was taken, and nothing runs."""
        result = await run.run_turn("plan it", plan_mode=True)
        assert (result.status, result.text) == ("completed", "This is the plan.")
        plan = (await run.client.get_agent_snapshot(SESSION)).plan
        assert plan is not None
        assert (plan.revision, plan.status) == (1, "draft"), "[a-planning-turn-writes-a-draft]"
        assert [(task.content, task.status) for task in plan.tasks] == list(_DRAFT)
        (seen,) = run.results_seen
        assert json.loads(seen) == {"status": "updated", "revision": 1, "task_count": 2}
        assert run.effects == {}
        assert run.model_calls == {"plan it#0": 1, "plan it#1": 1}, "[one-model-call-per-model-step]"

    @case(_drafted, capability=Capability.PLAN_MODE)
    async def test_an_approved_plan_is_carried_out(self, run: CaseRun) -> None:
        """In a turn with every tool; the tasks' statuses end the plan."""
        await run.run_turn("plan it", plan_mode=True)
        assert await run.client.execute_plan(SESSION, 1)
        snapshot = await run.finish()
        assert snapshot.messages[-1].text == "All done."
        executing = run.requests[2:]
        assert len(executing) == 3
        for request in executing:
            assert sorted(request.tool_names) == ["work", _TODOS], "[executing-turns-offer-every-tool]"
        assert run.effects == {"work": 1}
        plan = snapshot.plan
        assert plan is not None
        assert (plan.revision, plan.status) == (3, "completed")

    @case(_drafted, capability=Capability.PLAN_MODE)
    async def test_the_plan_reaches_the_model_in_every_call(self, run: CaseRun) -> None:
        """The newest one, with how far each task is; a planning turn is told to plan."""
        await run.run_turn("plan it", plan_mode=True)
        draft = (await run.client.get_agent_snapshot(SESSION)).plan
        assert await run.client.execute_plan(SESSION, 1)
        await run.finish()
        planning = build_plan_note(None, InteractionMode.PLANNING)
        shown = build_plan_note(draft, InteractionMode.PLANNING)
        assert planning is not None
        assert shown is not None
        assert planning in run.requests[0].told, "[the-plan-note-reaches-the-model]"
        assert shown in run.requests[1].told, "[the-plan-note-reaches-the-model]"
        for number, first_lines in enumerate(
            (
                "revision 1, active:\n[ ] migrate orders\n[ ] check totals",
                "revision 2, active:\n[x] migrate orders\n[>] check totals",
                "revision 3, completed:\n[x] migrate orders\n[x] check totals",
            ),
            2,
        ):
            assert first_lines in run.requests[number].told, "[the-plan-note-reaches-the-model]"
            assert run.requests[number].told.count("The plan, revision") == 1, "[only-the-newest-plan-is-shown]"

    @case(_drafted, capability=Capability.PLAN_MODE)
    async def test_a_plan_note_is_not_stored(self, run: CaseRun) -> None:
        """People read what the user and the model said; the note is made anew for every call."""
        await run.run_turn("plan it", plan_mode=True)
        texts = [message.text for message in await run.messages() if message.role != "tool"]
        assert texts == ["plan it", "", "This is the plan."], "[notes-are-not-stored]"

    @case(_drafted, capability=Capability.PLAN_MODE)
    async def test_only_the_revision_that_was_seen_is_executed(self, run: CaseRun) -> None:
        """A message while a draft waits revises it, and approving the old one does nothing."""
        await run.run_turn("plan it", plan_mode=True)
        await run.answer_of("shorter")
        assert run.last_request.tool_names == (_TODOS,), "[planning-turns-offer-write_todos-alone]"
        stale = await run.client.execute_plan_with_reason(SESSION, 1)
        assert stale is ExecutePlanResult.ANOTHER_REVISION
        assert run.effects == {}
        plan = (await run.client.get_agent_snapshot(SESSION)).plan
        assert plan is not None
        assert (plan.revision, plan.status, len(plan.tasks)) == (2, "draft", 1)

    @case(_works_while_planning, capability=Capability.PLAN_MODE)
    async def test_a_planning_turn_runs_no_tool(self, run: CaseRun) -> None:
        """The model called one all the same: it reads that it cannot, nobody is asked, and its plan counts."""
        result = await run.run_turn("plan it", plan_mode=True)
        assert result.status == "completed"
        assert run.effects == {}, "[planning-turns-run-nothing]"
        refused, written = run.results_seen
        assert refused == TOOL_CALL_NOT_RUN_IN_PLANNING_TURN, "[planning-turns-run-nothing]"
        assert json.loads(written)["status"] == "updated"
        assert not await run.event_payloads("interrupt_raised")

    @case(_only_answers, capability=Capability.PLAN_MODE)
    async def test_a_planning_turn_may_ask_instead(self, run: CaseRun) -> None:
        """Without a draft, the next message is chat again."""
        result = await run.run_turn("plan it", plan_mode=True)
        assert result.text == "Which tables?"
        assert (await run.client.get_agent_snapshot(SESSION)).plan is None
        assert run.last_request.tool_names == (_TODOS,), "[planning-turns-offer-write_todos-alone]"
        await run.answer_of("hello")
        assert sorted(run.last_request.tool_names) == ["work", _TODOS]
        assert "[Dex]" not in run.last_request.told, "[a-chat-turn-without-a-plan-has-no-note]"

    @case(_clears, capability=Capability.PLAN_MODE)
    async def test_an_empty_list_clears_the_plan(self, run: CaseRun) -> None:
        """Nothing is shown any more, and nothing can be executed."""
        await run.run_turn("plan it", plan_mode=True)
        await run.answer_of("forget it")
        assert json.loads(run.results_seen[0]) == {"status": "cleared", "revision": 2}
        await run.answer_of("hello")
        assert "migrate orders" not in run.last_request.told, "[a-cleared-plan-is-not-shown]"
        assert sorted(run.last_request.tool_names) == ["work", _TODOS]
        assert await run.client.execute_plan_with_reason(SESSION, 2) is ExecutePlanResult.NOTHING_TO_EXECUTE

    @case(_without_plan_mode, capability=Capability.PLAN_MODE)
    async def test_todos_of_a_chat_turn(self, run: CaseRun) -> None:
        """They count at once, beside other calls; two lists at once fail each other, and so does a broken one."""
        assert await run.answer_of("go") == "done"
        first, worked, second, third, invalid = run.results_seen
        assert json.loads(first) == {"status": "updated", "revision": 1, "task_count": 1}
        assert worked == "worked"
        assert second == third == TODOS_WRITTEN_TWICE, "[built-in-calls-are-the-sessions]"
        assert invalid.startswith("invalid todos: the content of task 1"), "[built-in-calls-are-the-sessions]"
        plan = (await run.client.get_agent_snapshot(SESSION)).plan
        assert plan is not None
        assert (plan.revision, plan.status) == (1, "active")
