"""Attempts of ActivitySteps: claimed by a worker, started, and ended by an outcome, a failure or the worker's loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from dex_flow.codec import decode, encode
from dex_flow.decisions import Decision
from dex_flow.errors import DexFlowError
from dex_flow.exception_text import describe_exception, storable_text
from dex_flow.kernel.changes import ClaimedAttempt
from dex_flow.kernel.machine import Machine, error_text
from dex_flow.kernel.retrying import backoff_after, is_past_window
from dex_flow.kernel.state import OpenStep, timestamp
from dex_flow.kernel.transaction import KernelTransaction
from dex_flow.options import Retry
from dex_flow.steps import ActivityStep, AttemptFailure, Proceed

__all__ = [
    "AttemptDiscardedError",
    "attempt_failed",
    "attempt_started",
    "attempt_succeeded",
    "attempts_lost",
    "claim_ready",
    "commit_stored_outcome",
    "fail_unstarted",
    "save_checkpoint",
]


_LONGEST_RETRY_AFTER_SECONDS = 365 * 24 * 3600


class AttemptDiscardedError(DexFlowError):
    """A command named an attempt that no longer runs: cancelled, lost, or replaced by a later one."""


def claim_ready(machine: Machine, slots: int) -> None:
    """Give ready ActivitySteps to the claiming worker, lowest Step ID first, as far as its slots allow.

    A repeatable Step starts in this command; a single-attempt Step is only claimed, so that its own started marker
    is the last thing that happens before `run`.
    """
    while slots > len(machine.claimed):
        claimable = [step for step in machine.header.steps.values() if _is_claimable(machine, step)]
        if not claimable or not machine.may_execute():
            return
        step = min(claimable, key=_step_id)
        retry = machine.options(step).retry
        is_spent = retry.attempts is not None and step.attempt >= retry.attempts
        if is_spent or (step.first_started_at and is_past_window(retry, step, machine.now)):
            error_type, _, message = (step.error or "WorkerLost: ").partition(": ")
            machine.fail_step(step, error_type, message)
            machine.settle()
        elif retry.attempts == 1:
            machine.put(replace(step, status="claimed", due=0))
            _add_claim(machine, step, step.attempt + 1, is_started=False)
        else:
            _begin(machine, step)
            machine.settle()


def _step_id(step: OpenStep) -> int:
    return step.id


def _is_claimable(machine: Machine, step: OpenStep) -> bool:
    return step.status == "ready" and machine.activity(step) is not None


def _begin(machine: Machine, step: OpenStep) -> None:
    definition = machine.flow.step(step.type)
    assert isinstance(definition, ActivityStep)
    begun = replace(
        step,
        status="running",
        attempt=step.attempt + 1,
        due=0,
        phase="",
        started_at=machine.now,
        first_started_at=step.first_started_at or machine.now,
        failures=0,
        error=None,
    )
    decided: list[Decision] = []

    def before_run(tx: KernelTransaction) -> None:
        result = definition.before_run(tx, machine.input(step))
        if isinstance(result, Proceed):
            machine.put(begun)
        else:
            machine.apply_decision(result, step)
            decided.append(result)

    error = machine.run_pure(begun, before_run)
    if error is not None:
        machine.back_off(step, "begin", error)
    elif decided:
        machine.log(begun, "run", "skipped")
    else:
        _add_claim(machine, begun, begun.attempt, is_started=True)


def _add_claim(machine: Machine, step: OpenStep, attempt: int, *, is_started: bool) -> None:
    body = machine.body(step)
    machine.claimed.append(
        ClaimedAttempt(
            step.id,
            step.type,
            attempt,
            is_started,
            bytes(body.input),
            body.checkpoint,
            machine.options(step),
            step.started_at if is_started else machine.now,
        )
    )


def attempt_started(machine: Machine, step_id: int, attempt: int) -> None:
    """The started marker of a claimed single-attempt Step."""
    step = machine.header.steps.get(step_id)
    if step is None or step.status != "claimed" or step.attempt + 1 != attempt:
        raise AttemptDiscardedError(f"attempt {attempt} of step {step_id} may not start")
    _begin(machine, step)


def _running(machine: Machine, step_id: int, attempt: int) -> OpenStep:
    step = machine.header.steps.get(step_id)
    if step is None or step.status != "running" or step.attempt != attempt:
        raise AttemptDiscardedError(f"attempt {attempt} of step {step_id} no longer runs")
    return step


def attempt_succeeded(machine: Machine, step_id: int, attempt: int, outcome: Any) -> None:
    """Commit the outcome; when `commit` raises, the outcome is stored and only `commit` is tried again."""
    step = _running(machine, step_id, attempt)
    definition = machine.activity(step)
    error = None if definition is None else _commit(machine, step, definition, lambda: outcome)
    if definition is not None and error is None:
        return
    try:
        data = encode(outcome)
        if definition is not None:
            decode(definition.outcome_type, data)
    except Exception as unstorable:
        error_type, message = describe_exception(unstorable)
        text = f"the outcome of {step.type} cannot be stored: {message}"
        _end_attempt(machine, step, AttemptFailure(error_type=error_type, message=text, is_retryable=False), "failed")
        return
    machine.put_body(step.id, replace(machine.body(step), outcome=(Raw(data),)))
    if error is None:
        machine.hold(step, "commit")
    else:
        machine.back_off(step, "commit", error)


def commit_stored_outcome(machine: Machine, step: OpenStep) -> None:
    """Try `commit` again with the outcome that an earlier command stored."""
    definition = machine.activity(step)
    if definition is None:
        machine.hold(step, "commit")
        return
    stored = machine.body(step).outcome
    assert stored is not None
    error = _commit(machine, step, definition, lambda: decode(definition.outcome_type, stored[0]))
    if error is not None:
        machine.back_off(step, "commit", error)


def _commit(
    machine: Machine, step: OpenStep, definition: ActivityStep[Any, Any, Any], read_outcome: Callable[[], Any]
) -> BaseException | None:
    def commit(tx: KernelTransaction) -> None:
        decision = definition.commit(tx, machine.input(step), read_outcome())
        machine.apply_decision(decision, step)

    error = machine.run_pure(step, commit)
    if error is None:
        machine.log(step, "run", "succeeded", step.started_at)
    return error


def attempt_failed(machine: Machine, step_id: int, attempt: int, failure: AttemptFailure) -> None:
    """Try again after a backoff, as the options allow, or fail the Step."""
    _end_attempt(machine, _running(machine, step_id, attempt), failure, "failed")


def attempts_lost(machine: Machine, message: str) -> None:
    """The worker is gone: claimed Steps never started, repeatable ones get their next attempt at once."""
    for step_id in sorted(machine.header.steps):
        step = machine.header.steps.get(step_id)
        if step is None:
            # An earlier loss of this command ended it.
            continue
        if step.status == "claimed":
            machine.make_ready(step)
        elif step.status == "running":
            failure = AttemptFailure(error_type="WorkerLost", message=message, retry_after_seconds=0)
            _end_attempt(machine, step, failure, "lost")


def _end_attempt(machine: Machine, step: OpenStep, failure: AttemptFailure, outcome: str) -> None:
    definition = machine.activity(step)
    retry = machine.options(step).retry
    failure = replace(failure, error_type=storable_text(failure.error_type), message=storable_text(failure.message))
    delay = 0 if outcome == "lost" else _delay(step, retry, failure)
    may_retry = (
        failure.is_retryable
        and (retry.attempts is None or step.attempt < retry.attempts)
        and not is_past_window(retry, step, machine.now + delay)
    )
    text = f"{failure.error_type}: {failure.message}"
    if definition is None:
        # Without its options nobody knows whether it may be tried again; `claim_ready` asks once they are back.
        machine.hold(machine.log_failure(step, "run", outcome, step.started_at, text), "attempt", text)
        return
    if not may_retry:
        machine.log(step, "run", outcome, step.started_at, text)
        machine.fail_step(step, failure.error_type, failure.message)
        return
    step = machine.log_failure(step, "run", outcome, step.started_at, text)
    next_attempt_at = timestamp(machine.now + delay)
    known = replace(failure, attempt=step.attempt, next_attempt_at=next_attempt_at)
    error = machine.run_pure(step, lambda tx: definition.on_attempt_failed(tx, machine.input(step), known))
    if error is not None:
        text = f"{text}; on_attempt_failed raised {error_text(error)}"
        step = machine.log_failure(step, "on_attempt_failed", "failed", detail=error_text(error))
    waiting = replace(step, error=text)
    if delay > 0:
        machine.put(replace(waiting, status="backoff", phase="attempt", due=machine.now + delay))
    else:
        machine.make_ready(waiting)


def _delay(step: OpenStep, retry: Retry, failure: AttemptFailure) -> int:
    delay = backoff_after(retry, step.attempt)
    if failure.retry_after_seconds is not None:
        # Whoever names the delay may name one beyond the calendar, or no number.
        named = min(failure.retry_after_seconds, _LONGEST_RETRY_AFTER_SECONDS) * 1_000_000
        if named > delay:
            return int(named)
    return delay


def fail_unstarted(machine: Machine, step: OpenStep) -> None:
    """No worker took the Step within its start timeout."""
    message = "no worker started the step within its start timeout"
    machine.log(step, "run", "failed", detail=message)
    machine.fail_step(step, "StartTimeout", message)


def save_checkpoint(machine: Machine, step_id: int, attempt: int, text: str) -> None:
    """Keep `text` for the next attempt."""
    step = _running(machine, step_id, attempt)
    machine.put_body(step.id, replace(machine.body(step), checkpoint=text))
