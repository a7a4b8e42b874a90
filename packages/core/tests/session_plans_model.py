"""What plans promise: which revisions there are, what they say, and which turns may write or carry them out."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from dex_agents.session.built_in_tools import WRITE_TODOS
from dex_agents.session.outcomes import RequestedToolCall
from dex_agents.session.plan_values import AgentPlan

from .session_strategies import Configuration, wants_valid_built_in

__all__ = ["PlanModel"]


class PlanModel:
    """The session's plan, from what people sent and what the model wrote.

    Args:
        configuration: What the session and its runner can do.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.revision = 0
        self.status: str | None = None
        self.tasks: list[tuple[str, str]] = []
        self.mode = "chat"
        self._configuration = configuration
        self._planning_texts: set[str] = set()
        self._approved: int | None = None
        self._expected: deque[tuple[str, dict[str, Any]]] = deque()

    def sends(self, text: str, plan_mode: bool) -> bool:
        """A person sends a message, perhaps one that asks for a plan."""
        if plan_mode and self._configuration.plan_mode_enabled:
            self._planning_texts.add(text)
        return not plan_mode or self._configuration.plan_mode_enabled

    def executes(self, revision: int, *, is_free: bool) -> bool:
        """A person approves a revision; it counts when nothing else runs or waits and this is what would run."""
        if not is_free or revision != self.revision or self.status not in ("draft", "active"):
            return False
        self._approved = revision
        return True

    def turn_starts(self, texts: Sequence[str]) -> list[str]:
        """A turn starts with these messages of people; returns the messages it has to store."""
        if self._approved is None:
            is_planning = self.status == "draft" or not self._planning_texts.isdisjoint(texts)
            self.mode = "planning" if is_planning else "chat"
            return list(texts)
        assert not texts, "a message of a person went into the turn of an approval"
        revision, self._approved = self._approved, None
        self.mode = "executing"
        if self.status != "active":
            self.status = "active"
            self._expect_update()
        self._expected.append(("plan_execution_started", {"revision": revision}))
        return [
            f"[Dex] The user approved plan revision {revision}. Execute it and keep the task statuses current with "
            "write_todos."
        ]

    def turn_ends(self) -> None:
        self.mode = "chat"

    def model_asks(self, calls: Sequence[RequestedToolCall]) -> None:
        """The model asks for calls that no limit refuses."""
        written = [call for call in calls if call.tool_name == WRITE_TODOS]
        if len(written) != 1 or not self._configuration.has_plans or not wants_valid_built_in(written[0]):
            return
        self.revision += 1
        self.tasks = [(todo["content"], todo["status"]) for todo in json.loads(written[0].arguments)["todos"]]
        if not self.tasks:
            self.status = "cleared"
        elif self.mode == "planning":
            self.status = "draft"
        else:
            self.status = "completed" if {status for _, status in self.tasks} == {"completed"} else "active"
        self._expect_update()

    def _expect_update(self) -> None:
        payload = {"revision": self.revision, "status": self.status, "task_count": len(self.tasks)}
        self._expected.append(("plan_updated", payload))

    def event(self, event_type: str, payload: dict[str, Any]) -> None:
        """An event about the plan comes."""
        assert self._expected, f"{event_type} {payload} for no reason"
        assert (event_type, payload) == self._expected.popleft()

    def check(self, plan: AgentPlan | None) -> None:
        """What is stored is the plan, and every event of it has come."""
        assert not self._expected, f"{self._expected} did not come"
        if plan is None:
            assert self.revision == 0
            return
        tasks = [(task.content, task.status) for task in plan.tasks]
        assert (plan.revision, plan.status, tasks) == (self.revision, self.status, self.tasks)
