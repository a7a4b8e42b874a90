"""A Flow of ActivitySteps whose `run` is the test's own coroutine, with pure code that can be told to raise.

Only `run` touches the test's objects; everything else depends on stored state alone, so that an engine may run it
wherever it likes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from dex_flow.decisions import Decision, complete, dead_end, go_to, go_to_many, move
from dex_flow.declarations import Attribute, AttributeMap, Stream
from dex_flow.flow import Flow
from dex_flow.options import Retry, StepOptions
from dex_flow.rpcs import Rpc, RpcResult
from dex_flow.steps import Activity, ActivityStep, AttemptFailure, InlineStep, Proceed, RecoveryError
from dex_flow.transaction import StateView, Transaction
from dex_flow.waits import Wait

__all__ = [
    "ATTEMPT_FAILURES",
    "CANCEL_WORK",
    "EMIT",
    "EVENTS",
    "NOTES",
    "OUTCOMES",
    "RECOVERIES",
    "SET_SETTING",
    "UNBLOCK",
    "CloseWork",
    "RunBody",
    "Work",
    "WorkPlan",
    "work_flow",
]

RunBody = Callable[[Activity, str], Awaitable[str]]
PureMethod = Literal["", "wait_for", "before_run", "commit", "on_attempt_failed", "close"]


class WorkPlan(msgspec.Struct, frozen=True):
    """The start input.

    Attributes:
        works: Inputs of the Work Steps to begin, in order.
        blocked: Which pure method raises until the RPC `unblock`.
        setting: Appended to every `run` snapshot, as `input@setting`, when it is not empty.
        skips: `before_run` decides instead of running.
        stays_open: The Flow stays open after the last Work.
    """

    works: list[str] = []
    blocked: PureMethod = ""
    setting: str = ""
    skips: bool = False
    stays_open: bool = False


PLAN: Attribute[WorkPlan] = Attribute("plan", WorkPlan)
BLOCKED: Attribute[str] = Attribute("blocked", str)
SETTING: Attribute[str] = Attribute("setting", str)
OUTCOMES: AttributeMap[str] = AttributeMap("outcomes", str)
ATTEMPT_FAILURES: AttributeMap[AttemptFailure] = AttributeMap("attempt_failures", AttemptFailure)
RECOVERIES: AttributeMap[RecoveryError] = AttributeMap("recoveries", RecoveryError)
NOTES: AttributeMap[str] = AttributeMap("notes", str)
EVENTS: Stream[str] = Stream("events", str)


def _raise_when_blocked(view: StateView, method: PureMethod) -> None:
    if view.get(BLOCKED) == method:
        raise RuntimeError(f"{method} is blocked")


class BeginWork(InlineStep[WorkPlan]):
    """The start Step: begins one Work per input."""

    def execute(self, tx: Transaction, input: WorkPlan) -> Decision:
        """Store the plan and begin the work."""
        tx.set(PLAN, input)
        tx.set(BLOCKED, input.blocked)
        tx.set(SETTING, input.setting)
        return go_to_many(*(move(Work, work) for work in input.works)) if input.works else dead_end()


class Work(ActivityStep[str, str, str]):
    """Runs the test's coroutine.

    Args:
        body: What `run` does with the activity and the snapshot.
        options: Attempt rules.
    """

    def __init__(self, body: RunBody, options: StepOptions) -> None:
        self._body = body
        self.options = options

    def wait_for(self, view: StateView, input: str) -> Wait:
        """Nothing, or raise when told to."""
        _raise_when_blocked(view, "wait_for")
        return Wait.nothing

    def before_run(self, tx: Transaction, input: str) -> Proceed | Decision:
        """Note the attempt, and let it run unless the plan says otherwise."""
        tx.set_instance(NOTES, f"before_run:{input}", str(tx.attempt))
        _raise_when_blocked(tx, "before_run")
        plan = tx.get(PLAN)
        return go_to(CloseWork, "skipped") if plan is not None and plan.skips else Proceed()

    def load(self, view: StateView, input: str) -> str:
        """The input and the current setting."""
        setting = view.get(SETTING)
        return f"{input}@{setting}" if setting else input

    async def run(self, activity: Activity, snapshot: str) -> str:
        """The test's coroutine."""
        return await self._body(activity, snapshot)

    def commit(self, tx: Transaction, input: str, outcome: str) -> Decision:
        """Record the outcome; the writes before a raise must never be seen."""
        tx.set_instance(OUTCOMES, input, outcome)
        tx.set_instance(NOTES, f"commit:{input}", str(tx.attempt))
        tx.emit(EVENTS, f"committed {input}")
        _raise_when_blocked(tx, "commit")
        return go_to(CloseWork, outcome)

    def on_attempt_failed(self, tx: Transaction, input: str, failure: AttemptFailure) -> None:
        """Record the failure."""
        tx.set_instance(ATTEMPT_FAILURES, f"{input}:{failure.attempt}", failure)
        _raise_when_blocked(tx, "on_attempt_failed")


class RecoverWork(InlineStep[str]):
    """The failure route."""

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Record why it came here."""
        error = tx.recovery_error
        if error is not None:
            tx.set_instance(RECOVERIES, input, error)
        return go_to(CloseWork, "recovered")


class CloseWork(InlineStep[str]):
    """Ends the Flow with the input once no Work is left, unless the plan keeps it open."""

    def execute(self, tx: Transaction, input: str) -> Decision:
        """Complete, or end this Step alone."""
        tx.set_instance(NOTES, "close", input)
        _raise_when_blocked(tx, "close")
        plan = tx.get(PLAN) or WorkPlan()
        done = len(tx.read_range(OUTCOMES)) + len(tx.read_range(RECOVERIES))
        is_last = done >= len(plan.works) or input in ("skipped", "cancelled")
        return complete(input) if is_last and not plan.stays_open else dead_end()


def _unblock(tx: Transaction, _: None) -> None:
    tx.delete(BLOCKED)


def _set_setting(tx: Transaction, setting: str) -> None:
    tx.set(SETTING, setting)


def _emit(tx: Transaction, text: str) -> None:
    tx.emit(EVENTS, text)


def _cancel_work(tx: Transaction, event: str) -> RpcResult[str]:
    tx.emit(EVENTS, event)
    return RpcResult("cancelled", go_to(CloseWork, "cancelled").cancelling(Work))


UNBLOCK: Rpc[None, None] = Rpc("unblock", _unblock, type(None), type(None))
SET_SETTING: Rpc[str, None] = Rpc("set_setting", _set_setting, str, type(None))
EMIT: Rpc[str, None] = Rpc("emit", _emit, str, type(None))
CANCEL_WORK: Rpc[str, str] = Rpc("cancel_work", _cancel_work, str, str)

PATIENT = StepOptions(retry=Retry(), failure_route="RecoverWork")


def work_flow(body: RunBody, options: StepOptions = PATIENT, *, events: Stream[str] = EVENTS) -> Flow:
    """A fresh definition around `body`; its start input is a `WorkPlan`."""
    rpcs: list[Rpc[Any, Any]] = [UNBLOCK, SET_SETTING, EMIT, CANCEL_WORK]
    return Flow(
        "EngineSuiteWork",
        steps=[BeginWork(), Work(body, options), RecoverWork(), CloseWork()],
        start_step=BeginWork,
        declarations=[PLAN, BLOCKED, SETTING, OUTCOMES, ATTEMPT_FAILURES, RECOVERIES, NOTES, events],
        rpcs=rpcs,
    )
