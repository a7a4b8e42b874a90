"""The session's Steps with points in their code: where a test holds a worker before a commit, or plants a bug.

Pure code must not look at files; here it does, because a worker that is held in `before_run` or `commit` and killed is
exactly one that dies before that commit.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection
from typing import Any

from dex_agents.agent_session_flow import AgentSessionFlow
from dex_flow import Activity, ActivityStep, Flow, InlineStep, Step, Transaction
from dex_flow.testing import Gates

__all__ = ["PlantedBugError", "create_kill_point_flow"]


class PlantedBugError(Exception):
    """A bug that a test planted in pure code."""


class _Points:
    def __init__(self, gates: Gates, bugs: Collection[str]) -> None:
        self._gates = gates
        self._bugs = bugs

    def add_to(self, step: Step[Any]) -> Step[Any]:
        """A copy of the Step that passes its points."""
        held = copy.copy(step)
        replaced: dict[str, Callable[..., Any]] = {}
        if isinstance(step, InlineStep):
            replaced["execute"] = self._at_end(f"{step.step_type}.execute", step.execute)
        elif isinstance(step, ActivityStep):
            replaced["before_run"] = self._at_beginning(f"{step.step_type}.before_run", step.before_run)
            replaced["run"] = self._before_run_begins(f"{step.step_type}.run", step.run)
            replaced["commit"] = self._at_end(f"{step.step_type}.commit", step.commit)
        for name, method in replaced.items():
            setattr(held, name, method)
        return held

    def _at_beginning(self, point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def held(tx: Transaction, *arguments: Any) -> Any:
            self._pass_through(tx.flow_id, point)
            return method(tx, *arguments)

        return held

    def _at_end(self, point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def held(tx: Transaction, *arguments: Any) -> Any:
            decision = method(tx, *arguments)
            self._pass_through(tx.flow_id, point)
            return decision

        return held

    def _before_run_begins(self, point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def held(activity: Activity, snapshot: Any) -> Any:
            await self._gates.pass_through(f"{activity.flow_id}.{point}")
            return await method(activity, snapshot)

        return held

    def _pass_through(self, flow_id: str, point: str) -> None:
        if point in self._bugs:
            raise PlantedBugError(point)
        self._gates.pass_through_blocking(f"{flow_id}.{point}")


def create_kill_point_flow(flow: AgentSessionFlow, gates: Gates, bugs: Collection[str] = ()) -> Flow:
    """The Flow with points `<Step>.<method>` in every Step.

    They are at the beginning of `before_run` and `run`, and at the end of `execute` and `commit`.

    Args:
        flow: The session's Flow.
        gates: A gate `<session>.<point>` holds the worker there; in pure code its writer, inside its transaction.
        bugs: Points of pure code at which it raises.
    """
    points = _Points(gates, bugs)
    return Flow(
        flow.flow_type,
        steps=[points.add_to(step) for step in flow.steps.values()],
        start_step=flow.start_step,
        declarations=list(flow.declarations.values()),
        rpcs=list(flow.rpcs.values()),
        compatibility=flow.compatibility,
    )
