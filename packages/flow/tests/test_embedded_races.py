"""Races of the embedded engine: lost wake-ups, starved executions, attempts that outlive or miss their claim."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_flow import (
    ActivityStep,
    Attribute,
    AttributeMap,
    Decision,
    Flow,
    Proceed,
    Retry,
    Rpc,
    StateView,
    StepOptions,
    Transaction,
    dead_end,
)
from dex_flow.embedded import EmbeddedEngine
from dex_flow.kernel import InvokeRpc

DEADLINE = 60.0

done = Attribute("Done", str)
notes = AttributeMap("Notes", str)


def _note(tx: Transaction, key: str) -> bool:
    tx.set_instance(notes, key, "noted")
    return True


note = Rpc("note", _note, str, bool)


class _Job(ActivityStep[None, None, str]):
    step_type = "Job"

    def __init__(
        self,
        work: Callable[[], Awaitable[str]],
        before: Callable[[], None] | None = None,
        options: StepOptions | None = None,
    ) -> None:
        self._work = work
        self._before = before
        self.options = options or StepOptions(retry=Retry(attempts=3))

    def before_run(self, tx: Transaction, input: None) -> Proceed | Decision:
        if self._before is not None:
            self._before()
        return Proceed()

    def load(self, view: StateView, input: None) -> None:
        return None

    async def run(self, activity: Any, snapshot: None) -> str:
        return await self._work()

    def commit(self, tx: Transaction, input: None, outcome: str) -> Decision:
        tx.set(done, outcome)
        return dead_end()


ONCE = StepOptions(retry=Retry(attempts=1))


def make_flow(work: Callable[[], Awaitable[str]], *, compatibility: int = 1, **arguments: Any) -> Flow:
    job = _Job(work, **arguments)
    return Flow(
        "Jobs", steps=[job], start_step="Job", declarations=[done, notes], rpcs=[note], compatibility=compatibility
    )


async def at_once() -> str:
    return "done"


async def is_done(engine: EmbeddedEngine, flow_id: str) -> str:
    return await engine.wait_until(flow_id, lambda view: view.get(done), timeout=DEADLINE)


@pytest.mark.parametrize("error", [StopIteration("nothing"), SystemExit(3), asyncio.CancelledError()])
def test_a_read_that_raises_what_no_future_takes_leaves_the_reader_alive(tmp_path: Path, error: BaseException) -> None:
    def condition(view: StateView) -> bool:
        raise error

    async def scenario() -> None:
        flow = make_flow(at_once)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine, asyncio.timeout(DEADLINE):
            await engine.start_flow(flow, "f")
            others = asyncio.gather(*(engine.describe_flow("f") for _ in range(5)))
            with pytest.raises(RuntimeError, match="raised"):
                await engine.wait_until("f", condition)
            assert len(await others) == 5
            assert (await engine.describe_flow("f")).flow_id == "f"

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("nothing"), SystemExit(3), asyncio.CancelledError()])
def test_a_condition_that_raises_at_a_later_commit_ends_the_wait_alone(tmp_path: Path, error: BaseException) -> None:
    def condition(view: StateView) -> bool:
        if view.get_instance(notes, "k") is not None:
            raise error
        return False

    async def scenario() -> None:
        flow = make_flow(at_once)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine, asyncio.timeout(DEADLINE):
            await engine.start_flow(flow, "f")
            waiting = asyncio.create_task(engine.wait_until("f", condition))
            other = asyncio.create_task(engine.wait_until("f", lambda view: view.get_instance(notes, "k")))
            await asyncio.sleep(0)
            await engine.invoke_rpc(flow, "f", note, "k")
            with pytest.raises(RuntimeError if not isinstance(error, ValueError) else ValueError):
                await waiting
            assert await other == "noted"

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("nothing"), SystemExit(3), asyncio.CancelledError()])
def test_a_snapshot_that_cannot_be_loaded_fails_its_attempt_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    failing = [error]

    def load(self: _Job, view: StateView, input: None) -> None:
        if failing:
            raise error

    monkeypatch.setattr(_Job, "load", load)
    monkeypatch.setattr(_Job, "on_attempt_failed", lambda *_: failing.clear())

    async def scenario() -> None:
        options = StepOptions(retry=Retry(attempts=3, backoff=timedelta(milliseconds=1)))
        flow = make_flow(at_once, options=options)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine, asyncio.timeout(DEADLINE):
            await engine.start_flow(flow, "f")
            assert await is_done(engine, "f") == "done"
            history = await engine.read_step_history("f")
            assert [entry.outcome for entry in history] == ["failed", "succeeded"]

    asyncio.run(scenario())


def test_more_work_than_slots_goes_on_as_slots_get_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With the regular look out of the way, only the end of an attempt can lead to the next one.
    monkeypatch.setattr("dex_flow.embedded.scheduler._FALLBACK_SECONDS", 3_600.0)

    async def scenario() -> None:
        flow = make_flow(at_once)
        names = [f"f{number}" for number in range(12)]
        async with EmbeddedEngine(tmp_path / "flows.db", [flow], runs_worker=False) as client:
            for name in names:
                await client.start_flow(flow, name)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow], max_concurrent_steps=1) as engine:
            for name in names:
                assert await is_done(engine, name) == "done"

    asyncio.run(scenario())


def test_executions_of_another_definition_do_not_starve_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dex_flow.embedded.scheduler._BATCH", 3)

    async def scenario() -> None:
        path = tmp_path / "flows.db"
        old, new = make_flow(at_once, compatibility=1), make_flow(at_once, compatibility=2)
        async with EmbeddedEngine(path, [old], runs_worker=False) as client:
            for number in range(5):
                await client.start_flow(old, f"old{number}")
        async with EmbeddedEngine(path, [new], runs_worker=False) as client:
            await client.start_flow(new, "new")
        async with EmbeddedEngine(path, [new]) as engine:
            assert await is_done(engine, "new") == "done"

    asyncio.run(scenario())


def test_work_of_another_engine_of_the_process_is_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dex_flow.embedded.scheduler._FALLBACK_SECONDS", 3_600.0)
    monkeypatch.setattr("dex_flow.embedded.scheduler._LIVENESS_SECONDS", 3_600.0)

    async def scenario() -> None:
        started, stopped = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return "never"

        flow = make_flow(work)
        path = tmp_path / "flows.db"
        async with (
            EmbeddedEngine(path, [flow], shutdown_grace=0) as worker,
            EmbeddedEngine(path, [flow], runs_worker=False) as client,
            asyncio.timeout(DEADLINE),
        ):
            await worker.start_flow(flow, "first")
            await started.wait()
            await client.stop_flow("first")
            await stopped.wait()
            started.clear()
            await client.start_flow(flow, "second")
            await started.wait()

    asyncio.run(scenario())


def test_an_attempt_whose_task_a_stranger_cancels_is_a_failed_attempt(tmp_path: Path) -> None:
    async def scenario() -> None:
        calls = itertools.count()

        async def work() -> str:
            if next(calls) == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # as a cancel scope does that was entered here and outlived its block
                await asyncio.Event().wait()
            return "done"

        flow = make_flow(work)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine:
            await engine.start_flow(flow, "f")
            assert await is_done(engine, "f") == "done"
            history = await engine.read_step_history("f")
            assert [(row.attempt, row.outcome) for row in history] == [(1, "failed"), (2, "succeeded")]

    asyncio.run(scenario())


def test_an_attempt_claimed_again_before_its_refused_start_was_noticed_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        calls = itertools.count()

        def before() -> None:
            if next(calls) == 0:
                raise ValueError("not yet")

        ticks = itertools.count(1_800_000_000_000_000, 1_000_000)
        flow = make_flow(at_once, before=before, options=ONCE)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow], clock=lambda: next(ticks)) as engine:
            await engine.start_flow(flow, "f")
            # The start marker is queued by now. Every command is a second later for the clock, so this RPC ends the
            # backoff of the refused start and claims the attempt again, both before the loop hears of either.
            kernel = engine._kernels["Jobs"]
            both = engine._commands.submit(kernel, "f", InvokeRpc("note", b'"k"'))
            committed = threading.Event()
            await_writer = engine._database.writer.write(lambda connection: committed.set(), durable="never")
            barrier = asyncio.ensure_future(await_writer)
            await asyncio.sleep(0)
            assert committed.wait(DEADLINE)
            await both
            await barrier
            assert await is_done(engine, "f") == "done"

    asyncio.run(scenario())


def test_a_start_that_is_committed_after_its_cancellation_runs_nothing(tmp_path: Path) -> None:
    runs = 0

    async def scenario() -> None:
        async def work() -> str:
            nonlocal runs
            runs += 1
            return "done"

        flow = make_flow(work, options=ONCE)
        path = tmp_path / "flows.db"
        async with EmbeddedEngine(path, [flow], shutdown_grace=0) as engine:
            await engine.start_flow(flow, "f")
            worker = engine._commands.worker
            assert worker is not None
            (key,) = worker.running
            writer = engine._database.writer
            # The marker is queued or committed, and the loop has not heard of it.
            worker.cancel(key)
            await writer.write(lambda connection: None, durable="never")
            for _ in range(10):
                await engine.describe_flow("f")
            assert runs == 0
            assert not worker.running

    asyncio.run(scenario())


def test_a_cancelled_close_leaves_no_attempt_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        started, stopped = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return "never"

        flow = make_flow(work)
        closing = asyncio.Event()

        async def wait_in_grace() -> None:
            closing.set()
            await asyncio.Event().wait()

        async def use() -> None:
            async with EmbeddedEngine(tmp_path / "flows.db", [flow], shutdown_grace=3_600.0) as engine:
                await engine.start_flow(flow, "f")
                await started.wait()
                assert engine._commands.worker is not None
                monkeypatch.setattr(engine._commands.worker._idle, "wait", wait_in_grace)

        user = asyncio.create_task(use())
        await closing.wait()
        user.cancel()
        with pytest.raises(asyncio.CancelledError):
            await user
        assert stopped.is_set()

    asyncio.run(scenario())
