"""Plans and plan mode, without an engine: drafts, feedback, approvals and their races."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dex_agents import AgentSessionOptions, build_plan_note
from dex_agents.session.persistence import PLAN_EXECUTIONS
from dex_agents.session.plan_values import AgentPlan
from dex_agents.session.texts import TODOS_WRITTEN_TWICE, TOOL_CALL_NOT_RUN_IN_PLANNING_TURN
from dex_agents.session.values import AgentStatus, InteractionMode
from dex_agents.testing import SessionDriver

from .session_scripts import answer, asks, finish_model, payloads, started, wanted


def todos(*tasks: tuple[str, str], tool_call_id: str = "t") -> Any:
    arguments = json.dumps({"todos": [{"content": content, "status": status} for content, status in tasks]})
    return wanted(tool_call_id, "write_todos", arguments=arguments)


def planner(message: str | None = None, **options: Any) -> SessionDriver:
    return started(message, built_in_tools=("write_todos",), plan_mode_enabled=True, **options)


def drafted() -> SessionDriver:
    """A session with a draft of revision 1, idle."""
    driver = planner()
    assert driver.send("Plan it", plan_mode=True)
    finish_model(driver, asks(todos(("one", "pending"), ("two", "pending"))))
    finish_model(driver, answer("That is the plan."))
    return driver


def plan_of(driver: SessionDriver) -> AgentPlan:
    plan = driver.snapshot().plan
    assert plan is not None
    return plan


def mode_of(driver: SessionDriver) -> InteractionMode:
    state = driver.snapshot().state
    assert state is not None
    return state.interaction_mode


def test_write_todos_replaces_the_plan_in_the_commit_of_the_model_step() -> None:
    driver = planner("Do it")
    finish_model(driver, asks(todos(("one", "in_progress"), ("two", "pending"))))
    plan = plan_of(driver)
    assert (plan.revision, plan.status, [task.content for task in plan.tasks]) == (1, "active", ["one", "two"])
    assert payloads(driver, "plan_updated") == [{"revision": 1, "status": "active", "task_count": 2}]
    snapshot = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [(call.status, call.output) for call in snapshot.tool_calls] == [
        ("succeeded", '{"status": "updated", "revision": 1, "task_count": 2}')
    ]
    assert snapshot.plan == plan
    finish_model(driver, asks(todos(("one", "completed"), ("two", "completed"), tool_call_id="u")))
    assert (plan_of(driver).revision, plan_of(driver).status) == (2, "completed")
    finish_model(driver, asks(todos(tool_call_id="v")))
    assert (plan_of(driver).revision, plan_of(driver).status, plan_of(driver).tasks) == (3, "cleared", ())
    cleared = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls[-1]
    assert cleared.output == '{"status": "cleared", "revision": 3}'


def test_two_write_todos_calls_of_one_response_both_fail_and_other_calls_run() -> None:
    driver = planner("Do it")
    finish_model(driver, asks(todos(("a", "pending")), wanted("c"), todos(("b", "pending"), tool_call_id="u")))
    calls = driver.snapshot().tool_calls
    assert [(call.status, call.error) for call in calls if call.tool_name == "write_todos"] == [
        ("failed", TODOS_WRITTEN_TWICE)
    ] * 2
    assert driver.snapshot().plan is None
    assert driver.attempt_of("CallTool", "c")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("{}", "todos must be a list"),
        ('{"todos":null}', "todos must be a list"),
        ('{"todos":[],"more":1}', "there is no argument more"),
        ('{"todos":["x"]}', "task 1 must be an object with content and status"),
        ('{"todos":[{"content":" ","status":"pending"}]}', "the content of task 1 must be text that is not blank"),
        (
            '{"todos":[{"content":"a","status":"pending"},{"content":"b","status":"done"}]}',
            "the status of task 2 must be one of pending, in_progress, completed",
        ),
        ('{"todos":[{"content":"a","status":"pending","id":1}]}', "task 1 has an unknown field id"),
    ],
)
def test_invalid_todos_fail_with_the_reason_and_change_nothing(arguments: str, reason: str) -> None:
    driver = planner("Do it")
    finish_model(driver, asks(wanted("t", "write_todos", arguments=arguments)))
    (call,) = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert (call.status, call.error) == ("failed", f"invalid todos: {reason}")
    assert driver.snapshot().plan is None


def test_a_plan_mode_message_starts_a_planning_turn_that_runs_nothing_but_write_todos() -> None:
    driver = planner()
    assert driver.send("Plan it", plan_mode=True)
    assert mode_of(driver) is InteractionMode.PLANNING
    finish_model(driver, asks(wanted("c", requires_approval=True), todos(("one", "completed"))))
    snapshot = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [(call.tool_name, call.status, call.rejection_message) for call in snapshot.tool_calls] == [
        ("tool", "rejected", TOOL_CALL_NOT_RUN_IN_PLANNING_TURN),
        ("write_todos", "succeeded", None),
    ]
    assert driver.snapshot().pending_interrupts == ()
    # Even a list of finished tasks is a draft: the user has not seen it yet.
    assert plan_of(driver).status == "draft"
    finish_model(driver, answer())
    assert mode_of(driver) is InteractionMode.CHAT


def test_a_message_while_a_draft_waits_is_feedback_that_revises_it() -> None:
    driver = drafted()
    assert driver.send("Add a step")
    assert mode_of(driver) is InteractionMode.PLANNING
    finish_model(driver, asks(todos(("one", "pending"))))
    assert (plan_of(driver).revision, plan_of(driver).status) == (2, "draft")


def test_a_plan_mode_message_is_refused_where_plan_mode_is_off() -> None:
    driver = started(None, built_in_tools=("write_todos",))
    assert not driver.send("Plan it", plan_mode=True)
    assert driver.snapshot().queued_messages == ()


def test_an_approved_draft_becomes_active_and_starts_an_executing_turn() -> None:
    driver = drafted()
    assert driver.execute_plan(1)
    assert plan_of(driver).status == "active"
    assert mode_of(driver) is InteractionMode.EXECUTING
    assert driver.snapshot().messages[-1].text == (
        "[Dex] The user approved plan revision 1. Execute it and keep the task statuses current with write_todos."
    )
    assert [event.type for event in driver.events()][-3:] == ["turn_started", "plan_updated", "plan_execution_started"]
    assert payloads(driver, "plan_execution_started") == [{"revision": 1}]
    finish_model(driver, asks(wanted("c"), todos(("one", "completed"), ("two", "in_progress"))))
    assert (plan_of(driver).revision, plan_of(driver).status) == (2, "active")
    assert driver.attempt_of("CallTool", "c")
    assert ("PendingPlanExecution", "") not in driver.store.attributes


def test_an_active_plan_can_be_executed_again() -> None:
    driver = drafted()
    assert driver.execute_plan(1)
    finish_model(driver, answer("I got stuck."))
    assert driver.execute_plan(1)
    assert mode_of(driver) is InteractionMode.EXECUTING
    assert len(payloads(driver, "plan_updated")) == 2


@pytest.mark.parametrize("revision", [0, 2, -1])
def test_another_revision_cannot_be_executed(revision: int) -> None:
    driver = drafted()
    assert not driver.execute_plan(revision)
    assert driver.open_step_types == ["AwaitUserMessage"]


def test_a_plan_is_executed_only_while_the_session_waits_for_a_message() -> None:
    driver = drafted()
    assert driver.send("One more thing")
    assert not driver.execute_plan(1)
    assert driver.send("And another")
    finish_model(driver, answer())
    assert not driver.execute_plan(1)
    finish_model(driver, answer())
    assert driver.execute_plan(1)
    assert not driver.execute_plan(1)


@pytest.mark.parametrize("tasks", [(), (("one", "completed"),)])
def test_a_cleared_or_completed_plan_cannot_be_executed(tasks: tuple[tuple[str, str], ...]) -> None:
    driver = planner("Do it")
    finish_model(driver, asks(todos(*tasks)))
    finish_model(driver, answer())
    assert not driver.execute_plan(1)


def test_an_approval_of_a_replaced_revision_never_runs() -> None:
    driver = drafted()
    assert driver.send("Revise it")
    # Cannot arise through execute_plan, which refuses while a turn runs; a stored one must not run either.
    driver.store.channels[(PLAN_EXECUTIONS.name, "1")] = {900: b'{"revision":1}'}
    finish_model(driver, asks(todos(("new", "pending"))))
    finish_model(driver, answer())
    assert driver.open_step_types == ["AwaitUserMessage"]
    assert plan_of(driver).status == "draft"


def test_a_steered_message_keeps_plan_mode() -> None:
    driver = planner("Do it")
    assert driver.send("Plan instead", plan_mode=True)
    (queued,) = driver.snapshot().queued_messages
    assert queued.plan_mode
    assert driver.steer(message_id=queued.message_id)
    finish_model(driver, asks(wanted("c")))
    assert mode_of(driver) is InteractionMode.PLANNING


def test_a_todo_list_that_a_model_wrote_while_the_user_steered_still_replaces_the_plan() -> None:
    driver = planner("Do it")
    assert driver.steer("Stop, do this")
    finish_model(driver, asks(todos(("one", "pending")), wanted("c")))
    assert plan_of(driver).revision == 1
    state = driver.snapshot().state
    assert state is not None
    assert (state.turn_count, state.status) == (2, AgentStatus.RUNNING_MODEL)


def test_the_plan_note_shows_the_plan_and_tells_a_planning_turn_how_to_plan() -> None:
    assert build_plan_note(None, InteractionMode.CHAT) is None
    planning = build_plan_note(None, InteractionMode.PLANNING)
    assert planning is not None
    assert planning.startswith("[Dex] This turn only plans: write the plan with write_todos")
    note = build_plan_note(plan_of(drafted()), InteractionMode.EXECUTING)
    assert note == "[Dex] The plan, revision 1, draft:\n[ ] one\n[ ] two"


def test_plan_mode_needs_write_todos() -> None:
    with pytest.raises(ValueError, match="plan_mode_enabled needs 'write_todos' in built_in_tools"):
        AgentSessionOptions(plan_mode_enabled=True)
