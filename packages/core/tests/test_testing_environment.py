"""The testing kit as its users meet it: an environment, worker processes that die, and waits in vain."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dex_agents import AgentStatus, TurnStatus
from dex_agents.testing import (
    AgentTestEnvironment,
    ProcessFailedError,
    SessionWaitTimeoutError,
    poll_until,
    read_step_history,
)
from dex_agents.testing.worker_program import CLOSED_LINE, READY_LINE
from dex_flow.testing.fork_server import ForkServer

from .kit_agent import create_broken_flow, create_flow

Scenario = Callable[[AgentTestEnvironment], Awaitable[None]]


def play(scenario: Scenario, *, runs_worker: bool = True, timeout: float = 30.0) -> None:
    async def within_environment() -> None:
        async with AgentTestEnvironment(create_flow, runs_worker=runs_worker, timeout=timeout) as environment:
            await scenario(environment)

    asyncio.run(within_environment())


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.processes
def test_a_refund_that_was_killed_is_not_repeated() -> None:
    async def scenario(environment: AgentTestEnvironment) -> None:
        gate, sessions = environment.gate("refunding"), environment.client
        gate.close()
        worker = await environment.start_worker()
        first = worker.process_id
        await sessions.start_session("s", initial_message="refund_order")
        await sessions.approve("s", tool_name="refund_order")
        assert await gate.wait_until_reached() == first
        await worker.kill()
        assert not worker.is_running
        gate.open()
        await worker.restart()
        assert worker.process_id != first
        await sessions.wait_until_idle("s")
        assert [(line.attempt, line.process) for line in environment.log.read()] == [(1, first)]
        assert await sessions.read_tool_call_statuses("s") == [("refund_order", "outcome_unknown")]
        outcomes = [step.outcome for step in await read_step_history(environment.engine, "s")]
        assert outcomes.count("lost") == 1

    play(scenario, runs_worker=False)


@pytest.mark.processes
def test_a_forked_worker_is_killed_and_started_again_like_any_other() -> None:
    async def scenario(environment: AgentTestEnvironment) -> None:
        gate, sessions = environment.gate("refunding"), environment.client
        gate.close()
        worker = await environment.start_worker(fork_server=server)
        first = worker.process_id
        await sessions.start_session("s", initial_message="refund_order")
        await sessions.approve("s", tool_name="refund_order")
        assert await gate.wait_until_reached() == first
        await worker.kill()
        assert not worker.is_running  # its exit code is known, while its process ID may still wait to be collected
        gate.open()
        await worker.start()
        await sessions.wait_until_idle("s")
        assert [line.process for line in environment.log.read()] == [first]
        assert await sessions.read_tool_call_statuses("s") == [("refund_order", "outcome_unknown")]
        await worker.stop()
        assert CLOSED_LINE in worker.output

    import_path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with ForkServer(["dex_flow.embedded", "dex_agents.testing"], import_path) as server:
        play(scenario, runs_worker=False)


@pytest.mark.processes
def test_nothing_is_left_of_an_environment_whose_test_fails() -> None:
    seen: list[tuple[int, Path]] = []

    async def scenario(environment: AgentTestEnvironment) -> None:
        environment.gate("refunding").close()
        worker = await environment.start_worker()
        seen.append((worker.process_id, environment.directory))
        await environment.client.start_session("s", initial_message="refund_order")
        await environment.client.approve("s")
        await environment.gate("refunding").wait_until_reached()
        raise LookupError("the test fails")

    with pytest.raises(LookupError):
        play(scenario, runs_worker=False)
    ((process_id, directory),) = seen
    assert not is_alive(process_id)
    assert not directory.exists()


@pytest.mark.processes
def test_a_worker_that_is_stopped_ends_in_good_order_and_can_be_started_again() -> None:
    async def scenario(environment: AgentTestEnvironment) -> None:
        worker = await environment.start_worker()
        with pytest.raises(RuntimeError, match="runs already"):
            await worker.start()
        await worker.stop()
        assert READY_LINE in worker.output
        assert CLOSED_LINE in worker.output
        await worker.start()
        assert CLOSED_LINE not in worker.output

    play(scenario, runs_worker=False)


@pytest.mark.processes
def test_a_worker_that_cannot_start_shows_what_it_printed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AgentTestEnvironment(create_flow, directory=tmp_path) as environment:
            environment._flow_factory = create_broken_flow
            await environment.start_worker()

    with pytest.raises(ProcessFailedError, match="RuntimeError: no agent in"):
        asyncio.run(scenario())
    assert (tmp_path / "sessions.db").exists(), "a given directory is kept"


@pytest.mark.processes
def test_a_worker_ends_with_the_process_of_the_test(tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(
        "import asyncio, os, signal, sys\n"
        "from dex_agents.testing import AgentTestEnvironment\n"
        "async def main():\n"
        f"    async with AgentTestEnvironment({str(Path(__file__).with_name('kit_agent.py'))!r} + ':create_flow',\n"
        "            directory=__import__('pathlib').Path(sys.argv[1])) as environment:\n"
        "        worker = await environment.start_worker()\n"
        "        print(worker.process_id, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    died = subprocess.run([sys.executable, program, tmp_path], stdout=subprocess.PIPE, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    worker = int(died.stdout)
    asyncio.run(poll_until(lambda: not is_alive(worker), awaited="the end of the worker"))


def test_a_worker_in_the_test_process_needs_no_other() -> None:
    async def scenario(environment: AgentTestEnvironment) -> None:
        sessions = environment.client
        await sessions.start_session("s")
        rejected = await sessions.send_and_wait("s", "refund_order")
        assert rejected.status is TurnStatus.WAITING_FOR_PERSON
        await sessions.reject("s", "not today")
        assert "not today" in (await sessions.wait_for_turn(rejected.sent_message)).text
        asked = await sessions.send_and_wait("s", "ask_amount")
        await sessions.approve("s", tool_name="ask_amount")
        interrupt = await sessions.answer("s", "5")
        assert interrupt.question == "How much?"
        assert "5 refunded" in (await sessions.wait_for_turn(asked.sent_message)).text
        snapshot = await sessions.wait_for_status("s", AgentStatus.WAITING_FOR_USER_MESSAGE)
        assert snapshot.state is not None
        assert snapshot.state.turn_count == 2
        statuses = await sessions.read_tool_call_statuses("s")
        assert statuses == [("refund_order", "rejected"), ("ask_amount", "succeeded")]
        assert environment.log.read() == []

    play(scenario)


def test_a_wait_in_vain_shows_the_session() -> None:
    async def scenario(environment: AgentTestEnvironment) -> None:
        sessions = environment.client
        await sessions.start_session("s", initial_message="refund_order")
        await sessions.wait_for_interrupt("s", timeout=30)
        for wait in (
            sessions.wait_until_idle("s", timeout=0),
            sessions.wait_for_interrupt("s", kind="question", timeout=0),
            sessions.wait_for_status("s", AgentStatus.COMPACTING_CONTEXT, timeout=0),
        ):
            with pytest.raises(SessionWaitTimeoutError) as raised:
                await wait
            assert isinstance(raised.value, TimeoutError)
            for shown in ("it waits for a person: approval", '"tool_name": "refund_order"', "RunModel.run, attempt 1"):
                assert shown in str(raised.value)

    play(scenario)


def test_a_wait_without_a_timeout_has_the_deadline_of_the_environment() -> None:
    async def scenario(environment: AgentTestEnvironment) -> None:
        await environment.client.start_session("s")
        with pytest.raises(SessionWaitTimeoutError, match=r"did not reach a pending interrupt within 0\.05 s"):
            await environment.client.wait_for_interrupts("s")

    play(scenario, runs_worker=False, timeout=0.05)


def test_a_decision_that_does_not_count_says_why() -> None:
    async def scenario(environment: AgentTestEnvironment) -> None:
        sessions = environment.client
        await sessions.start_session("s", initial_message="ask_amount")
        await sessions.approve("s")
        await sessions.wait_for_interrupt("s", kind="question")
        with pytest.raises(AssertionError, match="the answer of ask_amount in session 's': blank_answer"):
            await sessions.answer("s", " ")

    play(scenario)


def test_a_factory_that_no_worker_can_find_is_refused() -> None:
    async def scenario() -> None:
        async with AgentTestEnvironment(lambda directory: create_flow(directory)) as environment:
            await environment.start_worker()

    with pytest.raises(ValueError, match="no function of a module"):
        asyncio.run(scenario())
