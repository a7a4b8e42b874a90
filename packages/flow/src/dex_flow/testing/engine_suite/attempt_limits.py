"""Limits of one attempt: timeouts, heartbeats, checkpoints, cancellation and late outcomes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dex_flow.engine import Engine
from dex_flow.options import Retry, StepOptions
from dex_flow.steps import Activity, AttemptProgress
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase, wait_for_end
from dex_flow.testing.engine_suite.work_flow import (
    ATTEMPT_FAILURES,
    CANCEL_WORK,
    EMIT,
    NOTES,
    OUTCOMES,
    RECOVERIES,
    WorkPlan,
    work_flow,
)

__all__ = ["AttemptLimitTests"]

QUICK = Retry(backoff=timedelta(milliseconds=1), backoff_cap=timedelta(milliseconds=5))
SINGLE = Retry(attempts=1)


class AttemptLimitTests(EngineSuiteBase):
    """What ends an attempt from outside."""

    def test_an_attempt_timeout_cancels_the_run_and_retries(self, tmp_path: Path) -> None:
        """The body is cancelled, the failure names the timeout, the next attempt runs."""
        cancelled = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            assert activity.deadline is not None
            assert activity.deadline.tzinfo is not None
            if activity.attempt > 1:
                return "in time"
            assert activity.deadline <= datetime.now(UTC) + timedelta(milliseconds=300)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        options = StepOptions(attempt_timeout=timedelta(milliseconds=300), retry=QUICK, failure_route="RecoverWork")
        flow = work_flow(body, options)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "timeout", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "timeout")).result == "in time"
            assert cancelled.is_set()
            failure = await engine.get_attribute_instance("timeout", ATTEMPT_FAILURES, "a:1")
            assert failure is not None
            assert failure.error_type == "StepAttemptTimeoutError"

        self.play(tmp_path, flow, scenario)

    def test_a_timed_out_single_attempt_is_not_completed(self, tmp_path: Path) -> None:
        """Its effect may have happened."""
        calls: list[int] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(activity.attempt)
            await asyncio.Event().wait()
            return "never"

        options = StepOptions(attempt_timeout=timedelta(milliseconds=100), retry=SINGLE, failure_route="RecoverWork")
        flow = work_flow(body, options)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "unknown", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "unknown")).result == "recovered"
            recovery = await engine.get_attribute_instance("unknown", RECOVERIES, "a")
            assert recovery is not None
            assert recovery.error_type == "StepAttemptTimeoutError"
            assert recovery.attempt_progress == AttemptProgress.NOT_COMPLETED
            assert calls == [1]

        self.play(tmp_path, flow, scenario)

    def test_a_timed_out_body_that_returns_anyway_is_too_late(self, tmp_path: Path) -> None:
        """Swallowing the cancellation does not turn the timeout into a success."""

        async def body(activity: Activity, snapshot: str) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "late"
            return "never"

        options = StepOptions(attempt_timeout=timedelta(milliseconds=100), retry=SINGLE, failure_route="RecoverWork")
        flow = work_flow(body, options)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "too late", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "too late")).result == "recovered"
            assert await engine.get_attribute_instance("too late", OUTCOMES, "a") is None

        self.play(tmp_path, flow, scenario)

    def test_a_silent_attempt_loses_its_heartbeat(self, tmp_path: Path) -> None:
        """It is cancelled and tried again."""
        cancelled = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            if activity.attempt > 1:
                return "heard"
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        options = StepOptions(heartbeat_timeout=timedelta(milliseconds=200), retry=QUICK, failure_route="RecoverWork")
        flow = work_flow(body, options)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "silent", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "silent")).result == "heard"
            assert cancelled.is_set()
            failure = await engine.get_attribute_instance("silent", ATTEMPT_FAILURES, "a:1")
            assert failure is not None
            assert failure.error_type == "HeartbeatTimeoutError"

        self.play(tmp_path, flow, scenario)

    def test_heartbeats_keep_a_long_attempt_alive(self, tmp_path: Path) -> None:
        """An attempt may run longer than its heartbeat timeout, as long as it says that it lives."""

        async def body(activity: Activity, snapshot: str) -> str:
            for _ in range(60):
                activity.heartbeat()
                await asyncio.sleep(0.05)
            return "alive"

        options = StepOptions(heartbeat_timeout=timedelta(seconds=2), retry=QUICK, failure_route="RecoverWork")
        flow = work_flow(body, options)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "alive", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "alive")).result == "alive"

        self.play(tmp_path, flow, scenario)

    def test_a_heartbeat_checkpoint_reaches_the_next_attempt(self, tmp_path: Path) -> None:
        """The last one saved, also after the engine was opened again."""
        seen: list[str | None] = []
        saved = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            seen.append(activity.heartbeat_checkpoint)
            if activity.attempt == 1:
                await activity.save_heartbeat_checkpoint("page 1")
                await activity.save_heartbeat_checkpoint("page 2 日本")
                raise ConnectionError("after page 2")
            if activity.attempt == 2:
                await activity.save_heartbeat_checkpoint("page 3")
                saved.set()
                await asyncio.Event().wait()
            return str(activity.heartbeat_checkpoint)

        flow = work_flow(body, StepOptions(retry=QUICK, failure_route="RecoverWork"))

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine:
                await engine.start_flow(flow, "checkpoint", WorkPlan(["a"]))
                await saved.wait()
            async with open_engine(flows=[flow]) as engine:
                assert (await wait_for_end(engine, "checkpoint")).result == "page 3"
            assert seen == [None, "page 2 日本", "page 3"]

        self.play_shared(tmp_path, scenario)

    def test_an_rpc_decision_cancels_a_running_attempt(self, tmp_path: Path) -> None:
        """Its task gets an asyncio cancellation, and the history says cancelled."""
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return "never"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "cancel", WorkPlan(["a"]))
            await started.wait()
            assert await engine.invoke_rpc(flow, "cancel", CANCEL_WORK, "cancelling") == "cancelled"
            await cancelled.wait()
            assert (await wait_for_end(engine, "cancel")).result == "cancelled"
            (work,) = [entry for entry in await engine.read_step_history("cancel") if entry.step_type == "Work"]
            assert (work.outcome, work.attempt) == ("cancelled", 1)

        self.play(tmp_path, flow, scenario)

    def test_cancelling_beats_a_late_outcome(self, tmp_path: Path) -> None:
        """A body that returns although it was cancelled changes nothing any more."""
        started, returned = asyncio.Event(), asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                returned.set()
            return "late outcome"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "late", WorkPlan(["a"], stays_open=True))
            await started.wait()
            await engine.invoke_rpc(flow, "late", CANCEL_WORK, "cancelling")
            await returned.wait()
            for number in range(5):
                await engine.invoke_rpc(flow, "late", EMIT, f"barrier {number}")
            assert await engine.get_attribute_instance("late", OUTCOMES, "a") is None
            assert await engine.get_attribute_instance("late", NOTES, "commit:a") is None
            outcomes = [e.outcome for e in await engine.read_step_history("late") if e.step_type == "Work"]
            assert outcomes == ["cancelled"]
            assert (await engine.describe_flow("late")).status == "open"

        self.play(tmp_path, flow, scenario)

    def test_stopping_a_flow_cancels_its_running_attempts(self, tmp_path: Path) -> None:
        """All of them; the Flow is closed at once."""
        started: set[str] = set()
        all_started = asyncio.Event()
        cancelled: set[str] = set()
        all_cancelled = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            started.add(snapshot)
            if len(started) == 3:
                all_started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.add(snapshot)
                if len(cancelled) == 3:
                    all_cancelled.set()
                raise
            return "never"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "stop", WorkPlan(["a", "b", "c"]))
            await all_started.wait()
            assert await engine.stop_flow("stop", "enough") is True
            description = await engine.describe_flow("stop")
            assert (description.status, description.failure, description.open_steps) == ("stopped", "enough", ())
            await all_cancelled.wait()
            assert await engine.stop_flow("stop") is False
            outcomes = [e.outcome for e in await engine.read_step_history("stop") if e.step_type == "Work"]
            assert outcomes == ["cancelled"] * 3

        self.play(tmp_path, flow, scenario)

    def test_a_body_that_raises_a_cancellation_of_its_own_failed(self, tmp_path: Path) -> None:
        """Only the engine cancels an attempt; a body's own `CancelledError` is a failure like any other."""
        calls: list[int] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(activity.attempt)
            if activity.attempt == 1:
                raise asyncio.CancelledError("inner task was cancelled")
            return "second"

        flow = work_flow(body, StepOptions(retry=QUICK, failure_route="RecoverWork"))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "own", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "own")).result == "second"
            assert calls == [1, 2]

        self.play(tmp_path, flow, scenario)
