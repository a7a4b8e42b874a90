"""What `cancel_turn` does to a runner that is at work, on the embedded engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dex_agents import (
    AgentSessionClient,
    AgentTurnContext,
    DeferredToolCall,
    DeferredToolExecution,
    FrameworkMessage,
    ResolvedToolPolicy,
    SyncCallThreads,
    ToolCallsRequested,
    ToolEffect,
    ToolExecutionResult,
    ToolTaskCancellation,
    ToolTaskPending,
    ToolTaskPoll,
    ToolTaskStarted,
    TurnCompleted,
    create_agent_session_flow,
)
from dex_agents.client_results import TurnStatus
from dex_flow.embedded import EmbeddedEngine

WAIT_SECONDS = 60
READ = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)


class StubRunner:
    """A runner made of functions, which counts what it is asked to do."""

    def __init__(
        self,
        step: Callable[[AgentTurnContext], Awaitable[Any]],
        tool: Callable[[DeferredToolExecution], Awaitable[Any]] | None = None,
        poll: Callable[[ToolTaskPoll], Awaitable[Any]] | None = None,
    ) -> None:
        self._step = step
        self._tool = tool
        self._poll = poll
        self.cancelled_tasks: list[str | None] = []

    def build_user_message(self, text: str) -> FrameworkMessage:
        return FrameworkMessage(role="user", framework_item=json.dumps(text), text=text)

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        return ()

    async def run_model_step(self, turn: AgentTurnContext) -> Any:
        return await self._step(turn)

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> Any:
        assert self._tool is not None
        return await self._tool(call)

    async def poll_tool_task(self, poll: ToolTaskPoll) -> Any:
        assert self._poll is not None
        return await self._poll(poll)

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        self.cancelled_tasks.append(cancellation.tool_call.task_id)


async def call_the_tool(turn: AgentTurnContext) -> ToolCallsRequested:
    call = DeferredToolCall(tool_call_id="c1", tool_name="work", arguments="{}", policy=READ)
    return ToolCallsRequested(framework_run_state="asked", tool_calls=(call,))


@contextlib.asynccontextmanager
async def opened(folder: Path, runner: StubRunner) -> AsyncIterator[AgentSessionClient]:
    flow = create_agent_session_flow(runner, "StubAgent")
    async with EmbeddedEngine(folder / "agents.db", flows=[flow], durability="process") as engine:
        yield AgentSessionClient(engine, flow)


def run(scenario: Awaitable[None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await scenario

    asyncio.run(main())


class PlainRunner(StubRunner):
    """A runner that leaves the transcript of an unfinished turn to the session's note."""

    build_unfinished_turn_messages = None  # type: ignore[assignment]


@pytest.mark.parametrize("runner_class", [StubRunner, PlainRunner])
def test_a_model_call_that_waits_is_cancelled_and_its_finally_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, runner_class: type[StubRunner]
) -> None:
    async def scenario() -> None:
        is_running, is_cleaned_up = asyncio.Event(), asyncio.Event()
        seen: list[BaseException] = []

        async def hang(turn: AgentTurnContext) -> TurnCompleted:
            turn.events.write_text_delta("begun")
            try:
                is_running.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                seen.append(error)
                raise
            finally:
                await asyncio.sleep(0)  # cleaning up may await
                is_cleaned_up.set()
            raise AssertionError

        async with opened(tmp_path, runner_class(hang)) as client:
            await client.start_session("s")
            sent = await client.send_with_receipt("s", "go")
            await is_running.wait()
            assert await client.cancel_turn("s")
            await is_cleaned_up.wait()
            assert [type(error) for error in seen] == [asyncio.CancelledError]
            assert (await client.wait_for_turn(sent)).status is TurnStatus.CANCELLED

    run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("swallows", [False, True], ids=["passes the cancellation on", "turns it into an answer"])
def test_what_a_cancelled_model_call_writes_or_returns_late_is_dropped(tmp_path: Path, swallows: bool) -> None:
    async def scenario() -> None:
        is_running, is_over, write_more = asyncio.Event(), asyncio.Event(), asyncio.Event()
        writers: list[asyncio.Task[None]] = []

        async def stream(turn: AgentTurnContext) -> TurnCompleted:
            async def write_later() -> None:
                await write_more.wait()
                turn.events.write_text_delta("from a task left behind")
                turn.events.write_event("stub.late", {})
                turn.heartbeat()

            if turn.turn_id == "turn-2":
                return TurnCompleted(new_messages=())
            writers.append(asyncio.create_task(write_later()))
            turn.events.write_text_delta("early ")
            is_running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                turn.events.write_text_delta("late")
                if not swallows:
                    raise
            finally:
                is_over.set()
            late = FrameworkMessage(role="assistant", framework_item='"late"', text="late")
            return TurnCompleted(new_messages=(late,))

        async with opened(tmp_path, StubRunner(stream)) as client:
            await client.start_session("s")
            sent = await client.send_with_receipt("s", "go")
            await is_running.wait()
            assert await client.cancel_turn("s")
            await is_over.wait()
            write_more.set()
            await asyncio.gather(*writers)
            stopped = await client.wait_for_turn(sent)
            assert (stopped.status, stopped.messages) == (TurnStatus.CANCELLED, ())
            assert (await client.send_and_wait("s", "again")).status is TurnStatus.COMPLETED
            snapshot = await client.get_agent_snapshot("s")
            assert [stored.text for stored in snapshot.messages] == ["go", "again"]
            types = await events_until(client, "turn_completed")
            assert "stub.late" not in [kind for kind, _ in types]
            assert {text for kind, text in types if kind == "text_delta"} <= {"early "}
            cancelled = [kind for kind, _ in types].index("turn_cancelled")
            assert "text_delta" not in [kind for kind, _ in types[cancelled:]]

    run(scenario())


async def events_until(client: AgentSessionClient, last: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    events = client.stream_events("s")
    async for event in events:
        found.append((event.type, event.payload.get("text")))
        if event.type == last:
            break
    await events.aclose()
    return found


def test_a_tool_in_a_thread_runs_to_its_end_and_its_result_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, release = threading.Event(), threading.Event()

        def work() -> str:
            begun.set()
            assert release.wait(WAIT_SECONDS)
            return "worked"

        async def tool(call: DeferredToolExecution) -> ToolExecutionResult:
            return ToolExecutionResult(output=await threads.run(work))

        threads = SyncCallThreads(1)
        try:
            async with opened(tmp_path, StubRunner(call_the_tool, tool)) as client:
                await client.start_session("s")
                sent = await client.send_with_receipt("s", "go")
                await asyncio.to_thread(begun.wait, WAIT_SECONDS)
                assert await client.cancel_turn("s")
                with pytest.raises(TimeoutError, match=r"work \(running, attempt 1\), and was cancelled"):
                    await client.wait_for_turn(sent, timeout=0)
                release.set()
                assert (await client.wait_for_turn(sent)).status is TurnStatus.CANCELLED
                finished = [status async for status in finished_calls(client)]
                assert finished == ["succeeded"]
        finally:
            release.set()
            threads.close()

    run(scenario())


async def finished_calls(client: AgentSessionClient) -> AsyncIterator[str]:
    events = client.stream_events("s")
    async for event in events:
        if event.type == "tool_call_finished":
            yield event.payload["status"]
        if event.type == "turn_cancelled":
            break
    await events.aclose()


def test_a_model_client_in_a_thread_is_left_to_finish_while_the_turn_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        begun, release, ended = threading.Event(), threading.Event(), threading.Event()

        def call_the_model() -> str:
            begun.set()
            assert release.wait(WAIT_SECONDS)
            ended.set()
            return "too late"

        async def step(turn: AgentTurnContext) -> TurnCompleted:
            text = await threads.run(call_the_model)
            answer = FrameworkMessage(role="assistant", framework_item='"x"', text=text)
            return TurnCompleted(new_messages=(answer,))

        threads = SyncCallThreads(1)
        try:
            async with opened(tmp_path, StubRunner(step)) as client:
                await client.start_session("s")
                sent = await client.send_with_receipt("s", "go")
                await asyncio.to_thread(begun.wait, WAIT_SECONDS)
                assert await client.cancel_turn("s")
                stopped = await client.wait_for_turn(sent)
                assert not ended.is_set()
                release.set()
                await threads.run(lambda: None)  # the same thread, so the call before it is over
                assert ended.is_set()
                assert (stopped.status, stopped.messages) == (TurnStatus.CANCELLED, ())
                assert await client.wait_for_turn(sent) == stopped
        finally:
            release.set()
            threads.close()

    run(scenario())


def test_a_poll_that_waits_is_cancelled_and_its_task_is_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        is_polling, is_cleaned_up = asyncio.Event(), asyncio.Event()

        async def start(call: DeferredToolExecution) -> ToolTaskStarted:
            assert call.supports_tool_tasks
            return ToolTaskStarted(task_id="job-1", poll_interval_seconds=1)

        async def poll(poll: ToolTaskPoll) -> ToolTaskPending:
            is_polling.set()
            try:
                await asyncio.Event().wait()
            finally:
                is_cleaned_up.set()
            raise AssertionError

        runner = StubRunner(call_the_tool, start, poll)
        async with opened(tmp_path, runner) as client:
            await client.start_session("s")
            sent = await client.send_with_receipt("s", "go")
            await is_polling.wait()
            assert await client.cancel_turn("s")
            await is_cleaned_up.wait()
            assert (await client.wait_for_turn(sent)).status is TurnStatus.CANCELLED
            assert runner.cancelled_tasks == ["job-1"]

    run(scenario())


def test_a_hundred_cancelled_model_calls_leave_no_task_and_no_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        running: asyncio.Queue[int] = asyncio.Queue()
        open_calls = 0

        async def hang(turn: AgentTurnContext) -> TurnCompleted:
            nonlocal open_calls
            if turn.messages[-1].text == "answer":
                return TurnCompleted(new_messages=())
            open_calls += 1
            try:
                running.put_nowait(open_calls)
                turn.events.write_text_delta("x")
                await asyncio.gather(asyncio.Event().wait(), asyncio.sleep(1_000))
            finally:
                open_calls -= 1
            raise AssertionError

        async with opened(tmp_path, StubRunner(hang)) as client:
            await client.start_session("s")
            await client.send_and_wait("s", "answer")
            tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
            for _ in range(100):
                sent = await client.send_with_receipt("s", "go")
                await running.get()
                assert await client.cancel_turn("s")
                assert (await client.wait_for_turn(sent)).status is TurnStatus.CANCELLED
            assert (await client.send_and_wait("s", "answer")).status is TurnStatus.COMPLETED
            while asyncio.all_tasks() - tasks:
                await asyncio.wait(asyncio.all_tasks() - tasks)
            assert open_calls == 0
            assert set(threading.enumerate()) <= threads

    run(scenario())
