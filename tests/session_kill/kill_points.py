"""The session's Steps with points in their pure code: where a test holds a worker before a commit, or plants a bug.

Pure code must not look at files; here it does, because a worker that is held in `before_run` or `commit` and killed is
exactly one that dies before that commit.
"""

from __future__ import annotations

from collections.abc import Collection

from dex_agents import AgentSessionFlow
from dex_agents.execution.model_step import RunnerModelStepExecution
from dex_agents.execution.tool_call import RunnerToolCallExecution
from dex_agents.session.outcomes import ModelStepOutcome, ToolOutcome
from dex_agents.session.steps import AwaitToolApproval, CallSingleAttemptTool, CallTool, ResumeTurn, RunModel
from dex_flow import Decision, Flow, Proceed, Transaction
from dex_flow.testing import Gates

__all__ = ["PlantedBugError", "create_kill_point_flow"]


class PlantedBugError(Exception):
    """A bug that a test planted in pure code."""


class _Points:
    def __init__(self, gates: Gates, bugs: Collection[str]) -> None:
        self._gates = gates
        self._bugs = bugs

    def pass_through(self, flow_id: str, point: str) -> None:
        if point in self._bugs:
            raise PlantedBugError(point)
        self._gates.pass_through_blocking(f"{flow_id}.{point}")


class _RunModel(RunModel):
    step_type = "RunModel"

    def __init__(self, flow: AgentSessionFlow, points: _Points) -> None:
        super().__init__(RunnerModelStepExecution(flow.runner), flow.options)
        self._points = points

    def commit(self, tx: Transaction, input: None, outcome: ModelStepOutcome) -> Decision:
        decision = super().commit(tx, input, outcome)
        self._points.pass_through(tx.flow_id, "RunModel.commit")
        return decision


class _CallTool(CallTool):
    step_type = "CallTool"

    def __init__(self, flow: AgentSessionFlow, points: _Points) -> None:
        super().__init__(RunnerToolCallExecution(flow.runner), flow.options, follows_tasks=True)
        self._points = points

    def before_run(self, tx: Transaction, input: str) -> Proceed | Decision:
        self._points.pass_through(tx.flow_id, "CallTool.before_run")
        return super().before_run(tx, input)

    def commit(self, tx: Transaction, input: str, outcome: ToolOutcome) -> Decision:
        decision = super().commit(tx, input, outcome)
        self._points.pass_through(tx.flow_id, "CallTool.commit")
        return decision


class _CallSingleAttemptTool(CallSingleAttemptTool):
    step_type = "CallSingleAttemptTool"

    def __init__(self, flow: AgentSessionFlow, points: _Points) -> None:
        super().__init__(RunnerToolCallExecution(flow.runner), flow.options, follows_tasks=True)
        self._points = points

    def before_run(self, tx: Transaction, input: str) -> Proceed | Decision:
        self._points.pass_through(tx.flow_id, "CallSingleAttemptTool.before_run")
        return super().before_run(tx, input)

    def commit(self, tx: Transaction, input: str, outcome: ToolOutcome) -> Decision:
        decision = super().commit(tx, input, outcome)
        self._points.pass_through(tx.flow_id, "CallSingleAttemptTool.commit")
        return decision


class _ResumeTurn(ResumeTurn):
    step_type = "ResumeTurn"

    def __init__(self, points: _Points) -> None:
        self._points = points

    def execute(self, tx: Transaction, input: int) -> Decision:
        decision = super().execute(tx, input)
        self._points.pass_through(tx.flow_id, "ResumeTurn.execute")
        return decision


class _AwaitToolApproval(AwaitToolApproval):
    step_type = "AwaitToolApproval"

    def __init__(self, points: _Points) -> None:
        self._points = points

    def execute(self, tx: Transaction, input: str) -> Decision:
        decision = super().execute(tx, input)
        self._points.pass_through(tx.flow_id, "AwaitToolApproval.execute")
        return decision


def create_kill_point_flow(flow: AgentSessionFlow, gates: Gates, bugs: Collection[str] = ()) -> Flow:
    """The Flow with a point `<Step>.<method>` at the end of its Steps' pure code (`before_run`: at its beginning).

    Args:
        flow: The session's Flow.
        gates: A gate `<session>.<point>` holds the worker's writer there, inside its transaction.
        bugs: Points at which the code raises.
    """
    points = _Points(gates, bugs)
    replaced = {
        step.step_type: step
        for step in (
            _RunModel(flow, points),
            _CallTool(flow, points),
            _CallSingleAttemptTool(flow, points),
            _ResumeTurn(points),
            _AwaitToolApproval(points),
        )
    }
    return Flow(
        flow.flow_type,
        steps=[replaced.get(name, step) for name, step in flow.steps.items()],
        start_step=flow.start_step,
        declarations=list(flow.declarations.values()),
        rpcs=list(flow.rpcs.values()),
        compatibility=flow.compatibility,
    )
