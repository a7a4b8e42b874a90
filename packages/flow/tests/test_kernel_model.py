"""The kernel against a naive model, on random histories; and against itself, for determinism."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dex_flow import (
    ActivityStep,
    AttemptFailure,
    Attribute,
    Channel,
    Decision,
    Flow,
    FlowClosedError,
    InlineStep,
    Proceed,
    Retry,
    Rpc,
    StepOptions,
    Stream,
    Timer,
    Wait,
    complete,
    dead_end,
    go_to_many,
    move,
)
from dex_flow.kernel import (
    AttemptDiscardedError,
    AttemptFailed,
    AttemptsLost,
    AttemptStarted,
    AttemptSucceeded,
    ClaimReady,
    Command,
    FireTimers,
    InvokeRpc,
    Kernel,
    SaveCheckpoint,
    SkipTimer,
    StartFlow,
    StopFlow,
    decode_header,
)
from dex_flow.testing import MemoryStore

from .kernel_driver import BEGIN, check_rows
from .kernel_model import (
    SECOND,
    START_TIMEOUT,
    WINDOW,
    WORK_ATTEMPTS,
    WORK_BACKOFF,
    WORK_BACKOFF_CAP,
    ClosedError,
    DiscardedError,
    Model,
    Plan,
)

LOG = Attribute[list[str]]("log", list[str])
SCRAP = Attribute[str]("scrap", str)
EVENTS = Stream[str]("events", str)
CHANNELS = {"a": Channel[str]("a", str), "b": Channel[str]("b", str)}
PIECES = ("wait_for", "before_run", "execute", "commit", "on_attempt_failed")
ACTIVITIES = ("Work", "Once")


def duration(value: int) -> timedelta:
    return timedelta(microseconds=value)


def build_flow(broken: dict[str, str]) -> Flow:
    """The Flow that the model models; a piece of pure code fails as long as `broken` names it."""

    def check(piece: str, tx: Any) -> None:
        if broken.get(piece) == "RuntimeError":
            raise RuntimeError(piece)
        if piece in broken:
            # Found out only when everything the piece decided has been applied.
            tx.set(SCRAP, "\ud800")

    def check_wait() -> None:
        if "wait_for" in broken:
            raise RuntimeError("wait_for")

    def wait_for(view: Any, plan: Plan) -> Wait:
        check_wait()
        conditions = [
            Timer(view.now + timedelta(seconds=count)) if channel == "timer" else CHANNELS[channel].receive(count)
            for channel, count in plan.conditions
        ]
        return Wait.all_of(*conditions) if plan.mode == "all_of" or not conditions else Wait.any_of(*conditions)

    def note(tx: Any, text: str) -> None:
        tx.set(LOG, [*(tx.get(LOG) or []), text])
        tx.emit(EVENTS, text)

    def finish(tx: Any, plan: Plan, text: str) -> Decision:
        note(tx, text)
        for channel in plan.publishes:
            tx.publish(CHANNELS[channel], f"{plan.name}>{channel}")
        movements = [move(step_type, following) for step_type, following in plan.then]
        return (complete() if plan.closes else go_to_many(*movements)).cancelling(*plan.cancels)

    def taken(tx: Any) -> list[list[str]]:
        return [list(group) for group in tx.wait_result.messages]

    class Start(InlineStep[None]):
        def execute(self, tx: Any, input: None) -> Decision:
            return dead_end()

    class Inline(InlineStep[Plan]):
        def wait_for(self, view: Any, input: Plan) -> Wait:
            return wait_for(view, input)

        def execute(self, tx: Any, input: Plan) -> Decision:
            decision = finish(tx, input, f"{input.name} {tx.wait_result.index} {taken(tx)}")
            check("execute", tx)
            return decision

    class Route(InlineStep[Plan]):
        def wait_for(self, view: Any, input: Plan) -> Wait:
            check_wait()
            return Wait.nothing

        def execute(self, tx: Any, input: Plan) -> Decision:
            error = tx.recovery_error
            decision = finish(tx, input, f"{input.name} {error.error_type} {error.attempt_progress} {error.attempts}")
            check("execute", tx)
            return decision

    class Work(ActivityStep[Plan, None, str]):
        options = StepOptions(
            retry=Retry(
                attempts=WORK_ATTEMPTS,
                window=duration(WINDOW),
                backoff=duration(WORK_BACKOFF),
                backoff_cap=duration(WORK_BACKOFF_CAP),
            ),
            failure_route="Route",
        )

        def wait_for(self, view: Any, input: Plan) -> Wait:
            return wait_for(view, input)

        def before_run(self, tx: Any, input: Plan) -> Proceed | Decision:
            if input.skips:
                decision = finish(tx, input, f"{input.name} skipped")
                check("before_run", tx)
                return decision
            note(tx, f"{input.name} begins {tx.attempt}")
            check("before_run", tx)
            return Proceed()

        def commit(self, tx: Any, input: Plan, outcome: str) -> Decision:
            decision = finish(tx, input, f"{input.name} committed {outcome} {taken(tx)}")
            check("commit", tx)
            return decision

        def on_attempt_failed(self, tx: Any, input: Plan, failure: AttemptFailure) -> None:
            note(tx, f"{input.name} failed {failure.attempt}")
            check("on_attempt_failed", tx)

    class Once(Work):
        options = StepOptions(retry=Retry(attempts=1), failure_route="Route", start_timeout=duration(START_TIMEOUT))

    def begin(tx: Any, step: tuple[str, Plan]) -> int:
        return tx.start_step(*step)  # type: ignore[no-any-return]

    def send(tx: Any, messages: list[tuple[str, str]]) -> list[int]:
        return [tx.publish(CHANNELS[channel], text) for channel, text in messages]

    def receive(tx: Any, wanted: tuple[str, int]) -> list[str]:
        return tx.receive(CHANNELS[wanted[0]], wanted[1])  # type: ignore[no-any-return]

    def delete(tx: Any, message: tuple[str, int]) -> bool:
        return tx.delete_message(CHANNELS[message[0]], message[1])  # type: ignore[no-any-return]

    def cancel(tx: Any, types: tuple[str, ...]) -> int:
        return tx.cancel_steps(*types)  # type: ignore[no-any-return]

    return Flow(
        "Modelled",
        steps=[Start(), Inline(), Route(), Work(), Once()],
        start_step=Start,
        declarations=[LOG, SCRAP, EVENTS, *CHANNELS.values()],
        rpcs=[
            Rpc("begin", begin, tuple[str, Plan], int),
            Rpc("send", send, list[tuple[str, str]], list[int]),
            Rpc("receive", receive, tuple[str, int], list[str]),
            Rpc("delete", delete, tuple[str, int], bool),
            Rpc("cancel", cancel, tuple[str, ...], int),
        ],
    )


step_types = st.sampled_from(["Inline", "Inline", "Work", "Once"])
conditions = st.one_of(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0, 1, 1, 1, 2, 3])),
    st.tuples(st.just("timer"), st.sampled_from([0, 1, 5, 60])),
)


def plans(depth: int) -> st.SearchStrategy[Plan]:
    following = st.just(()) if depth == 0 else st.lists(st.tuples(step_types, plans(depth - 1)), max_size=2).map(tuple)
    return st.builds(
        Plan,
        name=st.just(""),
        mode=st.sampled_from(["any_of", "all_of"]),
        conditions=st.lists(conditions, max_size=3).map(tuple),
        publishes=st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
        cancels=st.lists(st.sampled_from(["Inline", "Work", "Once", "Route"]), max_size=1).map(tuple),
        then=following,
        skips=st.sampled_from([False, False, False, True]),
        closes=st.sampled_from([False] * 30 + [True]),
    )


class KernelHistory(RuleBasedStateMachine):
    """Applies every command to the kernel and to the model, and compares all that can be seen."""

    may_break = True

    def __init__(self) -> None:
        super().__init__()
        self.broken: dict[str, str] = {}
        self.kernel = Kernel(build_flow(self.broken))
        self.store = MemoryStore()
        self.model = Model(self.broken)
        self.now = BEGIN
        self.trace: list[tuple[dict[str, str], int, Command, int]] = []
        self.claims: list[tuple[int, int]] = []
        self.sent = 0
        self.names = 0
        self.requests: dict[str, tuple[bytes, Any]] = {}
        self.known: dict[tuple[str, str], Any] = {}

    # Applying a command to both

    def apply(self, command: Command, modelled: Callable[[Model], Any], slots: int = 0) -> Any:
        self.trace.append((dict(self.broken), self.now, command, slots))
        before = self.model.saved()
        self.model.broken = self.broken
        expected: Any
        try:
            self.model.begin_command(self.now)
            expected = modelled(self.model)
            self.model.end_command(slots)
        except (DiscardedError, ClosedError) as error:
            expected = type(error)
            self.model = before
        actual, changes = self.outcome(self.kernel, self.store, command, self.now, slots, self.known)
        assert actual == expected
        if changes is not None:
            self.known = changes.known
        if changes is None:
            # A command that changes nothing is not stored, and neither is its time.
            self.model.now = before.now
        if isinstance(expected, type) or changes is None:
            assert self.model.claimed == [] or isinstance(expected, type)
            return actual
        check_rows(self.store, changes)
        assert [(c.step_execution_id, c.attempt, c.is_started) for c in changes.claimed] == [
            claim for claim in self.model.claimed if claim[0] in {step.id for step in self.model.steps}
        ]
        assert sorted(changes.cancelled) == sorted(self.model.cancelled)
        self.claims += [(c.step_execution_id, c.attempt) for c in changes.claimed]
        return actual

    @staticmethod
    def outcome(
        kernel: Kernel,
        store: MemoryStore,
        command: Command,
        now: int,
        slots: int,
        known: dict[tuple[str, str], Any] | None = None,
    ) -> tuple[Any, Any]:
        """The output or the modelled error of one command, and its changes, which are stored."""
        try:
            result = kernel.apply(store, "flow", now, command, claim_slots=slots, known=known)
        except AttemptDiscardedError:
            return DiscardedError, None
        except FlowClosedError:
            return ClosedError, None
        if result.changes is not None:
            store.apply(result.changes)
        return result.output, result.changes

    def invoke(self, name: str, input: Any, modelled: Callable[[Model], Any], slots: int = 0) -> Any:
        return self.apply(InvokeRpc(name, msgspec.json.encode(input)), self.if_open(modelled, ClosedError), slots)

    @staticmethod
    def if_open(modelled: Callable[[Model], Any], closed: Any) -> Callable[[Model], Any]:
        """What the model answers: `modelled` while the Flow is open, else `closed`."""

        def answer(model: Model) -> Any:
            if model.is_open:
                return modelled(model)
            if isinstance(closed, type):
                raise closed()
            return closed

        return answer

    # Rules

    @initialize()
    def start(self) -> None:
        def modelled(model: Model) -> bool:
            model.next_step += 1
            return True

        self.apply(StartFlow(b"null"), modelled)

    def named(self, plan: Plan) -> Plan:
        self.names += 1
        name = f"p{self.names}"
        then = tuple((step_type, self.named(following)) for step_type, following in plan.then)
        return msgspec.structs.replace(plan, name=name, then=then)

    @rule(step_type=step_types, plan=plans(2), slots=st.integers(0, 2))
    def begin(self, step_type: str, plan: Plan, slots: int) -> None:
        named = self.named(plan)
        self.invoke("begin", (step_type, named), lambda model: model.begin_step(step_type, named).id, slots)

    @rule(channels=st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4), slots=st.integers(0, 2))
    def send(self, channels: list[str], slots: int) -> None:
        messages = [(channel, f"m{self.sent + number}") for number, channel in enumerate(channels)]
        self.sent += len(channels)
        self.invoke("send", messages, lambda model: [model.publish(*message) for message in messages], slots)

    @rule(channel=st.sampled_from(["a", "b"]), count=st.integers(0, 2))
    def receive(self, channel: str, count: int) -> None:
        def modelled(model: Model) -> list[str]:
            queue = model.queues[channel]
            return [queue.pop(0)[1] for _ in range(count)] if len(queue) >= count else []

        self.invoke("receive", (channel, count), modelled)

    @rule(channel=st.sampled_from(["a", "b"]), message_id=st.integers(1, 12))
    def delete(self, channel: str, message_id: int) -> None:
        def modelled(model: Model) -> bool:
            kept = [message for message in model.queues[channel] if message[0] != message_id]
            is_there = len(kept) < len(model.queues[channel])
            model.queues[channel] = kept
            return is_there

        self.invoke("delete", (channel, message_id), modelled)

    @rule(types=st.lists(st.sampled_from(["Inline", "Work", "Once", "Route"]), max_size=2, unique=True))
    def cancel(self, types: list[str]) -> None:
        self.invoke("cancel", types, lambda model: model.cancel(tuple(types)))

    @rule(request_id=st.sampled_from(["r1", "r2", "r3"]))
    def send_once(self, request_id: str) -> None:
        """The first call is applied, a repeated one is answered."""
        if request_id in self.requests:
            input, answer = self.requests[request_id]
            command = InvokeRpc("send", input, request_id)
            self.trace.append((dict(self.broken), self.now, command, 0))
            assert self.outcome(self.kernel, self.store, command, self.now, 0) == (answer, None)
            return
        message = ("a", f"once {request_id}")
        input = msgspec.json.encode([message])
        modelled = self.if_open(lambda model: [model.publish(*message)], ClosedError)
        answer = self.apply(InvokeRpc("send", input, request_id), modelled)
        if answer is not ClosedError:
            self.requests[request_id] = (input, answer)

    @rule(seconds=st.sampled_from([0.05, 0.1, 0.4, 1, 1.5, 5, 19, 31, 100]), slots=st.integers(0, 2))
    def let_time_pass(self, seconds: float, slots: int) -> None:
        self.now += round(seconds * SECOND)
        self.apply(FireTimers(), self.if_open(lambda model: None, False), slots)

    @rule(seconds=st.sampled_from([0.1, 1, 30]))
    def set_the_clock_back(self, seconds: float) -> None:
        self.now -= round(seconds * SECOND)

    @rule(slots=st.integers(1, 3))
    def claim(self, slots: int) -> None:
        self.apply(ClaimReady(), self.if_open(lambda model: None, False), slots)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def mark_started(self, data: st.DataObject) -> None:
        step_id, attempt = data.draw(st.sampled_from(self.claims))
        self.apply(
            AttemptStarted(step_id, attempt),
            self.if_open(lambda model: model.started(step_id, attempt), DiscardedError),
        )

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), slots=st.integers(0, 1))
    def succeed(self, data: st.DataObject, slots: int) -> None:
        """Any attempt ever claimed reports, so most reports are late."""
        step_id, attempt = data.draw(st.sampled_from(self.claims[-4:]))
        outcome = f"out{len(self.trace)}"
        self.apply(
            AttemptSucceeded(step_id, attempt, outcome),
            self.if_open(lambda model: model.succeeded(step_id, attempt, outcome), DiscardedError),
            slots,
        )

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(), is_retryable=st.sampled_from([True, True, True, False]), retry_after=st.sampled_from([0, 0, 10])
    )
    def fail(self, data: st.DataObject, is_retryable: bool, retry_after: int) -> None:
        step_id, attempt = data.draw(st.sampled_from(self.claims[-4:]))
        failure = AttemptFailure(
            error_type="OSError", message="m", is_retryable=is_retryable, retry_after_seconds=retry_after or None
        )
        self.apply(
            AttemptFailed(step_id, attempt, failure),
            self.if_open(
                lambda model: model.failed(step_id, attempt, is_retryable, retry_after * SECOND), DiscardedError
            ),
        )

    @precondition(lambda self: self.claims)
    @rule(slots=st.integers(0, 2))
    def lose_the_worker(self, slots: int) -> None:
        self.apply(AttemptsLost(), self.if_open(lambda model: model.lost(), False), slots)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def save_checkpoint(self, data: st.DataObject) -> None:
        step_id, attempt = data.draw(st.sampled_from(self.claims[-4:]))

        def modelled(model: Model) -> None:
            model.find(step_id, "running", attempt)

        self.apply(SaveCheckpoint(step_id, attempt, "page"), self.if_open(modelled, DiscardedError))

    @rule(step_id=st.integers(1, 20))
    def skip_timer(self, step_id: int) -> None:
        self.apply(SkipTimer(step_id), self.if_open(lambda model: model.skip_timer(step_id), False))

    @precondition(lambda self: len(self.trace) > 30)
    @rule()
    def stop(self) -> None:
        def modelled(model: Model) -> bool:
            model.stop()
            return True

        self.apply(StopFlow("enough"), self.if_open(modelled, False))

    @precondition(lambda self: self.may_break)
    @rule(piece=st.sampled_from(PIECES), error=st.sampled_from(["RuntimeError", "ValueError"]))
    def break_a_piece(self, piece: str, error: str) -> None:
        self.broken[piece] = "RuntimeError" if piece == "wait_for" else error

    @rule()
    def repair_everything(self) -> None:
        self.broken.clear()

    # What must hold

    @invariant()
    def the_kernel_agrees_with_the_model(self) -> None:
        if self.store.header_data is None:
            return
        header = decode_header(self.store.header_data)
        model = self.model
        assert (header.status == "open") == model.is_open
        assert header.next_step == model.next_step
        assert header.next_message == model.next_message
        seen = [
            (step.id, step.type, step.status, step.phase, step.attempt, step.due, step.failures)
            for _, step in sorted(header.steps.items())
        ]
        assert seen == [
            (step.id, step.type, step.status, step.phase, step.attempt, step.due, step.failures) for step in model.steps
        ]
        assert self.log == model.log
        assert [msgspec.json.decode(event) for event in self.store.events.get("events", [])] == model.log
        for channel, queue in model.queues.items():
            stored = self.store.messages(channel, "", None)
            assert [(number, msgspec.json.decode(data)) for number, data in stored] == queue
        assert self.store.next_due == model.next_due()
        assert self.store.has_ready == model.has_ready()
        assert set(self.store.bodies) == {step.id for step in model.steps}

    @property
    def log(self) -> list[str]:
        data = self.store.attributes.get(("log", ""))
        return [] if data is None else msgspec.json.decode(data)

    @invariant()
    def no_wait_sleeps_over_what_it_waits_for(self) -> None:
        """A full scan of the stored rows, without the model."""
        if self.store.header_data is None:
            return
        header = decode_header(self.store.header_data)
        for step in header.steps.values():
            if step.status != "waiting":
                continue
            holds = [
                self.store.message_count(condition.channel, "") >= condition.count
                if condition.channel
                else condition.due <= header.now
                for condition in step.wait
            ]
            wanted = {name: sum(c.count for c in step.wait if c.channel == name) for name in CHANNELS}
            is_enough = all(self.store.message_count(name, "") >= count for name, count in wanted.items())
            assert not (all(holds) and is_enough if step.waits_for_all else any(holds))

    def teardown(self) -> None:
        """The same commands at the same times give the same bytes, also without the known values of earlier ones."""
        broken: dict[str, str] = {}
        kernel, store = Kernel(build_flow(broken)), MemoryStore()
        for now_broken, now, command, slots in self.trace:
            broken.clear()
            broken.update(now_broken)
            self.outcome(kernel, store, command, now, slots)
        assert vars(store) == vars(self.store)


class SoundKernelHistory(KernelHistory):
    """Pure code never fails, so that histories come further."""

    may_break = False


@pytest.mark.parametrize("history", [KernelHistory, SoundKernelHistory])
def test_the_kernel_behaves_as_the_naive_model(history: type[KernelHistory]) -> None:
    run_state_machine_as_test(
        history,
        settings=settings(
            max_examples=90,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
