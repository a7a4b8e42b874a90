"""Remote work of function tools: started once, polled and cancelled by functions of the tool."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dex_agents import (
    DeferredToolOutcome,
    QuestionAnswer,
    RunnerContractError,
    ToolEffect,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskCanceller,
    ToolTaskPending,
    ToolTaskPoller,
    ToolTaskStarted,
)
from dex_agents.session.texts import MISSING_TOOL_TASK_POLLER
from dex_agents_stepwise import (
    FunctionTool,
    MissingToolTaskPollerError,
    ToolCallContext,
    ToolTaskContext,
    function_tool,
)

from .stepwise_agent import Agent
from .stepwise_session_driver import RecordedEvents, task_cancellation, task_poll, tool_call, tool_execution

STARTED = ToolTaskStarted(task_id="job-1", poll_interval_seconds=5)
PENDING = ToolTaskPending(poll_interval_seconds=5, continuation="page 2")


def start() -> ToolTaskStarted:
    return STARTED


def report_tool(poll_task: Callable[[ToolTaskContext], object], **fields: Any) -> FunctionTool[..., Any]:
    return function_tool(start, name="report", poll_task=poll_task, **fields)


def agent_with(*tools: FunctionTool[..., Any]) -> Agent:
    return Agent(tools=tools)


def poll(agent: Agent, **fields: Any) -> object:
    return asyncio.run(agent.runner.poll_tool_task(task_poll(tool_call("report", task_id="job-1", **fields))))


def execute(agent: Agent, effect: ToolEffect = ToolEffect.READ, **fields: Any) -> DeferredToolOutcome:
    execution = tool_execution(tool_call("report", effect=effect), **{"supports_tool_tasks": True, **fields})
    return asyncio.run(agent.runner.execute_deferred_tool_call(execution))


def test_the_runner_says_that_it_polls_and_cancels() -> None:
    runner = agent_with().runner
    assert isinstance(runner, ToolTaskPoller)
    assert isinstance(runner, ToolTaskCanceller)


def test_sync_and_async_functions_receive_the_task() -> None:
    seen: list[tuple[str, ToolTaskContext, bool]] = []
    loop_thread = threading.get_ident()

    def note(what: str, context: ToolTaskContext) -> ToolTaskPending:
        seen.append((what, context, threading.get_ident() == loop_thread))
        context.heartbeat()
        context.events.write_event("progress", {"done": 1})
        return PENDING

    async def note_async(what: str, context: ToolTaskContext) -> ToolTaskPending:
        return note(what, context)

    beats: list[int] = []
    answer = QuestionAnswer(question="Which?", answer="A")
    for function in (note, note_async):
        seen.clear()
        tool = report_tool(functools.partial(function, "poll"), cancel_task=functools.partial(function, "cancel"))
        runner = agent_with(tool).runner
        events = RecordedEvents()
        call = tool_call(
            "report",
            '{"month": "May"}',
            executed_arguments='{"month": "June"}',
            tool_call_id="c9",
            task_id="job-1",
            input_continuation="page 2",
        )

        async def scenario(runner: Any = runner, events: RecordedEvents = events, call: Any = call) -> object:
            asked = task_poll(
                call,
                attempt=2,
                events=events,
                heartbeat=lambda: beats.append(1),
                input_answers=(answer,),
                pending_answer=answer,
            )
            outcome = await runner.poll_tool_task(asked)
            await runner.cancel_tool_task(task_cancellation(call, attempt=3))
            return outcome

        assert asyncio.run(scenario()) == PENDING
        (polled, poll_context, polled_on_loop), (cancelled, cancel_context, cancelled_on_loop) = seen
        assert (polled, cancelled) == ("poll", "cancel")
        assert polled_on_loop == cancelled_on_loop == (function is note_async)
        for context in (poll_context, cancel_context):
            assert (context.task_id, context.continuation) == ("job-1", "page 2")
            assert context.arguments == {"month": "June"}
            assert context.idempotency_key == "session/turn-1/c9"
            assert (context.flow_id, context.turn_id, context.tool_call_id) == ("session", "turn-1", "c9")
        assert (poll_context.attempt, cancel_context.attempt) == (2, 3)
        assert (poll_context.input_answers, poll_context.pending_answer) == ((answer,), answer)
        assert cancel_context.pending_answer is None
        assert events.events == [("progress", {"done": 1})]
    assert len(beats) == 2


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [
        (PENDING, PENDING),
        (ToolInputRequested(question="Which?"), ToolInputRequested(question="Which?")),
        (ToolExecutionResult(output="x", framework_result="y"), ToolExecutionResult(output="x", framework_result="y")),
        ("done", ToolExecutionResult(output="done")),
        ({"rows": 3}, ToolExecutionResult(output='{"rows": 3}')),
        (False, ToolExecutionResult(output="false")),
    ],
)
def test_a_poll_may_go_on_ask_or_end_with_any_result(returned: object, outcome: object) -> None:
    assert poll(agent_with(report_tool(lambda context: returned))) == outcome


@pytest.mark.parametrize("returned", [None, STARTED])
def test_a_poll_that_returns_nothing_is_not_the_end_of_the_task(returned: object) -> None:
    with pytest.raises(RunnerContractError, match="poll_task of tool 'report' must return ToolTaskPending"):
        poll(agent_with(report_tool(lambda context: returned)))


def test_a_tool_cannot_return_what_only_a_poll_may_return() -> None:
    tool = function_tool(lambda: PENDING, name="report", poll_task=lambda context: "done")
    with pytest.raises(RunnerContractError, match="must return ToolTaskStarted"):
        execute(agent_with(tool))


def test_a_poll_with_a_result_without_text_fails_for_the_model() -> None:
    with pytest.raises(ToolExecutionError, match="cannot be turned into text"):
        poll(agent_with(report_tool(lambda context: object())))


def fail_for_the_model(context: ToolTaskContext) -> str:
    raise ToolExecutionError("the report is broken")


async def fail_unexpectedly(context: ToolTaskContext) -> str:
    raise ConnectionResetError("reset")


def test_what_a_poll_raises_passes_through() -> None:
    with pytest.raises(ToolExecutionError, match="the report is broken"):
        poll(agent_with(report_tool(fail_for_the_model)))
    with pytest.raises(ConnectionResetError):
        poll(agent_with(report_tool(fail_unexpectedly)))
    cannot_stop = report_tool(lambda context: PENDING, cancel_task=fail_unexpectedly)
    with pytest.raises(ConnectionResetError):
        asyncio.run(
            agent_with(cannot_stop).runner.cancel_tool_task(task_cancellation(tool_call("report", task_id="job-1")))
        )


def test_a_tool_removed_while_its_task_runs_is_unknown() -> None:
    agent = agent_with()
    with pytest.raises(ToolExecutionError, match=r"^unknown tool report$"):
        poll(agent, effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    asyncio.run(agent.runner.cancel_tool_task(task_cancellation(tool_call("report", task_id="job-1"))))


def test_a_tool_without_cancel_task_is_left_alone() -> None:
    polls: list[ToolTaskContext] = []
    agent = agent_with(report_tool(polls.append))
    asyncio.run(agent.runner.cancel_tool_task(task_cancellation(tool_call("report", task_id="job-1"))))
    assert polls == []


@function_tool(name="report")
def start_without_poller() -> ToolTaskStarted:
    return STARTED


@pytest.mark.parametrize("effect", [effect for effect in ToolEffect if effect is not ToolEffect.READ])
def test_a_write_without_a_poller_is_decided_by_its_effect_without_another_attempt(effect: ToolEffect) -> None:
    agent = agent_with(start_without_poller)
    with pytest.raises(MissingToolTaskPollerError, match="cannot follow") as raised:
        execute(agent, effect)
    assert raised.value.is_retryable is False
    assert str(raised.value) == MISSING_TOOL_TASK_POLLER
    with pytest.raises(MissingToolTaskPollerError):  # a deploy took its poller away
        poll(agent, effect=effect)


def test_a_read_without_a_poller_fails_for_the_model() -> None:
    agent = agent_with(start_without_poller)
    with pytest.raises(ToolExecutionError) as raised:
        execute(agent)
    assert str(raised.value) == MISSING_TOOL_TASK_POLLER
    with pytest.raises(ToolExecutionError, match="cannot follow"):
        poll(agent)


@pytest.mark.parametrize("tool", [start_without_poller, report_tool(lambda context: PENDING)])
def test_a_session_that_polls_nothing_gets_the_task_and_decides(tool: FunctionTool[..., Any]) -> None:
    assert execute(agent_with(tool), ToolEffect.UNCLASSIFIED, supports_tool_tasks=False) == STARTED


@pytest.mark.parametrize("session_polls", [False, True])
def test_each_tool_knows_whether_it_may_start_a_task(session_polls: bool) -> None:
    seen: list[bool] = []

    def look(context: ToolCallContext) -> None:
        seen.append(context.supports_tool_tasks)

    for tool in (function_tool(look, name="report", poll_task=fail_for_the_model), function_tool(look, name="report")):
        execute(agent_with(tool), supports_tool_tasks=session_polls)
    assert seen == [session_polls, False]


def test_an_attempt_after_a_crash_goes_on_with_the_task_it_finds() -> None:
    jobs: list[str] = []

    @function_tool(name="report", poll_task=lambda context: PENDING)
    async def report(context: ToolCallContext) -> ToolTaskStarted:
        job = context.heartbeat_checkpoint
        if job is None:
            jobs.append(context.idempotency_key)
            job = f"job-{len(jobs)}"
            await context.save_heartbeat_checkpoint(job)
        return ToolTaskStarted(task_id=job, poll_interval_seconds=5)

    saved: list[str] = []

    async def save(text: str) -> None:
        saved.append(text)

    agent = agent_with(report)
    first = execute(agent, save_heartbeat_checkpoint=save)
    second = execute(agent, attempt=2, save_heartbeat_checkpoint=save, heartbeat_checkpoint=saved[-1])
    assert first == second == ToolTaskStarted(task_id="job-1", poll_interval_seconds=5)
    assert (len(jobs), saved) == (1, ["job-1"])


def test_the_functions_can_be_tested_with_a_context_of_ones_own() -> None:
    def poll_report(context: ToolTaskContext) -> str:
        context.heartbeat()
        context.events.write_text_delta("x")
        return f"report of {context.task_id}"

    assert report_tool(poll_report).poll_task is poll_report
    assert poll_report(ToolTaskContext(task_id="job-1")) == "report of job-1"


def no_arguments() -> str:
    return ""


def generator(context: ToolTaskContext) -> Any:
    yield "x"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"poll_task": "poll"}, "poll_task must be a function"),
        ({"poll_task": no_arguments}, "poll_task is called with one argument"),
        ({"poll_task": generator}, "generator"),
        ({"poll_task": fail_for_the_model, "cancel_task": 3}, "cancel_task must be a function"),
        ({"cancel_task": fail_for_the_model}, "cancel_task is for a tool with poll_task"),
    ],
)
def test_functions_that_cannot_be_called_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"tool 'start': .*{message}"):
        function_tool(start, **fields)
    with pytest.raises(TypeError, match=f"tool 'start': .*{message}"):
        function_tool(**fields)(start)
