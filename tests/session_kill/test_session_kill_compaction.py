"""F39: a worker dies at every point of a compaction in the middle of a turn; the next one makes one summary of it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from bench.compacting_runner import ANSWER_TEXT, TOOL_OUTPUT
from dex_agents import AgentSessionClient, AgentStatus
from dex_agents.session.persistence import AGENT_EVENTS
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import ProgramProcess, ProgramProcesses
from tests.session_kill.compacting_agent import COMPACT, GatedCompactingAgent, create_gated_compacting_flow
from tests.session_kill.forked_workers import worker_fork_server
from tests.session_kill.sessions import WAIT_SECONDS

pytestmark = pytest.mark.processes

WORKER_PROGRAM = Path(__file__).parent / "programs" / "compacting_worker.py"
DEADLINE_SECONDS = 100.0

# Where the worker dies: how many summary calls that makes, which status is stored then, and which events.
POINTS = {
    "before_summary": (1, AgentStatus.COMPACTING_CONTEXT),
    "after_summary": (2, AgentStatus.COMPACTING_CONTEXT),
    "CompactContext.commit": (2, AgentStatus.COMPACTING_CONTEXT),
    "model_after_summary": (1, AgentStatus.RUNNING_MODEL),
}


@pytest.mark.parametrize("point", POINTS)
def test_f39_a_worker_killed_in_a_compaction_leaves_one_summary_and_loses_no_result(tmp_path: Path, point: str) -> None:
    summary_calls, stored_status = POINTS[point]
    database = tmp_path / "sessions.db"
    agent = GatedCompactingAgent(tmp_path)
    flow = create_gated_compacting_flow(agent)
    gate = f"s.{point}"

    async def scenario(processes: ProgramProcesses) -> None:
        workers: list[ProgramProcess] = []

        async def start_worker() -> ProgramProcess:
            arguments = (str(database), str(tmp_path))
            fork_server = worker_fork_server()
            workers.append(
                await asyncio.to_thread(processes.start, WORKER_PROGRAM, *arguments, fork_server=fork_server)
            )
            return workers[-1]

        async def check(client: AgentSessionClient, engine: EmbeddedEngine) -> None:
            worker = await start_worker()
            await client.start_session("s", initial_message="one")
            await client.send_and_wait("s", "two", timeout=WAIT_SECONDS)
            agent.gates.close(gate)
            await client.send_user_message("s", COMPACT)
            await asyncio.to_thread(agent.gates.wait_until_reached, gate, process=worker.process_id)
            worker.kill()
            agent.gates.open(gate)
            snapshot = await client.get_agent_snapshot("s")
            assert snapshot.state is not None
            assert snapshot.state.status is stored_status
            assert (snapshot.context_summary is None) == (stored_status is AgentStatus.COMPACTING_CONTEXT)
            assert [call.output for call in snapshot.tool_calls] == [TOOL_OUTPUT]

            successor = await start_worker()
            state = await client.wait_until_idle("s", timeout=WAIT_SECONDS)
            assert (state.last_turn_error, state.turn_compaction_error) == (None, None)
            snapshot = await client.get_agent_snapshot("s")
            summary = snapshot.context_summary
            assert summary is not None
            assert (summary.generation, summary.last_sequence) == (1, 8)
            assert [message.sequence for message in snapshot.messages] == list(range(1, 13))
            turn = [(message.role, message.text) for message in snapshot.messages[-4:]]
            assert turn == [("user", COMPACT), ("assistant", ""), ("tool", TOOL_OUTPUT), ("assistant", ANSWER_TEXT)]

            attempts = [line.attempt for line in agent.log.read() if line.event == "summary"]
            assert attempts == ([1, 2] if summary_calls == 2 else [2] if point == "before_summary" else [1])
            # Every tool ran once, and no finished model call was made again.
            assert set(agent.log.count("tool").values()) == {1}
            assert set(agent.log.count("model").values()) == {1}
            stream = flow.streams[AGENT_EVENTS.name]
            events = [event.value.type for event in await engine.read_stream("s", stream, limit=10_000)]
            compaction = [event for event in events if event.startswith("compaction")]
            assert compaction == ["compaction_started", "compaction_finished"]
            # Two summaries may have been paid for; what is stored counts one.
            assert snapshot.usage.model_calls == 3 * 2 + 1

            result = await client.send_and_wait("s", "and then?", timeout=WAIT_SECONDS)
            assert result.text == ANSWER_TEXT
            assert await asyncio.to_thread(successor.stop) == 0

        async with EmbeddedEngine(database, flows=[flow], runs_worker=False) as engine:
            try:
                await check(AgentSessionClient(engine, flow), engine)
            finally:
                # A worker that is held inside its transaction would keep this engine from closing.
                for started in workers:
                    if started.is_running:
                        started.kill()

    async def within_deadline(processes: ProgramProcesses) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await scenario(processes)

    with ProgramProcesses() as processes:
        asyncio.run(within_deadline(processes))
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()
