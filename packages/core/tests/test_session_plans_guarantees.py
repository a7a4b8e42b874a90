"""Rules of plans and plan mode that one sentence of the contract states each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dex_agents import AgentPlan, build_plan_note, create_agent_session_flow
from dex_agents.session.outcomes import ToolCallSucceeded
from dex_agents.session.persistence import PENDING_PLAN_EXECUTION, PLAN_EXECUTIONS
from dex_agents.session.plan_values import AgentPlanTask
from dex_agents.session.texts import TODOS_WRITTEN_TWICE, TOOL_CALL_NOT_RUN_IN_PLANNING_TURN
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.values import AgentState, AgentStatus, InteractionMode
from dex_agents.testing import SessionDriver

from .session_scripts import answer, asks, finish_model, payloads, started, wanted


def todos(*tasks: tuple[str, str], tool_call_id: str = "t") -> Any:
    arguments = json.dumps({"todos": [{"content": content, "status": status} for content, status in tasks]})
    return wanted(tool_call_id, "write_todos", arguments=arguments)


PENDING = todos(("one", "pending"))


def planner(message: str | None = None) -> SessionDriver:
    return started(message, built_in_tools=("write_todos",), plan_mode_enabled=True)


def drafted() -> SessionDriver:
    driver = planner()
    assert driver.send("Plan it", plan_mode=True)
    finish_model(driver, asks(PENDING))
    finish_model(driver, answer("That is the plan."))
    return driver


def started_elsewhere(driver: SessionDriver) -> SessionDriver:
    """The session after a deploy whose options have no plans."""
    other = SessionDriver()
    other.store, other.now, other.running = driver.store, driver.now, driver.running
    return other


def plan_of(driver: SessionDriver) -> AgentPlan:
    plan = driver.snapshot().plan
    assert plan is not None
    return plan


def state_of(driver: SessionDriver) -> AgentState:
    state = driver.snapshot().state
    assert state is not None
    return state


class PlanningRunner:
    """A runner that is never called; its class says what it can do."""

    supports_plan_mode: Any = True

    def build_user_message(self, text: str) -> Any:
        raise AssertionError

    async def run_model_step(self, turn: Any) -> Any:
        raise AssertionError

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize("supports", [None, False, "yes", 1])
def test_plan_mode_needs_a_runner_that_supports_it(supports: Any) -> None:
    options = {"built_in_tools": ("write_todos",), "plan_mode_enabled": True}
    create_agent_session_flow(PlanningRunner(), "Planner", **options)
    runner = type("OtherRunner", (PlanningRunner,), {"supports_plan_mode": supports})()
    with pytest.raises(TypeError, match="plan_mode_enabled needs a runner whose supports_plan_mode is True"):
        create_agent_session_flow(runner, "Planner", **options)


def test_write_todos_needs_no_plan_mode() -> None:
    runner = type("OtherRunner", (PlanningRunner,), {"supports_plan_mode": None})()
    create_agent_session_flow(runner, "Planner", built_in_tools=("write_todos",))
    driver = started("Do it", built_in_tools=("write_todos",))
    finish_model(driver, asks(PENDING))
    assert plan_of(driver).status == "active"


def test_write_todos_runs_no_tool_step_and_the_turn_goes_on_through_the_same_boundary() -> None:
    driver = planner("Do it")
    finish_model(driver, asks(PENDING))
    assert driver.open_step_types == ["RunModel"]
    assert [event.type for event in driver.events() if event.type.startswith("tool_call")] == [
        "tool_call_deferred",
        "tool_call_finished",
    ]
    other = planner("Do it")
    finish_model(other, asks(PENDING, wanted("c")))
    assert sorted(other.open_step_types) == ["CallTool", "ResumeTurn"]


def test_only_a_call_that_succeeds_writes_a_revision() -> None:
    driver = planner("Do it")
    finish_model(driver, asks(PENDING))
    finish_model(driver, asks(wanted("u", "write_todos", arguments='{"todos":3}')))
    finish_model(driver, asks(todos(tool_call_id="v"), todos(("x", "pending"), tool_call_id="w")))
    assert (plan_of(driver).revision, plan_of(driver).tasks) == (1, (AgentPlanTask(content="one"),))
    assert len(payloads(driver, "plan_updated")) == 1
    finish_model(driver, asks(todos(("two", "pending"), tool_call_id="x")))
    assert plan_of(driver).revision == 2


def test_the_model_reads_why_a_todo_list_failed() -> None:
    driver = planner("Do it")
    finish_model(driver, asks(wanted("t", "write_todos", arguments='{"todos":3}')))
    finish_model(driver, asks(todos(tool_call_id="u"), todos(tool_call_id="v")))
    calls = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert [tool_result_text(call) for call in calls] == [
        "invalid todos: todos must be a list",
        TODOS_WRITTEN_TWICE,
        TODOS_WRITTEN_TWICE,
    ]


def test_a_draft_is_written_by_planning_turns_alone() -> None:
    driver = planner("Do it")
    finish_model(driver, asks(PENDING))
    assert plan_of(driver).status == "active"
    finish_model(driver, answer())
    assert driver.send("Plan again", plan_mode=True)
    finish_model(driver, asks(todos(("one", "completed"))))
    assert (plan_of(driver).revision, plan_of(driver).status) == (2, "draft")
    finish_model(driver, asks(todos(tool_call_id="u")))
    assert (plan_of(driver).revision, plan_of(driver).status) == (3, "cleared")


@pytest.mark.parametrize("call", [{"tool_name": "ask_user"}, {"requires_approval": True}, {}])
def test_a_planning_turn_runs_no_other_call_whatever_it_is(call: dict[str, Any]) -> None:
    driver = started(None, built_in_tools=("write_todos", "ask_user"), plan_mode_enabled=True)
    assert driver.send("Plan it", plan_mode=True)
    finish_model(driver, asks(wanted("c", **call)))
    (seen,) = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert (seen.status, tool_result_text(seen)) == ("rejected", TOOL_CALL_NOT_RUN_IN_PLANNING_TURN)
    assert payloads(driver, "interrupt_raised") == []


def test_a_planning_turn_runs_no_tool_of_the_agent_that_is_named_like_the_built_in() -> None:
    driver = planner()
    assert driver.send("Plan it", plan_mode=True)
    other = started_elsewhere(driver)
    finish_model(other, asks(PENDING))
    (seen,) = other.snapshot_of(other.attempt_of("RunModel")).tool_calls
    assert (seen.status, tool_result_text(seen)) == ("rejected", TOOL_CALL_NOT_RUN_IN_PLANNING_TURN)
    assert payloads(other, "tool_call_started") == []


def test_a_planning_turn_that_answers_in_text_leaves_no_draft() -> None:
    driver = planner()
    assert driver.send("Plan it", plan_mode=True)
    finish_model(driver, answer("For when?"))
    assert driver.snapshot().plan is None
    assert driver.send("For Monday")
    assert state_of(driver).interaction_mode is InteractionMode.CHAT


def test_a_steered_message_plans_while_a_draft_waits() -> None:
    driver = drafted()
    assert driver.send("Not so")
    assert driver.steer("Like this")
    finish_model(driver, answer())
    assert state_of(driver).turn_count == 3
    assert state_of(driver).interaction_mode is InteractionMode.PLANNING


def test_a_turn_keeps_its_mode_when_its_own_call_changes_the_plan() -> None:
    driver = drafted()
    assert driver.execute_plan(1)
    finish_model(driver, asks(todos(("one", "completed"))))
    assert (plan_of(driver).status, state_of(driver).interaction_mode) == ("completed", InteractionMode.EXECUTING)
    assert driver.attempt_of("RunModel")


@pytest.mark.parametrize("waiting", ["queued", "steered"])
def test_a_plan_is_not_executed_while_a_message_waits(waiting: str) -> None:
    driver = drafted()
    assert driver.send("Feedback")
    assert driver.send("Later") if waiting == "queued" else driver.steer("Now")
    assert not driver.execute_plan(1)
    finish_model(driver, answer())
    assert not driver.execute_plan(1)
    assert payloads(driver, "plan_execution_started") == []


def test_a_plan_that_does_not_exist_cannot_be_executed() -> None:
    driver = planner()
    assert not driver.execute_plan(0)
    assert not driver.execute_plan(1)


def test_of_an_approval_and_a_message_the_first_commit_wins() -> None:
    approved_first, sent_first = drafted(), drafted()
    assert approved_first.execute_plan(1)
    assert approved_first.send("Wait")
    assert state_of(approved_first).interaction_mode is InteractionMode.EXECUTING
    assert len(approved_first.snapshot().queued_messages) == 1
    assert sent_first.send("Wait")
    assert not sent_first.execute_plan(1)
    assert state_of(sent_first).interaction_mode is InteractionMode.PLANNING


def test_the_second_of_two_approvals_is_false_and_one_turn_runs() -> None:
    driver = drafted()
    assert [driver.execute_plan(1) for _ in range(3)] == [True, False, False]
    assert state_of(driver).turn_count == 2
    finish_model(driver, answer())
    assert driver.open_step_types == ["AwaitUserMessage"]
    assert payloads(driver, "plan_execution_started") == [{"revision": 1}]


def test_an_approval_needs_no_worker_and_survives_one_that_dies() -> None:
    driver = drafted()
    driver.stop_worker()
    assert driver.execute_plan(1)
    assert state_of(driver).status is AgentStatus.RUNNING_MODEL
    driver.take_work()
    driver.lose_worker()
    finish_model(driver, answer())
    assert payloads(driver, "plan_execution_started") == [{"revision": 1}]


def test_a_stale_approval_runs_nothing_and_does_not_keep_the_next_revision_from_running() -> None:
    driver = drafted()
    assert driver.send("Revise it")
    finish_model(driver, asks(todos(("new", "pending"))))
    # Cannot arise through execute_plan: what is left of an approval of the revision that was replaced.
    driver.store.attributes[(PENDING_PLAN_EXECUTION.name, "")] = b'{"revision":1}'
    driver.store.channels[(PLAN_EXECUTIONS.name, "1")] = {900: b'{"revision":1}'}
    finish_model(driver, answer())
    assert driver.open_step_types == ["AwaitUserMessage"]
    assert not driver.execute_plan(1)
    assert driver.execute_plan(2)
    assert state_of(driver).interaction_mode is InteractionMode.EXECUTING
    assert payloads(driver, "plan_execution_started") == [{"revision": 2}]
    assert (PENDING_PLAN_EXECUTION.name, "") not in driver.store.attributes


def test_the_next_revision_deletes_an_approval_of_the_one_before() -> None:
    driver = drafted()
    assert driver.send("Revise it")
    driver.store.attributes[(PENDING_PLAN_EXECUTION.name, "")] = b'{"revision":1}'
    driver.store.channels[(PLAN_EXECUTIONS.name, "1")] = {900: b'{"revision":1}'}
    finish_model(driver, asks(todos(("new", "pending"))))
    assert (PENDING_PLAN_EXECUTION.name, "") not in driver.store.attributes
    assert not driver.store.channels.get((PLAN_EXECUTIONS.name, "1"))
    finish_model(driver, answer())
    assert driver.execute_plan(2)


def test_an_executing_turn_runs_every_tool_and_ends_as_chat() -> None:
    driver = drafted()
    assert driver.execute_plan(1)
    finish_model(driver, asks(wanted("c"), wanted("d", requires_approval=True)))
    driver.succeed(driver.attempt_of("CallTool", "c"), ToolCallSucceeded(output="ok"))
    assert driver.resolve("turn-2.d", True)
    driver.succeed(driver.attempt_of("CallTool", "d"), ToolCallSucceeded(output="ok"))
    finish_model(driver, answer())
    assert (state_of(driver).turn_count, state_of(driver).interaction_mode) == (2, InteractionMode.CHAT)


def test_a_cancelled_execution_leaves_the_plan_active_and_it_can_be_executed_again() -> None:
    driver = drafted()
    assert driver.execute_plan(1)
    assert driver.cancel_turn()
    assert (plan_of(driver).status, state_of(driver).interaction_mode) == ("active", InteractionMode.CHAT)
    assert driver.execute_plan(1)


def test_the_runner_reads_plan_and_mode_in_every_model_call() -> None:
    driver = drafted()
    assert driver.execute_plan(1)
    first = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert (first.plan.status, first.state.interaction_mode) == ("active", InteractionMode.EXECUTING)
    finish_model(driver, asks(todos(("one", "completed"))))
    second = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert (second.plan.revision, second.plan.status) == (2, "completed")


def test_the_note_marks_what_is_done_and_a_cleared_plan_has_none() -> None:
    now = state_of(drafted()).updated_at
    tasks = tuple(AgentPlanTask(content=status, status=status) for status in ("completed", "in_progress", "pending"))
    plan = AgentPlan(revision=4, status="active", updated_at=now, tasks=tasks)
    assert build_plan_note(plan, InteractionMode.CHAT) == (
        "[Dex] The plan, revision 4, active:\n[x] completed\n[>] in_progress\n[ ] pending"
    )
    assert build_plan_note(AgentPlan(revision=5, status="cleared", updated_at=now), InteractionMode.CHAT) is None


def test_a_session_without_plans_stores_none() -> None:
    driver = started("Hello")
    finish_model(driver, answer())
    names = {name for name, _ in driver.store.attributes}
    assert names.isdisjoint({"AgentPlan", "PendingPlanExecution", "ContextSummary", "SessionSettings"})
    assert driver.snapshot().plan is None
