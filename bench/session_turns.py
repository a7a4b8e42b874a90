"""Turns of real sessions on the embedded engine, driven and awaited through the public client."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.measurements import Round, run_round
from bench.scripted_agent import USER_TEXT, ToolKind, create_benchmark_flow
from bench.statement_recording import Recording, record_statements, recordable_connections
from dex_agents.client import AgentSessionClient
from dex_flow.embedded import EmbeddedEngine

__all__ = [
    "Durability",
    "LongSession",
    "TurnCosts",
    "measure_turn_costs",
    "open_sessions",
    "record_session_round",
    "run_lanes",
    "run_long_session",
    "run_session_round",
    "run_turns",
    "session_lanes",
]

Durability = Literal["power", "process"]

TURN_TIMEOUT_SECONDS = 60.0
# The model's input grows with a session. Rounds are about everything else, so their sessions stay short.
TURNS_PER_SESSION = 8


class TurnFailedError(Exception):
    """A turn of the benchmark did not end with its answer, so its time means nothing."""


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """What a turn costs, whatever the machine does meanwhile.

    Attributes:
        commits: Commits that were flushed to disk.
        live_commits: Further commits, not flushed, for live events.
        stored_bytes: Growth of the database file.
    """

    commits: float
    live_commits: float
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class LongSession:
    """Seconds of every turn of one session, and how they split.

    Attributes:
        latencies: Seconds per turn, in order.
        model_attempts: Seconds of every turn that its model attempts took, which load the model input.
    """

    latencies: list[float]
    model_attempts: list[float]


@contextlib.asynccontextmanager
async def open_sessions(
    path: Path, session_ids: Sequence[str], durability: Durability, tool_kind: ToolKind
) -> AsyncIterator[tuple[EmbeddedEngine, AgentSessionClient, Sequence[str]]]:
    """An engine on a file with these sessions started."""
    flow = create_benchmark_flow(tool_kind)
    async with EmbeddedEngine(path, [flow], durability=durability) as engine:
        client = AgentSessionClient(engine, flow)
        await asyncio.gather(*(client.start_session(session_id) for session_id in session_ids))
        yield engine, client, session_ids


async def _run_session(client: AgentSessionClient, session_id: str, turns: int) -> list[float]:
    latencies = []
    for _ in range(turns):
        start = time.perf_counter()
        await client.send_user_message(session_id, USER_TEXT)
        state = await client.wait_until_idle(session_id, timeout=TURN_TIMEOUT_SECONDS)
        latencies.append(time.perf_counter() - start)
        if state.last_turn_error is not None:
            raise TurnFailedError(f"a turn of {session_id} failed: {state.last_turn_error}")
    return latencies


async def _run_lane(client: AgentSessionClient, session_ids: Sequence[str], turns: int) -> list[float]:
    latencies: list[float] = []
    for session_id in session_ids:
        left = turns - len(latencies)
        latencies += await _run_session(client, session_id, min(left, TURNS_PER_SESSION))
    return latencies


def session_lanes(lanes: int, turns: int) -> list[list[str]]:
    """The short sessions that each lane runs one after the other."""
    per_lane = -(-turns // TURNS_PER_SESSION)
    return [[f"session-{lane * per_lane + number}" for number in range(per_lane)] for lane in range(lanes)]


def _session_ids(sessions: int) -> list[str]:
    return [f"session-{number}" for number in range(sessions)]


async def run_lanes(client: AgentSessionClient, lanes: Sequence[Sequence[str]], turns: int) -> list[float]:
    """Run lanes at the same time; returns the seconds of every turn."""
    groups = await asyncio.gather(*(_run_lane(client, session_ids, turns) for session_ids in lanes))
    return [seconds for group in groups for seconds in group]


async def run_session_round(path: Path, lanes: int, turns: int, durability: Durability) -> Round:
    """Run a number of lanes at the same time on a new file; each runs short sessions one after the other.

    Args:
        path: The file.
        lanes: How many sessions run at the same time.
        turns: Turns of each lane.
        durability: What a commit survives.
    """
    session_ids = session_lanes(lanes, turns)
    sessions = sum(map(len, session_ids))
    async with open_sessions(path, _session_ids(sessions), durability, "single_attempt") as (_, client, _):
        return await run_round(lambda: run_lanes(client, session_ids, turns))


async def record_session_round(path: Path, lanes: int, turns: int) -> Recording:
    """Run such a round once, not timed, and record what SQLite runs for it."""
    session_ids = session_lanes(lanes, turns)
    recording = Recording(path.with_suffix(".start"))
    with recordable_connections():
        async with open_sessions(path, _session_ids(sum(map(len, session_ids))), "power", "single_attempt") as (
            _,
            client,
            _,
        ):
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(recording.database),))
            with record_statements(recording):
                await run_lanes(client, session_ids, turns)
    return recording


async def run_turns(path: Path, turns: int) -> None:
    """Run turns of one session on a new file with every commit flushed, for whoever counts system calls."""
    async with open_sessions(path, _session_ids(1), "power", "single_attempt") as (_, client, [session_id]):
        await _run_session(client, session_id, turns)


async def measure_turn_costs(path: Path, turns: int, tool_kind: ToolKind) -> TurnCosts:
    """Count commits and bytes per turn of one session on a new file."""
    async with open_sessions(path, _session_ids(1), "power", tool_kind) as (_, client, [session_id]):
        await _run_session(client, session_id, 1)
    size = path.stat().st_size
    flow = create_benchmark_flow(tool_kind)
    async with EmbeddedEngine(path, [flow], durability="power") as engine:
        client = AgentSessionClient(engine, flow)
        commits, durable = engine.counters.commits, engine.counters.durable_commits
        await _run_session(client, session_id, turns)
        commits, durable = engine.counters.commits - commits, engine.counters.durable_commits - durable
    return TurnCosts(
        commits=round(durable / turns, 2),
        live_commits=round((commits - durable) / turns, 2),
        stored_bytes=round((path.stat().st_size - size) / turns),
    )


async def run_long_session(path: Path, turns: int) -> LongSession:
    """Run one session of many turns on a new file, in `process`: what grows is no flush, and flushes vary most."""
    async with open_sessions(path, _session_ids(1), "process", "single_attempt") as (engine, client, [session_id]):
        latencies = await _run_session(client, session_id, turns)
        history = await engine.read_step_history(session_id, limit=1_000 * turns)
    model_attempts = [
        (entry.finished_at - entry.started_at).total_seconds()
        for entry in history
        if entry.step_type == "RunModel" and entry.method == "run"
    ]
    return LongSession(
        latencies=latencies,
        model_attempts=[sum(model_attempts[index : index + 2]) for index in range(0, 2 * turns, 2)],
    )
