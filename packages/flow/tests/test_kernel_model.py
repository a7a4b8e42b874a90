"""The kernel against a naive model, on random histories; and against itself, for determinism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from dex_flow import (
    AttemptFailure,
    FlowClosedError,
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
    KnownState,
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
    ClosedError,
    DiscardedError,
    Model,
    Plan,
)
from .kernel_modelled_flow import (
    CHANNELS,
    PIECES,
    any_plan,
    build_flow,
    channel_names,
    errors,
    free_slots,
    pieces,
    some_channels,
    some_types,
    step_types,
)

#: What a history is made of; a kind that is listed twice comes twice as often.
KINDS = (
    *("begin", "begin", "begin", "send", "send", "claim", "claim", "let_time_pass", "let_time_pass"),
    *("mark_started", "mark_started", "succeed", "succeed", "succeed", "fail", "fail", "fail", "lose_the_worker"),
    *("receive", "delete", "cancel", "send_once", "set_the_clock_back", "save_checkpoint", "skip_timer", "stop"),
    *("break_a_piece", "repair_everything", "repair_everything", "pass_trouble", "pass_trouble"),
)
Draw = Callable[[st.SearchStrategy[Any]], Any]


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
        self.known: KnownState = KnownState()

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
        known: KnownState | None = None,
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

    @rule(kind=st.sampled_from(KINDS), data=st.data())
    def command(self, kind: str, data: st.DataObject) -> None:
        """One command. A single weighted rule, so that histories come far enough to be interesting."""
        getattr(self, kind)(data.draw)

    def named(self, plan: Plan) -> Plan:
        self.names += 1
        name = f"p{self.names}"
        then = tuple((step_type, self.named(following)) for step_type, following in plan.then)
        return msgspec.structs.replace(plan, name=name, then=then)

    def begin(self, draw: Draw) -> None:
        step_type, plan = draw(step_types), self.named(draw(any_plan))
        self.invoke("begin", (step_type, plan), lambda model: model.begin_step(step_type, plan).id, draw(free_slots))

    def send(self, draw: Draw) -> None:
        channels = draw(some_channels)
        messages = [(channel, f"m{self.sent + number}") for number, channel in enumerate(channels)]
        self.sent += len(channels)
        self.invoke("send", messages, lambda model: [model.publish(*message) for message in messages], draw(free_slots))

    def receive(self, draw: Draw) -> None:
        channel, count = draw(channel_names), draw(st.integers(0, 2))

        def modelled(model: Model) -> list[str]:
            queue = model.queues[channel]
            return [queue.pop(0)[1] for _ in range(count)] if len(queue) >= count else []

        self.invoke("receive", (channel, count), modelled)

    def delete(self, draw: Draw) -> None:
        channel = draw(channel_names)
        waiting = [message_id for message_id, _ in self.model.queues[channel]]
        message_id = draw(st.sampled_from([*waiting, 1, 2]))

        def modelled(model: Model) -> bool:
            kept = [message for message in model.queues[channel] if message[0] != message_id]
            is_there = len(kept) < len(model.queues[channel])
            model.queues[channel] = kept
            return is_there

        self.invoke("delete", (channel, message_id), modelled)

    def cancel(self, draw: Draw) -> None:
        types = draw(some_types)
        self.invoke("cancel", types, lambda model: model.cancel(tuple(types)))

    def send_once(self, draw: Draw) -> None:
        """The first call with a request ID is applied, a repeated one is answered."""
        request_id = draw(st.sampled_from(["r1", "r2", "r3"]))
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

    def let_time_pass(self, draw: Draw) -> None:
        self.now += round(draw(st.sampled_from([0.05, 0.1, 0.4, 1, 1.5, 5, 19, 31, 100])) * SECOND)
        if draw(st.booleans()):
            self.fire_timers(draw)

    def fire_timers(self, draw: Draw) -> None:
        self.apply(FireTimers(), self.if_open(lambda model: None, False), draw(free_slots))
        assert self.store.next_due is None or self.store.next_due > self.now, "the scheduler would never rest"

    def set_the_clock_back(self, draw: Draw) -> None:
        self.now -= round(draw(st.sampled_from([0.1, 1, 30])) * SECOND)

    def claim(self, draw: Draw) -> None:
        self.apply(ClaimReady(), self.if_open(lambda model: None, False), draw(st.integers(1, 3)))

    def attempt(self, draw: Draw, status: str) -> tuple[int, int] | None:
        """An attempt in this state, or one that was claimed some time ago."""
        began = 1 if status == "claimed" else 0
        current = [(step.id, step.attempt + began) for step in self.model.steps if step.status == status]
        choices = current * 3 + self.claims[-3:]
        return draw(st.sampled_from(choices)) if choices else None

    def mark_started(self, draw: Draw) -> None:
        if attempt := self.attempt(draw, "claimed"):
            modelled = self.if_open(lambda model: model.started(*attempt), DiscardedError)
            self.apply(AttemptStarted(*attempt), modelled, draw(free_slots))

    def succeed(self, draw: Draw) -> None:
        if attempt := self.attempt(draw, "running"):
            outcome = f"out{len(self.trace)}"
            modelled = self.if_open(lambda model: model.succeeded(*attempt, outcome), DiscardedError)
            self.apply(AttemptSucceeded(*attempt, outcome), modelled, draw(free_slots))

    def fail(self, draw: Draw) -> None:
        if attempt := self.attempt(draw, "running"):
            is_retryable = draw(st.sampled_from([True, True, True, False]))
            retry_after = draw(st.sampled_from([0, 0, 0, 10, 21]))
            failure = AttemptFailure(
                error_type="OSError", message="m", is_retryable=is_retryable, retry_after_seconds=retry_after or None
            )
            modelled = self.if_open(
                lambda model: model.failed(*attempt, is_retryable, retry_after * SECOND), DiscardedError
            )
            self.apply(AttemptFailed(*attempt, failure), modelled, draw(free_slots))

    def lose_the_worker(self, draw: Draw) -> None:
        self.apply(AttemptsLost(), self.if_open(lambda model: model.lost(), False), draw(free_slots))

    def save_checkpoint(self, draw: Draw) -> None:
        if attempt := self.attempt(draw, "running"):

            def modelled(model: Model) -> None:
                model.find(attempt[0], "running", attempt[1])

            self.apply(SaveCheckpoint(*attempt, "page"), self.if_open(modelled, DiscardedError))

    def skip_timer(self, draw: Draw) -> None:
        step_id = draw(st.sampled_from([1, *(step.id for step in self.model.steps)]))
        self.apply(SkipTimer(step_id), self.if_open(lambda model: model.skip_timer(step_id), False))

    def stop(self, draw: Draw) -> None:
        def modelled(model: Model) -> bool:
            model.stop()
            return True

        if len(self.trace) > 40:
            self.apply(StopFlow("enough"), self.if_open(modelled, False))

    def break_a_piece(self, draw: Draw) -> None:
        if self.may_break:
            self.break_piece(draw(pieces), draw)

    def break_piece(self, piece: str, draw: Draw) -> None:
        self.broken[piece] = "RuntimeError" if piece == "wait_for" else draw(errors)

    def pass_trouble(self, draw: Draw) -> None:
        """A piece fails in one command and is in order again when it is retried."""
        if self.may_break:
            piece = draw(pieces)
            self.break_piece(piece, draw)
            getattr(self, PIECES[piece])(draw)
            self.broken.clear()
        self.now += 5 * SECOND
        self.fire_timers(draw)

    def repair_everything(self, draw: Draw) -> None:
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
            max_examples=120,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
