"""Processes killed behind a tool's effect: what a session does, and what LangGraph's own checkpointer does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import langgraph_crash_program
import pytest
from langgraph_crash_program import GATE, GRAPHS

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents.testing import AgentTestEnvironment, FileGate, InvocationLog, poll_until
from dex_flow.testing import ProgramProcesses
from dex_flow.testing.fork_server import ForkServer

PROGRAM = Path(langgraph_crash_program.__file__)


class Crashed(NamedTuple):
    look_ups: int
    charges: int
    answer: str


@pytest.fixture(scope="module")
def imported() -> Iterator[ForkServer]:
    # asyncio, the checkpointer and the worker's own modules are imported once.
    modules = [PROGRAM.stem, "langgraph.checkpoint.sqlite.aio", "dex_agents.testing.worker_program"]
    with ForkServer(modules, {"PYTHONPATH": str(PROGRAM.parent)}) as server:
        yield server


async def _wait_until_both_ran(directory: Path, log: InvocationLog, process_id: int) -> None:
    await FileGate(directory, GATE).wait_until_reached(process=process_id, timeout=60)
    await poll_until(lambda: bool(log.count("look_up")), awaited="the lookup", timeout=60)


def _crashed(log: InvocationLog, answer: str) -> Crashed:
    return Crashed(sum(log.count("look_up").values()), sum(log.count("charge").values()), answer)


async def _in_a_session(directory: Path, graph: str, imported: ForkServer) -> tuple[Crashed, list[tuple[str, str]]]:
    factory = f"{PROGRAM}:{GRAPHS[graph][1].__name__}"
    async with AgentTestEnvironment(factory, directory=directory, timeout=100) as environment:
        gate = environment.gate(GATE)
        gate.close()
        worker = await environment.start_worker(fork_server=imported)
        await environment.client.start_session("session", initial_message="go")
        await _wait_until_both_ran(directory, environment.log, worker.process_id)
        # The lookup's Step has ended, and its result is stored.
        await poll_until(lambda: _is_final(environment, "look_up"), awaited="the lookup's end", timeout=60)
        await worker.kill()
        gate.open()
        await worker.start()
        await environment.client.wait_until_idle("session")
        statuses = await environment.client.read_tool_call_statuses("session")
        messages = (await environment.client.get_agent_snapshot("session")).messages
        return _crashed(environment.log, messages[-1].text), statuses


async def _is_final(environment: AgentTestEnvironment, tool: str) -> bool:
    return (tool, "succeeded") in await environment.client.read_tool_call_statuses("session")


async def _with_a_checkpointer(directory: Path, graph: str, imported: ForkServer) -> Crashed:
    gate, log = FileGate(directory, GATE), InvocationLog(directory / "invocations.jsonl")
    gate.close()
    with ProgramProcesses() as processes:
        killed = processes.start(PROGRAM, str(directory), graph, fork_server=imported, ready_line=None)
        await _wait_until_both_ran(directory, log, killed.process_id)
        killed.kill()
        gate.open()
        resumed = processes.start(PROGRAM, str(directory), graph, "resume", fork_server=imported, ready_line=None)
        assert await asyncio.to_thread(resumed.wait_for_end, timeout=60) == 0, resumed.output
        return _crashed(log, resumed.output.partition("answered ")[2].strip())


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_session_charges_once_where_the_sqlite_checkpointer_charges_twice(
    graph: str, tmp_path: Path, imported: ForkServer
) -> None:
    ours, native = tmp_path / "session", tmp_path / "checkpointer"
    ours.mkdir()
    native.mkdir()
    session, statuses = asyncio.run(_in_a_session(ours, graph, imported))
    checkpointer = asyncio.run(_with_a_checkpointer(native, graph, imported))

    assert session == Crashed(look_ups=1, charges=1, answer=f"Then: {OUTCOME_UNKNOWN_TOOL_RESULT}")
    assert sorted(statuses) == [("charge", "outcome_unknown"), ("look_up", "succeeded")]
    assert (checkpointer.charges, checkpointer.answer) == (2, "Then: charged")
    # `create_agent` gives each call a task, so a finished one may be kept; a ToolNode's calls are one task.
    assert checkpointer.look_ups == 2 or graph == "agent"
