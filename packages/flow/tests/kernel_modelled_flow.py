"""The Flow that the naive model describes, and random plans for its Steps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from dex_flow import (
    ActivityStep,
    AttemptFailure,
    Attribute,
    Channel,
    Decision,
    Flow,
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

from .kernel_model import (
    START_TIMEOUT,
    WINDOW,
    WORK_ATTEMPTS,
    WORK_BACKOFF,
    WORK_BACKOFF_CAP,
    Plan,
)

LOG = Attribute[list[str]]("log", list[str])
SCRAP = Attribute[str]("scrap", str)
EVENTS = Stream[str]("events", str)
CHANNELS = {"a": Channel[str]("a", str), "b": Channel[str]("b", str)}
#: The pieces of pure code, and a command that runs each.
PIECES = {
    "wait_for": "begin",
    "before_run": "claim",
    "execute": "send",
    "commit": "succeed",
    "on_attempt_failed": "fail",
}


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

        def load(self, view: Any, input: Plan) -> None:
            raise AssertionError("the kernel test loads nothing")

        async def run(self, activity: Any, snapshot: None) -> str:
            raise AssertionError("the kernel never calls run")

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


step_types = st.sampled_from(["Inline", "Work", "Work", "Once"])
channel_names = st.sampled_from(["a", "b"])
free_slots = st.sampled_from([0, 1, 1, 2])
errors = st.sampled_from(["RuntimeError", "ValueError"])
pieces = st.sampled_from(sorted(PIECES))
conditions = st.one_of(
    st.tuples(channel_names, st.sampled_from([0, 1, 1, 1, 2, 3])),
    st.tuples(st.just("timer"), st.sampled_from([0, 1, 5, 60])),
)


def plans(depth: int) -> st.SearchStrategy[Plan]:
    following = st.just(()) if depth == 0 else st.lists(st.tuples(step_types, plans(depth - 1)), max_size=2).map(tuple)
    return st.builds(
        Plan,
        name=st.just(""),
        mode=st.sampled_from(["any_of", "all_of"]),
        conditions=st.one_of(st.just(()), st.lists(conditions, max_size=3).map(tuple)),
        publishes=st.lists(channel_names, max_size=2).map(tuple),
        cancels=st.sampled_from([(), (), (), (), ("Inline",), ("Work",), ("Once", "Route")]),
        then=following,
        skips=st.sampled_from([False, False, False, True]),
        closes=st.sampled_from([False] * 150 + [True]),
    )


any_plan = plans(2)
some_types = st.lists(st.sampled_from(["Inline", "Work", "Once", "Route"]), max_size=2, unique=True)
some_channels = st.lists(channel_names, min_size=1, max_size=4)
