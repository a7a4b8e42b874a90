"""Remote tasks of function tools from end to end: polled, asked about, stopped, and not followed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dex_agents import ToolInputRequested, ToolTaskPending, ToolTaskStarted
from dex_agents.session.texts import (
    MISSING_TOOL_TASK_POLLER,
    OUTCOME_UNKNOWN_TOOL_RESULT,
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
)
from dex_agents_stepwise import FunctionTool, ToolCallContext, ToolTaskContext, function_tool

from .stepwise_agent import ask, call, say, script
from .stepwise_sessions import LiveSession, live_session

IN_WHICH = "In which currency?"


class Reports:
    """A remote system whose jobs want to know a currency."""

    def __init__(self) -> None:
        self.starts: list[str] = []
        self.polls: list[ToolTaskContext] = []
        self.cancelled: list[str] = []
        self.is_ready = False

    def tool(self, **fields: Any) -> FunctionTool[..., Any]:
        return function_tool(
            self.start, name="report", effect="read", poll_task=self.poll, cancel_task=self.cancel, **fields
        )

    async def start(self, month: str, context: ToolCallContext) -> ToolTaskStarted:
        """Build a report."""
        assert context.supports_tool_tasks
        self.starts.append(context.idempotency_key)
        await context.save_heartbeat_checkpoint("job-1")
        return ToolTaskStarted(task_id="job-1", poll_interval_seconds=3600)

    def poll(self, task: ToolTaskContext) -> str | ToolTaskPending | ToolInputRequested:
        self.polls.append(task)
        if task.pending_answer is not None:
            self.is_ready = True
            return ToolTaskPending(poll_interval_seconds=3600, continuation="answered")
        if self.is_ready:
            return f"report of {task.arguments['month']} in {task.input_answers[-1].answer}"
        return ToolInputRequested(question=IN_WHICH, choices=("EUR", "USD"), continuation="q1")

    async def cancel(self, task: ToolTaskContext) -> None:
        self.cancelled.append(task.task_id)


async def poll_now(session: LiveSession) -> None:
    """End the interval of the next poll; the poll that hands over an answer has none."""
    await session.record("report", "waiting_for_task", lambda record: not record.task_answer_pending)
    await session.skip_timer("PollToolTask")


def test_a_task_is_polled_asks_and_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        reports = Reports()
        async with live_session(
            tmp_path, script(ask(call("report", {"month": "May"})), say("done")), tools=[reports.tool()]
        ) as session:
            await session.say("report, please")
            await poll_now(session)
            await session.answer(IN_WHICH, "EUR")
            await poll_now(session)
            assert await session.idle() == "done"
            assert session.results_seen() == ["report of May in EUR"]
            assert len(reports.starts) == 1
            first, answered, last = reports.polls
            assert [task.task_id for task in reports.polls] == ["job-1"] * 3
            assert [task.continuation for task in reports.polls] == [None, "q1", "answered"]
            assert first.pending_answer is last.pending_answer is None
            assert answered.pending_answer is not None
            assert (answered.pending_answer.resolution, answered.pending_answer.answer) == ("answered", "EUR")
            assert {task.idempotency_key for task in reports.polls} == set(reports.starts)
            assert reports.cancelled == []

    asyncio.run(scenario())


def test_a_declined_question_goes_back_to_the_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        reports = Reports()
        async with live_session(
            tmp_path, script(ask(call("report", {"month": "May"})), say("done")), tools=[reports.tool()]
        ) as session:
            await session.say("report, please")
            await poll_now(session)
            await session.decline("No currency")
            await poll_now(session)
            assert await session.idle() == "done"
            pending = reports.polls[1].pending_answer
            assert pending is not None
            assert (pending.resolution, pending.rejection_message) == ("declined", "No currency")

    asyncio.run(scenario())


def test_an_attempt_after_a_failed_one_goes_on_with_the_work_it_started(tmp_path: Path) -> None:
    jobs: list[str] = []

    @function_tool(name="report", effect="read", poll_task=lambda task: f"report of {task.task_id}")
    def report(context: ToolCallContext) -> ToolTaskStarted:
        if context.heartbeat_checkpoint is not None:
            return ToolTaskStarted(task_id=context.heartbeat_checkpoint, poll_interval_seconds=3600)
        jobs.append(context.idempotency_key)
        context.save_heartbeat_checkpoint_from_thread(f"job-{len(jobs)}")
        raise ConnectionResetError("reset")

    async def scenario() -> None:
        async with live_session(tmp_path, script(ask(call("report")), say("done")), tools=[report]) as session:
            await session.say("report, please")
            await poll_now(session)
            assert await session.idle() == "done"
            assert session.results_seen() == ["report of job-1"]
            assert len(jobs) == 1

    asyncio.run(scenario())


def test_a_tool_that_a_deploy_removed_fails_its_running_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        reports = Reports()
        asked = script(ask(call("report", {"month": "May"})))
        async with live_session(tmp_path, asked, tools=[reports.tool()]) as session:
            await session.say("report, please")
            await session.record("report", "waiting_for_task")
        async with live_session(tmp_path, script(say("done"))) as session:
            await poll_now(session)
            assert await session.idle() == "done"
            assert session.results_seen() == ["unknown tool report"]
            assert reports.polls == []

    asyncio.run(scenario())


@function_tool(effect="non_idempotent_write")
def pay() -> str:
    raise AssertionError("nobody approved it")


def test_steering_waits_for_a_task_and_its_question(tmp_path: Path) -> None:
    async def scenario() -> None:
        reports = Reports()
        both = ask(call("report", {"month": "May"}), call("pay"))
        async with live_session(tmp_path, script(both, say("done")), tools=[reports.tool(), pay]) as session:
            await session.say("report, please")
            await session.record("report", "waiting_for_task")
            await session.interrupts()
            await session.steer("do not pay")
            await session.record("pay", "rejected")
            await poll_now(session)
            await session.answer(IN_WHICH, "EUR")
            await poll_now(session)
            assert await session.idle() == "done"
            assert session.results_seen() == ["report of May in EUR", TOOL_CALL_CANCELLED_BY_STEERING_RESULT]
            assert session.users_seen() == ["report, please", "do not pay"]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_asking", [False, True])
def test_stopping_the_turn_stops_the_task(tmp_path: Path, is_asking: bool) -> None:
    async def scenario() -> None:
        reports = Reports()
        async with live_session(
            tmp_path, script(ask(call("report", {"month": "May"})), say("hello")), tools=[reports.tool()]
        ) as session:
            await session.say("report, please")
            await session.record("report", "waiting_for_task")
            if is_asking:
                await poll_now(session)
                await session.interrupts()
            await session.cancel_turn()
            assert await session.idle() == OUTCOME_UNKNOWN_TOOL_RESULT
            assert reports.cancelled == ["job-1"]
            await session.say("next")
            assert await session.idle() == "hello"
            assert session.results_seen() == [OUTCOME_UNKNOWN_TOOL_RESULT]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("effect", "seen"),
    [
        ("read", MISSING_TOOL_TASK_POLLER),
        ("idempotent_write", OUTCOME_UNKNOWN_TOOL_RESULT),
        ("non_idempotent_write", OUTCOME_UNKNOWN_TOOL_RESULT),
    ],
)
def test_a_task_nobody_can_follow_is_started_once_and_decided_by_its_effect(
    tmp_path: Path, effect: Any, seen: str
) -> None:
    """Another tool of the agent polls, so the session itself would follow tasks."""
    starts: list[str] = []

    @function_tool(effect=effect, requires_approval=False)
    def start(context: ToolCallContext) -> ToolTaskStarted:
        assert not context.supports_tool_tasks
        starts.append(context.idempotency_key)
        return ToolTaskStarted(task_id="job-1", poll_interval_seconds=1)

    async def scenario() -> None:
        async with live_session(
            tmp_path, script(ask(call("start")), say("done")), tools=[start, Reports().tool()]
        ) as session:
            await session.say("go")
            assert await session.idle() == "done"
            assert session.results_seen() == [seen]
            assert len(starts) == 1

    asyncio.run(scenario())
