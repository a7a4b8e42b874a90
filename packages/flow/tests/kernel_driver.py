"""Drives one Flow execution on the kernel and an in-memory store, and checks the stored rows after every command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from dex_flow import (
    ActivityStep,
    AttemptFailure,
    Attribute,
    AttributeMap,
    Channel,
    ChannelMap,
    Decision,
    Flow,
    InlineStep,
    Proceed,
    RecoveryError,
    Retry,
    Rpc,
    RpcResult,
    Step,
    StepOptions,
    Stream,
    Wait,
    dead_end,
    go_to_many,
    move,
)
from dex_flow.kernel import (
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    Changes,
    ClaimedAttempt,
    ClaimReady,
    Command,
    CommandResult,
    FireTimers,
    FlowHeader,
    InvokeRpc,
    Kernel,
    OpenStep,
    StartFlow,
    StepBody,
    decode_header,
)
from dex_flow.testing import MemoryStore

SECOND = 1_000_000
BEGIN = 1_750_000_000 * SECOND

LOG = Attribute[list[str]]("log", list[str])
COUNT = Attribute[int]("count", int)
TEXT = Attribute[str]("text", str)
NUMBERS = AttributeMap[int]("numbers", int)
A = Channel[str]("a", str)
B = Channel[str]("b", str)
KEYED = ChannelMap[str]("keyed", str)
EVENTS = Stream[str]("events", str)
DECLARATIONS = (LOG, COUNT, TEXT, NUMBERS, A, B, KEYED, EVENTS)

Value = TypeVar("Value")


def note(tx: Any, text: str) -> None:
    """Append to the log attribute."""
    tx.set(LOG, [*(tx.get(LOG) or []), text])


def end_with(text: str) -> Callable[[Any, Any], Decision]:
    """Code of a Step that notes `text` and ends."""

    def execute(tx: Any, input: Any) -> Decision:
        note(tx, text)
        return dead_end()

    return execute


class ScriptedInline(InlineStep[Any]):
    """An InlineStep made of functions."""

    on_wait: Callable[[Any, Any], Wait]
    on_execute: Callable[[Any, Any], Decision]

    def wait_for(self, view: Any, input: Any) -> Wait:
        return self.on_wait(view, input)

    def execute(self, tx: Any, input: Any) -> Decision:
        return self.on_execute(tx, input)


class ScriptedActivity(ActivityStep[Any, Any, Any]):
    """An ActivityStep made of functions."""

    on_wait: Callable[[Any, Any], Wait]
    on_begin: Callable[[Any, Any], Proceed | Decision]
    on_load: Callable[[Any, Any], Any]
    on_commit: Callable[[Any, Any, Any], Decision]
    on_failed_attempt: Callable[[Any, Any, AttemptFailure], None]

    def wait_for(self, view: Any, input: Any) -> Wait:
        return self.on_wait(view, input)

    def before_run(self, tx: Any, input: Any) -> Proceed | Decision:
        return self.on_begin(tx, input)

    def load(self, view: Any, input: Any) -> Any:
        return self.on_load(view, input)

    async def run(self, activity: Any, snapshot: Any) -> Any:
        raise AssertionError("the kernel never calls run")

    def commit(self, tx: Any, input: Any, outcome: Any) -> Decision:
        return self.on_commit(tx, input, outcome)

    def on_attempt_failed(self, tx: Any, input: Any, failure: AttemptFailure) -> None:
        self.on_failed_attempt(tx, input, failure)


def inline(
    step_type: str,
    execute: Callable[[Any, Any], Decision] | None = None,
    *,
    wait: Callable[[Any, Any], Wait] = lambda view, input: Wait.nothing,
    input_type: Any = Any,
    options: StepOptions = StepOptions(),  # noqa: B008 - frozen
    next_steps: tuple[str, ...] | None = None,
) -> InlineStep[Any]:
    """An InlineStep that notes its type and ends, unless told otherwise."""
    members = {"step_type": step_type, "options": options, "next_steps": next_steps}
    step: Any = type(step_type, (ScriptedInline,), members)()
    step.input_type = input_type
    step.on_wait = wait
    step.on_execute = execute or end_with(step_type)
    return step  # type: ignore[no-any-return]


def activity(
    step_type: str,
    commit: Callable[[Any, Any, Any], Decision] | None = None,
    *,
    wait: Callable[[Any, Any], Wait] = lambda view, input: Wait.nothing,
    before_run: Callable[[Any, Any], Proceed | Decision] = lambda tx, input: Proceed(),
    load: Callable[[Any, Any], Any] = lambda view, input: input,
    on_attempt_failed: Callable[[Any, Any, AttemptFailure], None] = lambda tx, input, failure: None,
    input_type: Any = Any,
    outcome_type: Any = Any,
    options: StepOptions = StepOptions(),  # noqa: B008 - frozen
    next_steps: tuple[str, ...] | None = None,
) -> ActivityStep[Any, Any, Any]:
    """An ActivityStep whose commit notes its type and the outcome and ends, unless told otherwise."""

    def note_outcome(tx: Any, input: Any, outcome: Any) -> Decision:
        note(tx, f"{step_type}={outcome}")
        return dead_end()

    members = {"step_type": step_type, "options": options, "next_steps": next_steps}
    step: Any = type(step_type, (ScriptedActivity,), members)()
    step.input_type, step.outcome_type = input_type, outcome_type
    step.on_wait = wait
    step.on_begin = before_run
    step.on_load = load
    step.on_commit = commit or note_outcome
    step.on_failed_attempt = on_attempt_failed
    return step  # type: ignore[no-any-return]


def spread(*step_types: str) -> InlineStep[Any]:
    """A Step that begins others at once."""
    return inline("Start", lambda tx, _: go_to_many(*(move(step_type) for step_type in step_types)))


def note_recovery(tx: Any, input: Any) -> Decision:
    """Code of a failure route that notes why it was taken."""
    error: RecoveryError = tx.recovery_error
    note(tx, f"{input}: {error.error_type}: {error.message} ({error.attempt_progress}, {error.attempts})")
    return dead_end()


def attempts(count: int | None, **retry: Any) -> StepOptions:
    """Options that route the failure of the last attempt to the Step `Failed`."""
    return StepOptions(retry=Retry(attempts=count, **retry), failure_route="Failed")


def failing(options: StepOptions, **step: Any) -> Driver:
    """A started Flow whose Step `Work` routes its failure to a Step that notes it."""
    driver = Driver(activity("Work", options=options, **step), inline("Failed", note_recovery))
    return driver.start("order 7")


class Driver:
    """One execution of a Flow made of `steps`, the first of which starts it."""

    def __init__(self, *steps: Step[Any], rpcs: Sequence[Rpc[Any, Any]] = (), slots: int = 0) -> None:
        self.flow = Flow("Test", steps=steps, start_step=steps[0].step_type, declarations=DECLARATIONS, rpcs=rpcs)
        self.kernel = Kernel(self.flow)
        self.store = MemoryStore()
        self.now = BEGIN
        self.slots = slots

    # Commands

    def apply(self, command: Command, *, after: float = 0.001, slots: int | None = None) -> CommandResult:
        """Apply a command `after` seconds, store its changes and check the rows."""
        self.now += round(after * SECOND)
        claim_slots = self.slots if slots is None else slots
        result = self.kernel.apply(self.store, "flow", self.now, command, claim_slots=claim_slots)
        if result.changes is not None:
            self.store.apply(result.changes)
            check_rows(self.store, result.changes)
        return result

    def start(self, input: Any = None, *, request_id: str | None = None) -> Driver:
        """Start the execution."""
        self.apply(StartFlow(msgspec.json.encode(input), request_id))
        return self

    def call(self, code: Callable[[Any], Any], *, request_id: str | None = None, after: float = 0.001) -> Any:
        """Run `code` as the handler of a mutating RPC, and return what it returned: an output is plain JSON values."""
        returned: list[Any] = []

        def handle(tx: Any, input: Any) -> Any:
            returned.append(code(tx))
            return returned[0]

        self.flow.rpcs["call"] = Rpc("call", handle, Any, Any)
        output = self.apply(InvokeRpc("call", b"null", request_id), after=after).output
        return returned[0] if returned and not isinstance(returned[0], RpcResult) else output

    def send(self, *values: str, to: Channel[str] = A) -> None:
        """Publish values in one RPC."""
        self.call(lambda tx: [tx.publish(to, value) for value in values])

    def advance(self, seconds: float, *, slots: int | None = None) -> CommandResult:
        """Let time pass and fire what is due."""
        return self.apply(FireTimers(), after=seconds, slots=slots)

    def claim(self, slots: int = 1) -> ClaimedAttempt:
        """Claim one ready attempt."""
        (claim,) = self.claims(slots)
        return claim

    def claims(self, slots: int = 10) -> list[ClaimedAttempt]:
        """Claim what is ready."""
        changes = self.apply(ClaimReady(), slots=slots).changes
        return [] if changes is None else changes.claimed

    def mark_started(self, claim: ClaimedAttempt) -> ClaimedAttempt:
        """Store the started marker of a single-attempt Step."""
        changes = self.apply(AttemptStarted(claim.step_execution_id, claim.attempt)).changes
        assert changes is not None
        (started,) = changes.claimed
        return started

    def succeed(self, claim: ClaimedAttempt, outcome: Any = None) -> Changes:
        """Report that `run` returned."""
        changes = self.apply(AttemptSucceeded(claim.step_execution_id, claim.attempt, outcome)).changes
        assert changes is not None
        return changes

    def fail(self, claim: ClaimedAttempt, *, after: float = 0.001, **failure: Any) -> Changes:
        """Report that `run` raised."""
        known = AttemptFailure(**{"error_type": "OSError", "message": "unreachable"} | failure)
        changes = self.apply(AttemptFailed(claim.step_execution_id, claim.attempt, known), after=after).changes
        assert changes is not None
        return changes

    # State

    @property
    def header(self) -> FlowHeader:
        """The stored header."""
        data = self.store.header_data
        assert data is not None
        return decode_header(data)

    def step(self, step_type: str) -> OpenStep:
        """The only open execution of a Step type."""
        (step,) = [step for step in self.header.steps.values() if step.type == step_type]
        return step

    @property
    def open_types(self) -> list[str]:
        """Types of the open executions, by ascending ID."""
        return [step.type for _, step in sorted(self.header.steps.items())]

    @property
    def log(self) -> list[str]:
        """What Steps noted."""
        return self.get(LOG) or []

    def get(self, attribute: Attribute[Value]) -> Value | None:
        """A stored attribute."""
        return self.kernel.view(self.store, "flow", self.now, lambda view: view.get(attribute))

    def waiting_messages(self, channel: Channel[str] | ChannelMap[str], key: str = "") -> list[str]:
        """The stored messages of one queue, oldest first."""
        return [msgspec.json.decode(data, type=str) for _, data in self.store.messages(channel.name, key, None)]

    @property
    def history(self) -> list[tuple[str, str, int, str]]:
        """(Step type, method, attempt, outcome) of every history row."""
        return [(row.step_type, row.method, row.attempt, row.outcome) for row in self.store.history]


def check_rows(store: MemoryStore, changes: Changes) -> None:
    """What must hold after every command, found by a full scan."""
    assert store.header_data is not None
    header = decode_header(store.header_data)
    steps = header.steps.values()
    assert changes.status == header.status
    assert header.status == "open" or not header.steps
    assert set(store.bodies) == {step.id for step in steps if step.has_body}
    dues = [
        condition.due
        for step in steps
        if step.status == "waiting"
        for condition in step.wait
        if condition.due > header.now
    ]
    dues += [step.due for step in steps if step.status in ("backoff", "ready") and step.due]
    assert changes.next_due == min(dues, default=None)
    # Nothing that is due is left behind, except an InlineStep over the limit of one command.
    assert all(step.due > header.now for step in steps if step.status == "backoff" and step.phase != "execute")
    assert changes.has_ready == any(step.status == "ready" for step in steps)
    assert changes.active_steps == sum(step.status in ("claimed", "running") for step in steps)
    assert all(step.status in ("claimed", "running") for step in steps if step.id in _claimed_ids(changes))
    numbers = [row.number for row in store.history]
    assert numbers == sorted(set(numbers))
    assert header.next_history == max(numbers, default=0) + 1
    failures = Counter(row.step_execution_id for row in store.history if row.outcome in ("failed", "lost"))
    # Only failures of a Step that was tried very often are dropped.
    assert len(numbers) == header.next_history - 1 or max(failures.values()) >= 20
    for step in steps:
        assert set(step.failure_rows) <= set(numbers)
        assert len(step.failure_rows) <= 20
    for body in store.bodies.values():
        msgspec.json.decode(body, type=StepBody)


def _claimed_ids(changes: Changes) -> set[int]:
    return {claim.step_execution_id for claim in changes.claimed}
