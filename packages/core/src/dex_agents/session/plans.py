"""The session's plan: written by `write_todos`, approved by the user, shown to the model in a note."""

from __future__ import annotations

import json
from typing import Any, get_args

from msgspec.structs import replace

from dex_agents.session.built_in_tools import WRITE_TODOS
from dex_agents.session.events import emit_plan_execution_started, emit_plan_updated
from dex_agents.session.persistence import AGENT_PLAN, PENDING_PLAN_EXECUTION, PLAN_EXECUTIONS
from dex_agents.session.plan_values import AgentPlan, AgentPlanStatus, AgentPlanTask, AgentPlanTaskStatus
from dex_agents.session.texts import NOTE_PREFIX
from dex_agents.session.values import InteractionMode
from dex_flow import StateView, Transaction

__all__ = [
    "InvalidTodosError",
    "activate_plan",
    "build_plan_note",
    "can_execute",
    "plan_execution_key",
    "plan_execution_message",
    "read_todos",
    "replace_plan",
    "todos_result",
    "turn_mode",
]

_TASK_STATUSES: tuple[AgentPlanTaskStatus, ...] = get_args(AgentPlanTaskStatus)
_MARKS: dict[AgentPlanTaskStatus, str] = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class InvalidTodosError(ValueError):
    """A `write_todos` call cannot be used; the text is for the model.

    Args:
        reason: What is wrong.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid todos: {reason}")


def plan_execution_key(revision: int) -> str:
    """The key of a revision's approvals."""
    return str(revision)


def plan_execution_message(revision: int) -> str:
    """The user message of a turn that carries out an approved plan."""
    return (
        f"{NOTE_PREFIX} The user approved plan revision {revision}. Execute it and keep the task statuses current with "
        f"{WRITE_TODOS}."
    )


def read_todos(arguments: str) -> tuple[AgentPlanTask, ...]:
    """The tasks of a `write_todos` call from its JSON object text.

    Raises:
        InvalidTodosError: They do not fit.
    """
    values: dict[str, Any] = json.loads(arguments)
    unknown = sorted(values.keys() - {"todos"})
    if unknown:
        raise InvalidTodosError(f"there is no argument {', '.join(unknown)}")
    todos = values.get("todos")
    if not isinstance(todos, list):
        raise InvalidTodosError("todos must be a list")
    return tuple(_read_task(number, todo) for number, todo in enumerate(todos, 1))


def _read_task(number: int, todo: Any) -> AgentPlanTask:
    if not isinstance(todo, dict):
        raise InvalidTodosError(f"task {number} must be an object with content and status")
    unknown = sorted(todo.keys() - {"content", "status"})
    if unknown:
        raise InvalidTodosError(f"task {number} has an unknown field {', '.join(unknown)}")
    content, status = todo.get("content"), todo.get("status")
    if not isinstance(content, str) or not content.strip():
        raise InvalidTodosError(f"the content of task {number} must be text that is not blank")
    if status not in _TASK_STATUSES:
        raise InvalidTodosError(f"the status of task {number} must be one of {', '.join(_TASK_STATUSES)}")
    return AgentPlanTask(content=content, status=status)


def replace_plan(
    tx: Transaction, turn_id: str, tasks: tuple[AgentPlanTask, ...], interaction_mode: InteractionMode
) -> AgentPlan:
    """Store the next revision of the plan.

    No tasks clear it; a planning turn writes a draft, which the user has to approve.
    """
    current = tx.get(AGENT_PLAN)
    plan = AgentPlan(
        revision=1 if current is None else current.revision + 1,
        status=_status(tasks, interaction_mode),
        updated_at=tx.now,
        tasks=tasks,
    )
    tx.set(AGENT_PLAN, plan)
    _drop_stale_approval(tx, plan.revision)
    emit_plan_updated(tx, turn_id, plan)
    return plan


def _drop_stale_approval(tx: Transaction, revision: int) -> None:
    """No turn will ever take an approval of a revision that was replaced."""
    pending = tx.get(PENDING_PLAN_EXECUTION)
    if pending is not None and pending.revision != revision:
        tx.purge_messages(PLAN_EXECUTIONS, plan_execution_key(pending.revision))
        tx.delete(PENDING_PLAN_EXECUTION)


def _status(tasks: tuple[AgentPlanTask, ...], interaction_mode: InteractionMode) -> AgentPlanStatus:
    if not tasks:
        return "cleared"
    if interaction_mode is InteractionMode.PLANNING:
        return "draft"
    return "completed" if all(task.status == "completed" for task in tasks) else "active"


def todos_result(plan: AgentPlan) -> str:
    """What the model sees of a `write_todos` call that replaced the plan."""
    if plan.status == "cleared":
        return json.dumps({"status": "cleared", "revision": plan.revision})
    return json.dumps({"status": "updated", "revision": plan.revision, "task_count": len(plan.tasks)})


def can_execute(view: StateView, revision: int) -> bool:
    """Whether the plan has this revision, waits to be carried out, and no approval of it is on its way.

    An approval of a revision that was replaced since does not count: no turn will ever take it.
    """
    plan = view.get(AGENT_PLAN)
    if plan is None or plan.revision != revision or plan.status not in ("draft", "active"):
        return False
    pending = view.get(PENDING_PLAN_EXECUTION)
    return pending is None or pending.revision != revision


def activate_plan(tx: Transaction, turn_id: str) -> None:
    """Mark the approved plan as being carried out, and say so in the turn that does."""
    plan = tx.get(AGENT_PLAN)
    if plan is None:
        raise LookupError(f"session {tx.flow_id!r} has no plan to carry out")
    if plan.status != "active":
        plan = replace(plan, status="active", updated_at=tx.now)
        tx.set(AGENT_PLAN, plan)
        emit_plan_updated(tx, turn_id, plan)
    emit_plan_execution_started(tx, turn_id, plan.revision)


def turn_mode(view: StateView, *, plan_mode: bool) -> InteractionMode:
    """The kind of turn a user message starts: with `plan_mode`, or while a draft waits, one that only plans."""
    plan = view.get(AGENT_PLAN)
    has_draft = plan is not None and plan.status == "draft"
    return InteractionMode.PLANNING if plan_mode or has_draft else InteractionMode.CHAT


def build_plan_note(plan: AgentPlan | None, interaction_mode: InteractionMode) -> str | None:
    """The note that shows the model its plan, and in a planning turn tells it how to plan; None when there is neither.

    Args:
        plan: The session's plan.
        interaction_mode: The kind of the active turn.
    """
    lines = []
    if plan is not None and plan.tasks:
        lines.append(f"{NOTE_PREFIX} The plan, revision {plan.revision}, {plan.status}:")
        lines += [f"{_MARKS[task.status]} {task.content}" for task in plan.tasks]
    if interaction_mode is InteractionMode.PLANNING:
        prefix = "" if lines else f"{NOTE_PREFIX} "
        lines.append(
            f"{prefix}This turn only plans: write the plan with {WRITE_TODOS}, or ask in plain text what you have to "
            "know first. No other tool runs until the user approves the plan."
        )
    return "\n".join(lines) if lines else None
