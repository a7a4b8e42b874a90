"""One command's view of a Flow execution: Step executions, waits and decisions, settled to quiescence.

Every piece of pure code runs under an undo mark: an exception undoes that piece alone and puts its Step in backoff.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from dex_flow.codec import decode, encode, encoded_null
from dex_flow.decisions import Decision
from dex_flow.errors import DefinitionError, UndeclaredNameError, UnstorableValueError
from dex_flow.exception_text import describe_exception, storable_text
from dex_flow.flow import Flow
from dex_flow.kernel.changes import ClaimedAttempt, HistoryRow
from dex_flow.kernel.known import KnownState
from dex_flow.kernel.overlay import Overlay
from dex_flow.kernel.reader import StateReader
from dex_flow.kernel.retrying import backoff_after, is_past_window
from dex_flow.kernel.state import FlowHeader, OpenStep, StepBody, StoredCondition
from dex_flow.kernel.transaction import KernelTransaction, KernelView
from dex_flow.kernel.waiting import consume_satisfied, stored_conditions, wait_result
from dex_flow.options import StepOptions
from dex_flow.step_methods import find_inline_option_problem
from dex_flow.steps import ActivityStep, AttemptProgress, InlineStep, RecoveryError

__all__ = ["Machine", "error_text"]

MAX_INLINE_EXECUTIONS = 1_000
FIRST_FAILURES = LAST_FAILURES = 10
_FIRST_PURE_BACKOFF = 100_000
_PURE_BACKOFF_CAP = 5_000_000
_NO_INPUT = StepBody(Raw(encoded_null))
_NO_OPTIONS = StepOptions()
_UNDECODED: Any = object()
# How often a held Step looks whether its definition is back.
_HOLD = 60_000_000


# Where to roll back to: the overlay's mark, how many history rows, cancelled and claimed attempts there were, and the
# header's status, result, failure and next Step ID.
_Mark = tuple[tuple[int, int, int, int], int, int, int, Any, Raw | None, str | None, int]


def error_text(error: BaseException) -> str:
    """Type and text of an exception as history and descriptions show it."""
    return ": ".join(describe_exception(error))


class Machine:
    """The open Steps of one execution while a command is applied."""

    __slots__ = (
        "_channel_waiters",
        "_executions",
        "_reader",
        "_stored_bodies",
        "_work",
        "bodies",
        "cancelled",
        "claimed",
        "flow",
        "flow_id",
        "forgotten_history",
        "header",
        "history",
        "now",
        "overlay",
        "stale_bodies",
    )

    def __init__(
        self,
        flow: Flow,
        flow_id: str,
        reader: StateReader,
        header: FlowHeader,
        now: int,
        known: KnownState | None = None,
    ) -> None:
        self.flow = flow
        self.flow_id = flow_id
        self.header = header
        self.now = now
        self.overlay = Overlay(flow, reader, header.next_message, known)
        self.history: list[HistoryRow] = []
        self.forgotten_history: list[int] = []
        self.cancelled: list[tuple[int, int]] = []
        self.claimed: list[ClaimedAttempt] = []
        self.bodies: dict[int, StepBody] = {}
        self.stale_bodies: dict[int, bool] = {}
        self._reader = reader
        self._stored_bodies: dict[int, StepBody] = {}
        self._work: list[int] = []
        self._executions = 0
        self._channel_waiters: dict[tuple[str, str], set[int]] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the execution goes on."""
        return self.header.status == "open"

    # Step executions

    def put(self, step: OpenStep) -> OpenStep:
        """Replace one open Step in the header."""
        self.overlay.record(self.header.steps, step.id, step)
        return step

    def drop(self, step: OpenStep) -> None:
        """Remove one Step from the header, with its body row."""
        self.overlay.remove(self.header.steps, step.id)
        if step.has_body:
            self.overlay.record(self.stale_bodies, step.id, True)
        if step.id in self.bodies:
            self.overlay.remove(self.bodies, step.id)

    def body(self, step: OpenStep) -> StepBody:
        """What the Step carries."""
        if self.bodies:
            own = self.bodies.get(step.id)
            if own is not None:
                return own
        if not step.has_body:
            return _NO_INPUT
        known = self.overlay.known
        stored = known.bodies.get(step.id) or self._stored_bodies.get(step.id)
        if stored is None:
            data = self._reader.step_body(step.id)
            stored = _NO_INPUT if data is None else decode(StepBody, data)
            self._stored_bodies[step.id] = stored
            known.add_body(step.id, stored, 0 if data is None else len(data))
        return stored

    def put_body(self, step_id: int, body: StepBody) -> None:
        """Replace what the Step carries."""
        self.overlay.record(self.bodies, step_id, body)

    def options(self, step: OpenStep) -> StepOptions:
        """The Step type's options, or those its movement gave."""
        if step.options is not None:
            return step.options
        definition = self.flow.steps.get(step.type)
        return _NO_OPTIONS if definition is None else definition.options

    def input(self, step: OpenStep) -> Any:
        """The decoded input."""
        return decode(self.flow.step(step.type).input_type, self.body(step).input)

    def log(
        self, step: OpenStep, method: str, outcome: str, started_at: int | None = None, detail: str | None = None
    ) -> None:
        """Add one history row."""
        number = self.header.next_history + len(self.history)
        begun = self.now if started_at is None else started_at
        self.history.append(
            HistoryRow(number, step.id, step.type, method, step.attempt, outcome, begun, self.now, detail)
        )

    def log_failure(
        self, step: OpenStep, method: str, outcome: str, started_at: int | None = None, detail: str | None = None
    ) -> OpenStep:
        """Add a history row that a further try follows; of many, the first and the last of this Step are kept."""
        number = self.header.next_history + len(self.history)
        self.log(step, method, outcome, started_at, detail)
        rows = (*step.failure_rows, number)
        if len(rows) > FIRST_FAILURES + LAST_FAILURES:
            self.forgotten_history.append(rows[FIRST_FAILURES])
            rows = rows[:FIRST_FAILURES] + rows[FIRST_FAILURES + 1 :]
        return replace(step, failure_rows=rows)

    def spawn(self, step_type: str, input: Any, options: StepOptions | None = None) -> int:
        """Begin one Step execution: evaluate its wait, and let `settle` wake or run it.

        Raises for an unknown Step, an input that is not of its type, and options whose failure route does not fit.
        """
        definition = self.flow.step(step_type)
        try:
            data = encode(input)
            value = decode(definition.input_type, data)
        except Exception as error:
            raise UnstorableValueError(f"the input of step {step_type!r}", definition.input_type, error) from error
        if options is not None and isinstance(definition, InlineStep):
            problem = find_inline_option_problem(options)
            if problem is not None:
                raise DefinitionError(f"step {step_type!r} {problem}")
        if options is not None and options.failure_route is not None:
            route = self.flow.step(options.failure_route)
            if route.input_type != definition.input_type:
                raise DefinitionError(
                    f"step {step_type!r} is to route failures to {options.failure_route!r}, "
                    "which takes another input type"
                )
        return self._open(step_type, data, options, None, value)

    def _open(
        self,
        step_type: str,
        data: bytes,
        options: StepOptions | None,
        recovery: RecoveryError | None,
        value: Any = _UNDECODED,
    ) -> int:
        step_id = self.header.next_step
        self.header.next_step += 1
        if data != encoded_null or recovery is not None:
            self.put_body(step_id, StepBody(Raw(data), (), recovery))
        self.register_wait(OpenStep(step_id, step_type, "ready", options=options), value)
        return step_id

    def register_wait(self, step: OpenStep, value: Any = _UNDECODED) -> None:
        """Evaluate `wait_for` and store what it waits for; when it raises, it is tried again after a backoff."""
        definition = self.flow.steps.get(step.type)
        if definition is None:
            self.hold(step, "wait_for")
            return
        try:
            if value is _UNDECODED:
                value = self.input(step)
            wait = definition.wait_for(KernelView(self.overlay, self.flow_id, self.now), value)
            conditions = stored_conditions(wait, self.overlay)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.back_off(step, "wait_for", error)
            return
        if step.error is not None:
            step = replace(step, failures=0, error=None)
        if conditions:
            self.put(
                replace(step, status="waiting", wait=conditions, waits_for_all=wait.mode == "all_of", phase="", due=0)
            )
            self.wake(step.id)
        else:
            self.make_ready(step)

    def make_ready(self, step: OpenStep) -> OpenStep:
        """The Step waits for nothing more; an InlineStep runs in `settle`, an ActivityStep when it is claimed."""
        start_timeout = self.options(step).start_timeout
        due = 0
        if start_timeout is not None and step.first_started_at == 0:
            due = self.now + int(start_timeout.total_seconds() * 1_000_000)
        self.wake(step.id)
        return self.put(replace(step, status="ready", phase="", due=due))

    def back_off(self, step: OpenStep, phase: Any, error: BaseException, delay: int | None = None) -> None:
        """Pure code of the Step raised: try that piece again, soon or after `delay`; say so once per error text."""
        text = error_text(error)
        failures = step.failures + 1
        if delay is None:
            delay = min(_FIRST_PURE_BACKOFF << min(failures - 1, 10), _PURE_BACKOFF_CAP)
        if step.error != text:
            method = {"wait_for": "wait_for", "begin": "before_run", "commit": "commit"}.get(phase, "execute")
            step = self.log_failure(step, method, "failed", detail=text)
        self.put(replace(step, status="backoff", phase=phase, due=self.now + delay, failures=failures, error=text))

    def activity(self, step: OpenStep) -> ActivityStep[Any, Any, Any] | None:
        """The Step's definition; None when this definition of the Flow has no such ActivityStep."""
        definition = self.flow.steps.get(step.type)
        return definition if isinstance(definition, ActivityStep) else None

    def hold(self, step: OpenStep, phase: Any, after: str = "") -> None:
        """The Flow no longer defines the Step as it was begun: keep it as it is until a definition does.

        Only this Step stands still. It looks again now and then, and goes on once a definition that knows it is back.

        Args:
            step: The Step.
            phase: Where it goes on, as after a backoff.
            after: The error of the attempt that ended last.
        """
        reason = f"flow {self.flow.flow_type!r} no longer defines the step {step.type!r} as it was begun"
        text = f"{after}; {reason}" if after else f"UndeclaredNameError: {reason}"
        if step.error is None or not step.error.endswith(reason):
            step = self.log_failure(replace(step, error=text), "definition", "held", detail=text)
        self.put(replace(step, status="backoff", phase=phase, due=self.now + _HOLD))

    def cancel_steps(self, types: tuple[str, ...], ids: tuple[int, ...], except_id: int) -> int:
        """Cancel open executions by type or ID; their later outcomes are discarded."""
        for name in types:
            if all(step.type != name for step in self.header.steps.values()):
                self.flow.step(name)
        chosen = [
            step
            for step_id, step in sorted(self.header.steps.items())
            if step_id != except_id and (step.type in types or step_id in ids)
        ]
        for step in chosen:
            if step.status in ("running", "claimed"):
                attempt = step.attempt if step.status == "running" else step.attempt + 1
                self.cancelled.append((step.id, attempt))
            if step.status == "running":
                self.log(step, "run", "cancelled", step.started_at)
            self.drop(step)
        return len(chosen)

    # Pure code

    def run_pure(self, step: OpenStep, code: Callable[[KernelTransaction], None]) -> BaseException | None:
        """Run one piece of a Step's pure code; an exception undoes its writes and is returned.

        A KeyboardInterrupt is somebody's wish and no error of the code: it ends the command.
        """
        mark = self._mark()
        try:
            body = self.body(step)
            result = wait_result(step, body, self.overlay)
            code(KernelTransaction(self, step.id, step.attempt, result, body.recovery))
            self.overlay.encode_written()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # A SystemExit too: raised again and again out of every command, it would stop the whole Flow.
            self._roll_back(mark)
            return error
        return None

    def _mark(self) -> _Mark:
        header = self.header
        return (
            self.overlay.mark(),
            len(self.history),
            len(self.cancelled),
            len(self.claimed),
            header.status,
            header.result,
            header.failure,
            header.next_step,
        )

    def _roll_back(self, mark: _Mark) -> None:
        overlay, history, cancelled, claimed, status, result, failure, next_step = mark
        self.overlay.roll_back(overlay)
        del self.history[history:]
        del self.cancelled[cancelled:]
        del self.claimed[claimed:]
        header = self.header
        header.status, header.result, header.failure, header.next_step = status, result, failure, next_step

    def apply_decision(self, decision: Decision | Any, own: OpenStep | None) -> None:
        """End `own` and do what the decision says."""
        if not isinstance(decision, Decision):
            where = own.type if own is not None else "an RPC"
            raise TypeError(f"{where} must return a Decision, not {decision!r}")
        if own is not None:
            allowed = self.flow.step(own.type).next_steps
            if allowed is not None:
                for movement in decision.movements:
                    if movement.step_type not in allowed:
                        raise UndeclaredNameError(
                            f"step {own.type!r} moved to {movement.step_type!r}, which its next_steps do not name"
                        )
            self.drop(own)
        if decision.cancelled_step_types or decision.cancelled_step_ids:
            self.cancel_steps(decision.cancelled_step_types, decision.cancelled_step_ids, 0)
        for movement in decision.movements:
            self.spawn(movement.step_type, movement.input, movement.options)
        if decision.kind == "complete":
            result = Raw(encode(decision.result))
            self.close("completed")
            self.header.result = result
        elif decision.kind == "fail":
            self.close("failed", decision.reason)

    def close(self, status: Any, failure: str | None = None) -> None:
        """Cancel every Step and end the execution; `failure` says why when it did not complete."""
        self.cancel_steps((), tuple(self.header.steps), 0)
        self.header.status = status
        self.header.failure = None if failure is None else storable_text(failure)

    # Settling

    def wake(self, step_id: int) -> None:
        """Look at the Step in the next `settle`. Doing so in vain is harmless, so nothing undoes it."""
        heapq.heappush(self._work, step_id)

    def settle(self) -> None:
        """Wake satisfied waits and run InlineSteps, lowest Step ID first, until nothing moves."""
        header, work = self.header, self._work
        steps = header.steps
        touched = self.overlay.touched
        while header.status == "open":
            if touched:
                self._wake_touched()
            if not work:
                return
            step = steps.get(heapq.heappop(work))
            if step is None:
                continue
            if step.status == "waiting":
                woken = self._try_wake(step)
                if woken is None:
                    self._watch(step.id, step.wait)
                    continue
                step = woken
            if step.status == "ready":
                definition = self.flow.steps.get(step.type)
                if isinstance(definition, InlineStep):
                    self._execute_inline(step, definition)
                elif definition is None:
                    self.hold(step, "attempt")

    def _watch(self, step_id: int, conditions: tuple[StoredCondition, ...]) -> None:
        if self._channel_waiters is not None:
            for condition in conditions:
                if condition.channel:
                    self._channel_waiters.setdefault((condition.channel, condition.key), set()).add(step_id)

    def _wake_touched(self) -> None:
        waiters = self._channel_waiters
        if waiters is None:
            waiters = self._channel_waiters = {}
            for step in self.header.steps.values():
                if step.status == "waiting":
                    self._watch(step.id, step.wait)
        for slot in self.overlay.touched:
            # Who goes on waiting registers again; the others need not be asked at the next message.
            for step_id in waiters.pop(slot, ()):
                self.wake(step_id)
        self.overlay.touched.clear()

    def _try_wake(self, step: OpenStep) -> OpenStep | None:
        satisfied = consume_satisfied(step, self.overlay, self.now)
        if satisfied is None:
            return None
        index, groups = satisfied
        if any(groups):
            self.put_body(step.id, replace(self.body(step), consumed=groups))
        return self.make_ready(replace(step, satisfied=index))

    def may_execute(self) -> bool:
        """Count one piece of code that may lead to more of it; False once this command has run its share."""
        self._executions += 1
        return self._executions <= MAX_INLINE_EXECUTIONS

    def _execute_inline(self, step: OpenStep, definition: InlineStep[Any]) -> None:
        if not self.may_execute():
            self.put(replace(step, status="backoff", phase="execute", due=self.now))
            return
        retry = self.options(step).retry
        if step.first_started_at and is_past_window(retry, step, self.now):
            error_type, _, message = (step.error or "").partition(": ")
            self.fail_step(step, error_type, message)
            return
        step = replace(step, attempt=step.attempt + 1, first_started_at=step.first_started_at or self.now)

        def execute(tx: KernelTransaction) -> None:
            decision = definition.execute(tx, self.input(step))
            self.apply_decision(decision, step)

        error = self.run_pure(step, execute)
        if error is None:
            self.log(step, "execute", "succeeded")
            return
        delay = backoff_after(retry, step.attempt)
        if (retry.attempts is not None and step.attempt >= retry.attempts) or is_past_window(
            retry, step, self.now + delay
        ):
            self.log(step, "execute", "failed", detail=error_text(error))
            self.fail_step(step, *describe_exception(error))
        else:
            self.back_off(step, "execute", error, delay)

    def fail_step(self, step: OpenStep, error_type: str, message: str) -> None:
        """No attempt is left: hand the input to the failure route, or fail the Flow."""
        body = self.body(step)
        route = self.options(step).failure_route
        self.drop(step)
        if route is None:
            self.close("failed", f"step {step.type} failed: {error_type}: {message}")
            return
        is_inline = isinstance(self.flow.steps.get(step.type), InlineStep)
        recovery = RecoveryError(
            error_type=error_type,
            message=message,
            attempt_progress=_progress(step.first_started_at > 0 or is_inline),
            attempts=step.attempt,
            step_type=step.type,
            step_execution_id=step.id,
        )
        self._open(route, bytes(body.input), None, recovery)


def _progress(has_started: bool) -> AttemptProgress:
    return AttemptProgress.NOT_COMPLETED if has_started else AttemptProgress.NOT_STARTED
