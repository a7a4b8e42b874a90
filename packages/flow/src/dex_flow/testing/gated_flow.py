"""A Flow for tests that kill workers: jobs whose every stage a test can hold, with a log of what really ran.

Its pure code looks at gate files, which no other pure code should do: a worker that is held inside `before_run` or
`commit` is exactly one that dies before that commit.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from dex_flow.decisions import Decision, complete, go_to
from dex_flow.declarations import Attribute, AttributeMap, Channel
from dex_flow.flow import Flow
from dex_flow.options import Retry, StepOptions
from dex_flow.rpcs import Rpc
from dex_flow.steps import Activity, ActivityStep, InlineStep, Proceed, RecoveryError
from dex_flow.testing.gates import Gates
from dex_flow.testing.invocation_log import InvocationLog
from dex_flow.transaction import StateView, Transaction
from dex_flow.waits import Wait

__all__ = [
    "ADD",
    "COMMITS",
    "RECOVERIES",
    "SEND_SIGNAL",
    "SIGNALS_RECEIVED",
    "TOTAL",
    "WORKERS",
    "GatedFlow",
    "GatedPlan",
    "JobKind",
]

JobKind = Literal["repeatable", "single", "signal"]
Stage = Literal["before_run", "run", "after_effect", "commit"]


class GatedPlan(msgspec.Struct, frozen=True):
    """The start input.

    Attributes:
        jobs: What to do, one after the other: a repeatable Step, a single-attempt Step, or waiting for a signal.
        pause_ms: How long each `run` takes before and after its effect, besides its gates.
        blocks: `run` blocks its event loop at its gates, as CPU-bound code does.
    """

    jobs: list[JobKind] = []
    pause_ms: int = 0
    blocks: bool = False


class JobRun(msgspec.Struct, frozen=True):
    """The snapshot of one attempt, and its outcome."""

    key: str
    pause_ms: int = 0
    blocks: bool = False
    process: int = 0


PLAN: Attribute[GatedPlan] = Attribute("plan", GatedPlan)
TOTAL: Attribute[int] = Attribute("total", int)
COMMITS: AttributeMap[int] = AttributeMap("commits", int)
WORKERS: AttributeMap[int] = AttributeMap("workers", int)
RECOVERIES: AttributeMap[list[RecoveryError]] = AttributeMap("recoveries", list[RecoveryError])
SIGNALS_RECEIVED: AttributeMap[str] = AttributeMap("signals_received", str)
SIGNALS: Channel[str] = Channel("signals", str)


def _instance(number: int) -> str:
    return f"{number:04d}"


class BeginJobs(InlineStep[GatedPlan]):
    """The start Step."""

    def execute(self, tx: Transaction, input: GatedPlan) -> Decision:
        """Store the plan and begin with the first job."""
        tx.set(PLAN, input)
        return go_to(NextJob, 0)


class NextJob(InlineStep[int]):
    """Begins the job with this number, or completes the Flow with the number of jobs."""

    def execute(self, tx: Transaction, input: int) -> Decision:
        """Go to the Step of the job's kind."""
        plan = tx.get(PLAN)
        assert plan is not None
        if input >= len(plan.jobs):
            return complete(input)
        match plan.jobs[input]:
            case "repeatable":
                return go_to(RepeatableJob, input)
            case "single":
                return go_to(SingleAttemptJob, input)
            case "signal":
                return go_to(AwaitSignal, input)


class AwaitSignal(InlineStep[int]):
    """Waits for a message of the RPC `send_signal`."""

    def wait_for(self, view: StateView, input: int) -> Wait:
        """One message."""
        return Wait.any_of(SIGNALS.receive())

    def execute(self, tx: Transaction, input: int) -> Decision:
        """Note it and go on."""
        (signal,) = tx.wait_result.received
        tx.set_instance(SIGNALS_RECEIVED, _instance(input), signal)
        return go_to(NextJob, input + 1)


class _Job(ActivityStep[int, JobRun, JobRun]):
    def __init__(self, gates: Gates, log: InvocationLog) -> None:
        self._gates = gates
        self._log = log

    def before_run(self, tx: Transaction, input: int) -> Proceed | Decision:
        """Held before the commit that starts the attempt."""
        self._gates.pass_through_blocking(GatedFlow.point(tx.flow_id, input, "before_run"))
        return Proceed()

    def load(self, view: StateView, input: int) -> JobRun:
        """The key of the log, and how to run."""
        plan = view.get(PLAN)
        assert plan is not None
        return JobRun(GatedFlow.job_key(view.flow_id, input), plan.pause_ms, plan.blocks)

    async def run(self, activity: Activity, snapshot: JobRun) -> JobRun:
        """Begin, effect, end: each is logged when it has happened."""
        self._log.record(snapshot.key, "begin", activity.attempt)
        await self._pause(snapshot, "run", activity.attempt)
        self._log.record(snapshot.key, "effect", activity.attempt)
        await self._pause(snapshot, "after_effect", activity.attempt)
        self._log.record(snapshot.key, "end", activity.attempt)
        return JobRun(snapshot.key, process=os.getpid())

    async def _pause(self, snapshot: JobRun, stage: Stage, attempt: int) -> None:
        every_attempt = f"{snapshot.key}.{stage}"
        for point in (every_attempt, f"{every_attempt}.attempt-{attempt}"):
            if snapshot.blocks:
                self._gates.pass_through_blocking(point)
            else:
                await self._gates.pass_through(point)
        if snapshot.pause_ms:
            await asyncio.sleep(snapshot.pause_ms / 1_000)

    def commit(self, tx: Transaction, input: int, outcome: JobRun) -> Decision:
        """Held before the commit that records the outcome; counts itself."""
        self._gates.pass_through_blocking(GatedFlow.point(tx.flow_id, input, "commit"))
        instance = _instance(input)
        tx.set_instance(COMMITS, instance, (tx.get_instance(COMMITS, instance) or 0) + 1)
        tx.set_instance(WORKERS, instance, outcome.process)
        return go_to(NextJob, input + 1)


class RepeatableJob(_Job):
    """May run any number of times."""

    options = StepOptions(retry=Retry(backoff=timedelta(milliseconds=10)))


class SingleAttemptJob(_Job):
    """Runs at most once; a lost attempt is recorded, and the Flow goes on."""

    options = StepOptions(retry=Retry(attempts=1), failure_route="RecordLostJob")


class RecordLostJob(InlineStep[int]):
    """The failure route of `SingleAttemptJob`."""

    def execute(self, tx: Transaction, input: int) -> Decision:
        """Keep every recovery error, so that a second one would be seen."""
        assert tx.recovery_error is not None
        known = tx.get_instance(RECOVERIES, _instance(input)) or []
        tx.set_instance(RECOVERIES, _instance(input), [*known, tx.recovery_error])
        return go_to(NextJob, input + 1)


def _add(tx: Transaction, amount: int) -> int:
    total = (tx.get(TOTAL) or 0) + amount
    tx.set(TOTAL, total)
    return total


def _send_signal(tx: Transaction, signal: str) -> int:
    return tx.publish(SIGNALS, signal)


ADD: Rpc[int, int] = Rpc("add", _add, int, int)
SEND_SIGNAL: Rpc[str, int] = Rpc("send_signal", _send_signal, str, int)


class GatedFlow(Flow):
    """The definition, for the test's own process and for its worker programs.

    Args:
        directory: Shared by all of them; holds the gates and the log.
    """

    def __init__(self, directory: Path) -> None:
        self.gates = Gates(directory / "gates")
        self.log = InvocationLog(directory / "invocations.jsonl")
        rpcs: list[Rpc[Any, Any]] = [ADD, SEND_SIGNAL]
        super().__init__(
            "GatedFlow",
            steps=[
                BeginJobs(),
                NextJob(),
                AwaitSignal(),
                RepeatableJob(self.gates, self.log),
                SingleAttemptJob(self.gates, self.log),
                RecordLostJob(),
            ],
            start_step=BeginJobs,
            declarations=[PLAN, TOTAL, COMMITS, WORKERS, RECOVERIES, SIGNALS_RECEIVED, SIGNALS],
            rpcs=rpcs,
        )

    @staticmethod
    def job_key(flow_id: str, number: int) -> str:
        """The key of a job in the log."""
        return f"{flow_id}.{number}"

    @staticmethod
    def point(flow_id: str, number: int, stage: Stage) -> str:
        """The name of a gate: `flow_id` must be usable in a file name.

        The stages of `run` have one for every attempt and, with `.attempt-1` and so on appended, one for each.
        """
        return f"{flow_id}.{number}.{stage}"

    @staticmethod
    def instance(number: int) -> str:
        """The key of a job's attribute instances."""
        return _instance(number)
