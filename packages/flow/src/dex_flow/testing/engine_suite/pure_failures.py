"""Exceptions in pure code: that piece alone is undone and tried again, and no effect is ever repeated for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_flow.engine import Engine, OpenStepDescription
from dex_flow.steps import Activity
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase, wait_for_end, wait_for_step
from dex_flow.testing.engine_suite.work_flow import (
    ATTEMPT_FAILURES,
    EVENTS,
    NOTES,
    OUTCOMES,
    UNBLOCK,
    WorkPlan,
    work_flow,
)

__all__ = ["PureFailureTests"]


class Calls:
    """A run body that counts its calls."""

    def __init__(self) -> None:
        self.attempts: list[int] = []

    async def body(self, activity: Activity, snapshot: str) -> str:
        """Succeed at once."""
        self.attempts.append(activity.attempt)
        return f"run {len(self.attempts)}"


async def unblock(engine: Engine, calls: Calls, flow_id: str, step: OpenStepDescription) -> None:
    """Let the blocked pure code succeed, without waiting for its backoff."""
    await engine.invoke_rpc(work_flow(calls.body), flow_id, UNBLOCK, None)
    await engine.skip_timer(flow_id, step.step_execution_id)


class PureFailureTests(EngineSuiteBase):
    """Raising `wait_for`, `before_run`, `commit`, `on_attempt_failed` and `execute`."""

    def test_a_raising_commit_is_retried_without_running_again(self, tmp_path: Path) -> None:
        """The outcome is kept, its undone writes and events are never seen."""
        calls = Calls()
        flow = work_flow(calls.body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "commit", WorkPlan(["a"], blocked="commit"))
            step = await wait_for_step(engine, "commit", "Work", "backoff")
            assert step.last_error == "RuntimeError: commit is blocked"
            assert step.due is not None
            assert await engine.get_attribute_instance("commit", OUTCOMES, "a") is None
            assert await engine.get_attribute_instance("commit", NOTES, "commit:a") is None
            assert await engine.read_stream("commit", EVENTS) == []
            await unblock(engine, calls, "commit", step)
            assert (await wait_for_end(engine, "commit")).result == "run 1"
            assert calls.attempts == [1]
            assert await engine.get_attribute_instance("commit", OUTCOMES, "a") == "run 1"
            assert [event.value for event in await engine.read_stream("commit", EVENTS)] == ["committed a"]

        self.play(tmp_path, flow, scenario)

    def test_a_stored_outcome_survives_a_closed_engine(self, tmp_path: Path) -> None:
        """Only `commit` is tried after reopening."""
        calls = Calls()
        flow = work_flow(calls.body)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine:
                await engine.start_flow(flow, "stored", WorkPlan(["a"], blocked="commit"))
                await wait_for_step(engine, "stored", "Work", "backoff")
            async with open_engine(flows=[flow]) as engine:
                await engine.invoke_rpc(flow, "stored", UNBLOCK, None)
                assert (await wait_for_end(engine, "stored")).result == "run 1"
            assert calls.attempts == [1]

        self.play_shared(tmp_path, scenario)

    def test_a_raising_cascaded_inline_step_undoes_itself_alone(self, tmp_path: Path) -> None:
        """The outcome that led to it is committed; the inline Step waits and runs later."""
        calls = Calls()
        flow = work_flow(calls.body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "cascade", WorkPlan(["a"], blocked="close"))
            step = await wait_for_step(engine, "cascade", "CloseWork", "backoff")
            assert step.last_error == "RuntimeError: close is blocked"
            assert await engine.get_attribute_instance("cascade", OUTCOMES, "a") == "run 1"
            assert await engine.get_attribute_instance("cascade", NOTES, "close") is None
            await unblock(engine, calls, "cascade", step)
            assert (await wait_for_end(engine, "cascade")).result == "run 1"
            assert calls.attempts == [1]

        self.play(tmp_path, flow, scenario)

    @pytest.mark.parametrize("method", ["wait_for", "before_run"])
    def test_pure_code_before_the_run_is_retried(self, tmp_path: Path, method: str) -> None:
        """`run` waits until it succeeds, and is the first attempt then."""
        calls = Calls()
        flow = work_flow(calls.body)

        async def scenario(engine: Engine) -> None:
            plan = WorkPlan(["a"], blocked="wait_for" if method == "wait_for" else "before_run")
            await engine.start_flow(flow, "before", plan)
            step = await wait_for_step(engine, "before", "Work", "backoff")
            assert step.last_error == f"RuntimeError: {method} is blocked"
            assert calls.attempts == []
            assert await engine.get_attribute_instance("before", NOTES, "before_run:a") is None
            await unblock(engine, calls, "before", step)
            assert (await wait_for_end(engine, "before")).result == "run 1"
            assert calls.attempts == [1]

        self.play(tmp_path, flow, scenario)

    def test_pure_code_is_retried_without_anybody_calling(self, tmp_path: Path) -> None:
        """The backoff is short enough that an unblocked Flow goes on by itself."""
        calls = Calls()
        flow = work_flow(calls.body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "alone", WorkPlan(["a"], blocked="commit"))
            await wait_for_step(engine, "alone", "Work", "backoff")
            await engine.invoke_rpc(flow, "alone", UNBLOCK, None)
            assert (await wait_for_end(engine, "alone")).result == "run 1"
            assert calls.attempts == [1]

        self.play(tmp_path, flow, scenario)

    def test_a_raising_on_attempt_failed_does_not_stop_the_retry(self, tmp_path: Path) -> None:
        """Its writes are undone, the error is in the history, the next attempt runs."""
        attempts: list[int] = []

        async def body(activity: Activity, snapshot: str) -> str:
            attempts.append(activity.attempt)
            if activity.attempt == 1:
                raise ConnectionError("down")
            return "up"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "note", WorkPlan(["a"], blocked="on_attempt_failed"))
            assert (await wait_for_end(engine, "note")).result == "up"
            assert attempts == [1, 2]
            assert await engine.get_attribute_instance("note", ATTEMPT_FAILURES, "a:1") is None
            details = [entry.detail or "" for entry in await engine.read_step_history("note")]
            assert any("on_attempt_failed is blocked" in detail for detail in details)

        self.play(tmp_path, flow, scenario)

    def test_other_steps_of_the_flow_go_on(self, tmp_path: Path) -> None:
        """Work that does not raise is committed, and a blocked Flow can still be stopped."""
        calls = Calls()
        flow = work_flow(calls.body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "others", WorkPlan(["a", "b"], blocked="close"))
            await engine.wait_until("others", lambda view: view.get_instance(OUTCOMES, "a"))
            await engine.wait_until("others", lambda view: view.get_instance(OUTCOMES, "b"))
            await engine.start_flow(flow, "neighbour", WorkPlan(["a"]))
            assert (await wait_for_end(engine, "neighbour")).status == "completed"
            assert await engine.stop_flow("others", "blocked for good") is True
            assert (await engine.describe_flow("others")).status == "stopped"

        self.play(tmp_path, flow, scenario)
