"""A naive model of one Flow: plain lists, full scans, no code of the kernel.

Whatever moves is found by looking at everything, lowest Step ID first, until nothing moves.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import msgspec

SECOND = 1_000_000
WINDOW = 20 * SECOND
WORK_ATTEMPTS = 3
WORK_BACKOFF = 1 * SECOND
WORK_BACKOFF_CAP = 1_500_000
START_TIMEOUT = 30 * SECOND


class Plan(msgspec.Struct, frozen=True):
    """The input of every modelled Step.

    Attributes:
        name: Unique.
        mode: `any_of` or `all_of`.
        conditions: (channel, count), or ("timer", seconds after registration).
        publishes: Channels that get one message when the Step ends.
        cancels: Step types that its decision cancels.
        then: (Step type, plan) that its decision begins.
        skips: Whether `before_run` ends the Step without running it.
        closes: Whether the decision completes the Flow instead of beginning Steps.
    """

    name: str
    mode: str
    conditions: tuple[tuple[str, int], ...]
    publishes: tuple[str, ...] = ()
    cancels: tuple[str, ...] = ()
    then: tuple[tuple[str, Plan], ...] = ()
    skips: bool = False
    closes: bool = False


class DiscardedError(Exception):
    """The modelled command named an attempt that does not run."""


class ClosedError(Exception):
    """The modelled Flow has ended."""


@dataclass(eq=False)
class ModelStep:
    """One open Step."""

    id: int
    type: str
    plan: Plan
    status: str = ""
    phase: str = ""
    attempt: int = 0
    due: int = 0
    failures: int = 0
    first_started_at: int = 0
    timers: list[int] = field(default_factory=list)
    index: int = -1
    taken: list[list[str]] = field(default_factory=list)
    outcome: str = ""
    error_type: str = ""
    recovery: str = ""


class Model:
    """The whole state of one execution.

    Args:
        broken: The pieces of pure code that fail for now, and the class name of their error.
    """

    def __init__(self, broken: dict[str, str]) -> None:
        self.broken = broken
        self.now = 0
        self.next_step = 1
        self.next_message = 1
        self.is_open = True
        self.queues: dict[str, list[tuple[int, str]]] = {"a": [], "b": []}
        self.steps: list[ModelStep] = []
        self.log: list[str] = []
        self.claimed: list[tuple[int, int, bool]] = []
        self.cancelled: list[tuple[int, int]] = []

    def saved(self) -> Model:
        """A copy to go back to."""
        other = copy.copy(self)
        other.queues = {name: list(queue) for name, queue in self.queues.items()}
        other.steps = [copy.copy(step) for step in self.steps]
        other.log = list(self.log)
        return other

    # What every command does

    def begin_command(self, now: int) -> None:
        self.now = max(self.now, now)
        self.claimed, self.cancelled = [], []
        if not self.is_open:
            return
        for step in list(self.steps):
            if step not in self.steps:
                continue
            if step.status == "backoff" and step.due <= self.now:
                self.resume(step)
            elif step.status == "ready" and 0 < step.due <= self.now:
                self.give_up(step, "StartTimeout", "NOT_STARTED")
        self.settle()

    def end_command(self, slots: int) -> None:
        if not self.is_open:
            return
        self.settle()
        while slots > len(self.claimed):
            ready = [step for step in self.steps if step.status == "ready"]
            if not ready:
                return
            step = ready[0]
            if step.type == "Once":
                step.status, step.due = "claimed", 0
                self.claimed.append((step.id, step.attempt + 1, False))
            elif step.first_started_at and self.now - step.first_started_at > WINDOW:
                self.give_up(step, step.error_type, "NOT_COMPLETED")
                self.settle()
            else:
                self.begin_attempt(step)
                self.settle()

    def settle(self) -> None:
        while self.is_open:
            movable = [step for step in self.steps if self.can_move(step)]
            if not movable:
                return
            step = movable[0]
            if step.status == "waiting":
                self.take(step)
            if step.type in ("Inline", "Route"):
                self.execute(step)

    def can_move(self, step: ModelStep) -> bool:
        if step.status == "ready":
            return step.type in ("Inline", "Route")
        return step.status == "waiting" and self.satisfied(step) is not None

    # Waits

    def satisfied(self, step: ModelStep) -> list[int] | None:
        """The conditions that end the wait."""
        left = {name: len(queue) for name, queue in self.queues.items()}
        holding = []
        for index, (channel, count) in enumerate(step.plan.conditions):
            if channel == "timer":
                holds = step.timers[index] <= self.now
            else:
                holds = left[channel] >= count
                if holds and step.plan.mode == "all_of":
                    left[channel] -= count
            if holds and step.plan.mode == "any_of":
                return [index]
            if not holds and step.plan.mode == "all_of":
                return None
            holding.append(index)
        return holding if step.plan.mode == "all_of" else None

    def take(self, step: ModelStep) -> None:
        chosen = self.satisfied(step)
        assert chosen is not None
        for index in chosen:
            channel, count = step.plan.conditions[index]
            if channel != "timer":
                step.taken[index] = [self.queues[channel].pop(0)[1] for _ in range(count)]
        step.index = chosen[0] if step.plan.mode == "any_of" else -1
        self.make_ready(step)

    def make_ready(self, step: ModelStep) -> None:
        step.status, step.phase, step.due = "ready", "", 0
        if step.type == "Once" and not step.first_started_at:
            step.due = self.now + START_TIMEOUT

    def begin_step(self, step_type: str, plan: Plan) -> ModelStep:
        step = ModelStep(self.next_step, step_type, plan)
        self.next_step += 1
        self.steps.append(step)
        self.register(step)
        return step

    def register(self, step: ModelStep) -> None:
        if "wait_for" in self.broken:
            self.back_off(step, "wait_for")
            return
        step.failures, step.phase = 0, ""
        if step.type == "Route" or not step.plan.conditions:
            self.make_ready(step)
            return
        step.status, step.due = "waiting", 0
        step.timers = [self.now + count * SECOND for _, count in step.plan.conditions]
        step.taken = [[] for _ in step.plan.conditions]

    # Pure code

    def back_off(self, step: ModelStep, phase: str) -> None:
        step.failures += 1
        step.status, step.phase = "backoff", phase
        step.due = self.now + min(100_000 * 2 ** (step.failures - 1), 5 * SECOND)
        step.error_type = self.broken["before_run" if phase == "begin" else phase]

    def resume(self, step: ModelStep) -> None:
        if step.phase == "wait_for":
            self.register(step)
        elif step.phase == "commit":
            self.commit(step, step.outcome)
        else:
            self.make_ready(step)

    def execute(self, step: ModelStep) -> None:
        step.attempt += 1
        if "execute" in self.broken:
            self.back_off(step, "execute")
            return
        self.finish(step, step.recovery or f"{step.plan.name} {step.index} {step.taken}")

    def finish(self, step: ModelStep, text: str) -> None:
        self.log.append(text)
        for channel in step.plan.publishes:
            self.publish(channel, f"{step.plan.name}>{channel}")
        self.steps.remove(step)
        self.cancel(step.plan.cancels)
        if step.plan.closes:
            self.stop()
            return
        for step_type, plan in step.plan.then:
            self.begin_step(step_type, plan)

    def publish(self, channel: str, text: str) -> int:
        self.queues[channel].append((self.next_message, text))
        self.next_message += 1
        return self.next_message - 1

    def cancel(self, types: tuple[str, ...]) -> int:
        chosen = [step for step in self.steps if step.type in types]
        for step in chosen:
            self.drop_cancelled(step)
        return len(chosen)

    def drop_cancelled(self, step: ModelStep) -> None:
        self.steps.remove(step)
        if step.status == "running":
            self.cancelled.append((step.id, step.attempt))
        elif step.status == "claimed":
            self.cancelled.append((step.id, step.attempt + 1))

    # Attempts

    def begin_attempt(self, step: ModelStep) -> None:
        if "before_run" in self.broken:
            self.back_off(step, "begin")
            return
        if step.plan.skips:
            self.finish(step, f"{step.plan.name} skipped")
            return
        step.status, step.phase, step.due, step.failures = "running", "", 0, 0
        step.attempt += 1
        step.first_started_at = step.first_started_at or self.now
        self.log.append(f"{step.plan.name} begins {step.attempt}")
        self.claimed.append((step.id, step.attempt, True))

    def find(self, step_id: int, status: str, attempt: int) -> ModelStep:
        for step in self.steps:
            if step.id == step_id and step.status == status and step.attempt == attempt:
                return step
        raise DiscardedError

    def started(self, step_id: int, attempt: int) -> None:
        self.begin_attempt(self.find(step_id, "claimed", attempt - 1))

    def succeeded(self, step_id: int, attempt: int, outcome: str) -> None:
        self.commit(self.find(step_id, "running", attempt), outcome)

    def commit(self, step: ModelStep, outcome: str) -> None:
        if "commit" in self.broken:
            step.outcome = outcome
            self.back_off(step, "commit")
            return
        self.finish(step, f"{step.plan.name} committed {outcome} {step.taken}")

    def failed(self, step_id: int, attempt: int, is_retryable: bool, retry_after: int) -> None:
        step = self.find(step_id, "running", attempt)
        delay = min(WORK_BACKOFF * 2 ** (step.attempt - 1), WORK_BACKOFF_CAP)
        self.end_attempt(step, "OSError", is_retryable, max(delay, retry_after))

    def lost(self) -> None:
        for step in list(self.steps):
            if step in self.steps and step.status == "claimed":
                self.make_ready(step)
            elif step in self.steps and step.status == "running":
                self.end_attempt(step, "WorkerLost", True, 0)

    def end_attempt(self, step: ModelStep, error_type: str, is_retryable: bool, delay: int) -> None:
        most = 1 if step.type == "Once" else WORK_ATTEMPTS
        in_window = step.type == "Once" or self.now + delay - step.first_started_at <= WINDOW
        if not is_retryable or step.attempt >= most or not in_window:
            self.give_up(step, error_type, "NOT_COMPLETED")
            return
        if "on_attempt_failed" not in self.broken:
            self.log.append(f"{step.plan.name} failed {step.attempt}")
        step.error_type = error_type
        if delay:
            step.status, step.phase, step.due = "backoff", "attempt", self.now + delay
        else:
            self.make_ready(step)

    def give_up(self, step: ModelStep, error_type: str, progress: str) -> None:
        self.steps.remove(step)
        recovery = f"{step.plan.name} {error_type} {progress} {step.attempt}"
        self.begin_step("Route", step.plan).recovery = recovery

    # Other commands

    def skip_timer(self, step_id: int) -> bool:
        for step in self.steps:
            if step.id == step_id:
                if step.status == "backoff":
                    self.resume(step)
                    return True
                timers = [index for index, (channel, _) in enumerate(step.plan.conditions) if channel == "timer"]
                if step.status == "waiting" and timers:
                    for index in timers:
                        step.timers[index] = self.now
                    return True
        return False

    def stop(self) -> None:
        for step in list(self.steps):
            self.drop_cancelled(step)
        self.is_open = False

    # What a scheduler sees

    def next_due(self) -> int | None:
        dues = [step.due for step in self.steps if step.status in ("backoff", "ready") and step.due]
        for step in self.steps:
            if step.status == "waiting":
                timers = zip(step.plan.conditions, step.timers, strict=True)
                dues += [due for (channel, _), due in timers if channel == "timer" and due > self.now]
        return min(dues, default=None)

    def has_ready(self) -> bool:
        return any(step.status == "ready" for step in self.steps)
