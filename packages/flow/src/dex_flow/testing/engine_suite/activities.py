"""ActivitySteps: success, retries, failure routes, snapshots, and Steps that run side by side."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from dex_flow.engine import Engine
from dex_flow.options import Retry, StepOptions
from dex_flow.steps import Activity, AttemptProgress
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase, wait_for_end, wait_for_step
from dex_flow.testing.engine_suite.work_flow import (
    ATTEMPT_FAILURES,
    NOTES,
    OUTCOMES,
    RECOVERIES,
    SET_SETTING,
    WorkPlan,
    work_flow,
)

__all__ = ["ActivityTests"]

QUICK = Retry(backoff=timedelta(milliseconds=1), backoff_cap=timedelta(milliseconds=5))


async def echo(activity: Activity, snapshot: str) -> str:
    """A run body that succeeds at once."""
    return f"done {snapshot}"


class ActivityTests(EngineSuiteBase):
    """`run`, `load`, `commit`, retries and failure routes."""

    def test_an_outcome_is_committed_and_the_flow_goes_on(self, tmp_path: Path) -> None:
        """`run` once, its outcome in the state, the result in the description."""
        seen: list[tuple[str, int, int, str | None, str]] = []

        async def body(activity: Activity, snapshot: str) -> str:
            assert activity.deadline is None
            seen.append(
                (
                    activity.flow_id,
                    activity.attempt,
                    activity.step_execution_id,
                    activity.heartbeat_checkpoint,
                    snapshot,
                )
            )
            return f"done {snapshot}"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "success", WorkPlan(["a"], setting="s"))
            description = await wait_for_end(engine, "success")
            assert (description.status, description.result) == ("completed", "done a@s")
            assert description.open_steps == ()
            assert await engine.get_attribute_instance("success", OUTCOMES, "a") == "done a@s"
            history = await engine.read_step_history("success")
            (run,) = [entry for entry in history if entry.step_type == "Work"]
            assert seen == [("success", 1, run.step_execution_id, None, "a@s")]
            assert (run.method, run.attempt, run.outcome, run.detail) == ("run", 1, "succeeded", None)
            assert run.started_at <= run.finished_at

        self.play(tmp_path, flow, scenario)

    def test_a_failed_attempt_is_tried_again(self, tmp_path: Path) -> None:
        """Each failure reaches `on_attempt_failed` and the history; snapshot and Step ID are the same."""
        seen: list[tuple[int, int]] = []

        async def body(activity: Activity, snapshot: str) -> str:
            seen.append((activity.attempt, activity.step_execution_id))
            if activity.attempt < 3:
                raise ConnectionError(f"no connection {activity.attempt}")
            return f"done {snapshot}"

        flow = work_flow(body, StepOptions(retry=QUICK, failure_route="RecoverWork"))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "retry", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "retry")).result == "done a"
            assert [attempt for attempt, _ in seen] == [1, 2, 3]
            assert len({step for _, step in seen}) == 1
            for attempt in (1, 2):
                failure = await engine.get_attribute_instance("retry", ATTEMPT_FAILURES, f"a:{attempt}")
                assert failure is not None
                assert (failure.error_type, failure.message) == ("ConnectionError", f"no connection {attempt}")
                assert (failure.attempt, failure.is_retryable) == (attempt, True)
                assert failure.next_attempt_at is not None
            runs = [entry for entry in await engine.read_step_history("retry") if entry.step_type == "Work"]
            assert [(run.attempt, run.outcome) for run in runs] == [(1, "failed"), (2, "failed"), (3, "succeeded")]
            assert runs[0].detail == "ConnectionError: no connection 1"
            assert await engine.get_attribute_instance("retry", RECOVERIES, "a") is None

        self.play(tmp_path, flow, scenario)

    def test_exhausted_attempts_go_to_the_failure_route(self, tmp_path: Path) -> None:
        """With the failed input and the last error."""
        calls: list[int] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(activity.attempt)
            raise ValueError(f"wrong {activity.attempt}")

        options = StepOptions(retry=Retry(attempts=2, backoff=timedelta(milliseconds=1)), failure_route="RecoverWork")
        flow = work_flow(body, options)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "exhausted", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "exhausted")).result == "recovered"
            assert calls == [1, 2]
            recovery = await engine.get_attribute_instance("exhausted", RECOVERIES, "a")
            assert recovery is not None
            assert (recovery.error_type, recovery.message) == ("ValueError", "wrong 2")
            assert recovery.attempt_progress == AttemptProgress.NOT_COMPLETED
            assert (recovery.attempts, recovery.step_type) == (2, "Work")
            assert await engine.get_attribute_instance("exhausted", OUTCOMES, "a") is None
            assert await engine.get_attribute_instance("exhausted", ATTEMPT_FAILURES, "a:2") is None

        self.play(tmp_path, flow, scenario)

    def test_a_single_attempt_step_succeeds_or_recovers(self, tmp_path: Path) -> None:
        """It runs once either way."""
        calls: list[str] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(snapshot)
            if snapshot == "bad":
                raise OSError("disk on fire")
            return f"done {snapshot}"

        flow = work_flow(body, StepOptions(retry=Retry(attempts=1), failure_route="RecoverWork"))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "single", WorkPlan(["good", "bad"]))
            assert (await wait_for_end(engine, "single")).status == "completed"
            assert sorted(calls) == ["bad", "good"]
            assert await engine.get_attribute_instance("single", OUTCOMES, "good") == "done good"
            recovery = await engine.get_attribute_instance("single", RECOVERIES, "bad")
            assert recovery is not None
            assert (recovery.error_type, recovery.attempts) == ("OSError", 1)

        self.play(tmp_path, flow, scenario)

    def test_without_a_failure_route_the_flow_fails(self, tmp_path: Path) -> None:
        """Its description names the Step and the error; other Steps are cancelled."""
        parallel_started = asyncio.Event()
        parallel_cancelled = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            if snapshot == "good":
                parallel_started.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    parallel_cancelled.set()
                    raise
            await parallel_started.wait()
            raise ValueError("hopeless")

        flow = work_flow(body, StepOptions(retry=Retry(attempts=1)))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "fails", WorkPlan(["good", "bad"]))
            description = await wait_for_end(engine, "fails")
            assert description.status == "failed"
            assert description.failure is not None
            assert "Work" in description.failure
            assert "hopeless" in description.failure
            assert description.open_steps == ()
            await parallel_cancelled.wait()

        self.play(tmp_path, flow, scenario)

    def test_no_attempt_begins_after_the_window(self, tmp_path: Path) -> None:
        """The window counts from the first attempt's start."""
        calls: list[int] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(activity.attempt)
            raise ConnectionError("still down")

        retry = Retry(window=timedelta(seconds=2), backoff=timedelta(hours=1), backoff_cap=timedelta(hours=1))
        flow = work_flow(body, StepOptions(retry=retry, failure_route="RecoverWork"))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "window", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "window")).result == "recovered"
            assert calls == [1]

        self.play(tmp_path, flow, scenario)

    def test_a_backoff_is_visible_and_can_be_skipped(self, tmp_path: Path) -> None:
        """The description shows the error and when the next attempt is due."""
        calls: list[int] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(activity.attempt)
            if activity.attempt == 1:
                raise ConnectionError("down")
            return "up"

        retry = Retry(backoff=timedelta(hours=1), backoff_cap=timedelta(hours=1))
        flow = work_flow(body, StepOptions(retry=retry, failure_route="RecoverWork"))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "backoff", WorkPlan(["a"]))
            step = await wait_for_step(engine, "backoff", "Work", "backoff")
            assert (step.attempt, step.last_error) == (1, "ConnectionError: down")
            assert step.due is not None
            assert step.due > (await engine.describe_flow("backoff")).updated_at + timedelta(minutes=50)
            assert await engine.skip_timer("backoff", step.step_execution_id) is True
            assert (await wait_for_end(engine, "backoff")).result == "up"
            assert calls == [1, 2]

        self.play(tmp_path, flow, scenario)

    def test_each_attempt_loads_the_current_state(self, tmp_path: Path) -> None:
        """A retry sees what changed since."""
        failed_once = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            if activity.attempt == 1:
                failed_once.set()
                raise ConnectionError("old setting")
            return snapshot

        retry = Retry(backoff=timedelta(hours=1), backoff_cap=timedelta(hours=1))
        flow = work_flow(body, StepOptions(retry=retry))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "load", WorkPlan(["a"], setting="old"))
            await failed_once.wait()
            step = await wait_for_step(engine, "load", "Work", "backoff")
            await engine.invoke_rpc(flow, "load", SET_SETTING, "new")
            await engine.skip_timer("load", step.step_execution_id)
            assert (await wait_for_end(engine, "load")).result == "a@new"

        self.play(tmp_path, flow, scenario)

    def test_before_run_may_decide_instead(self, tmp_path: Path) -> None:
        """`run` is not called, and the history says so."""
        calls: list[str] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(snapshot)
            return "ran"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "skips", WorkPlan(["a"], skips=True))
            assert (await wait_for_end(engine, "skips")).result == "skipped"
            assert calls == []
            (work,) = [entry for entry in await engine.read_step_history("skips") if entry.step_type == "Work"]
            assert work.outcome == "skipped"
            assert await engine.get_attribute_instance("skips", NOTES, "before_run:a") == "1"

        self.play(tmp_path, flow, scenario)

    def test_steps_of_one_flow_run_side_by_side(self, tmp_path: Path) -> None:
        """All of them are running before any of them ends."""
        running: set[str] = set()
        all_running = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            running.add(snapshot)
            if len(running) == 5:
                all_running.set()
            await all_running.wait()
            return f"done {snapshot}"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            works = ["a", "b", "c", "d", "e"]
            await engine.start_flow(flow, "parallel", WorkPlan(works))
            assert (await wait_for_end(engine, "parallel")).status == "completed"
            for work in works:
                assert await engine.get_attribute_instance("parallel", OUTCOMES, work) == f"done {work}"

        self.play(tmp_path, flow, scenario)

    def test_work_waits_for_a_worker(self, tmp_path: Path) -> None:
        """A client starts it, and a worker that opens later runs it."""
        flow = work_flow(echo)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow], runs_worker=False) as client:
                await client.start_flow(flow, "later", WorkPlan(["a"]))
                (step,) = (await client.describe_flow("later")).open_steps
                assert (step.step_type, step.status, step.attempt) == ("Work", "ready", 0)
                async with open_engine(flows=[flow]):
                    assert (await wait_for_end(client, "later")).result == "done a"

        self.play_shared(tmp_path, scenario)

    def test_no_worker_within_the_start_timeout_is_not_started(self, tmp_path: Path) -> None:
        """The one failure that says for sure that nothing happened."""
        calls: list[str] = []

        async def body(activity: Activity, snapshot: str) -> str:
            calls.append(snapshot)
            return "ran"

        options = StepOptions(start_timeout=timedelta(milliseconds=50), failure_route="RecoverWork")
        flow = work_flow(body, options)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow], runs_worker=False) as client:
                await client.start_flow(flow, "unstarted", WorkPlan(["a"]))
            await asyncio.sleep(0.1)
            async with open_engine(flows=[flow]) as engine:
                assert (await wait_for_end(engine, "unstarted")).result == "recovered"
                recovery = await engine.get_attribute_instance("unstarted", RECOVERIES, "a")
                assert recovery is not None
                assert recovery.attempt_progress == AttemptProgress.NOT_STARTED
                assert recovery.attempts == 0
            assert calls == []

        self.play_shared(tmp_path, scenario)
