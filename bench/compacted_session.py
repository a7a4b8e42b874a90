"""Turns of sessions that compact: what turn 1000 of one takes, beside turn 200 of another."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench.compacting_runner import CompactingRunner, create_compacting_flow
from bench.measurements import median_milliseconds
from bench.scripted_agent import USER_TEXT
from dex_agents import AgentSessionClient, AgentSessionFlow
from dex_flow.embedded import EmbeddedEngine

__all__ = ["CompactedTurns", "UnequalTurnsError", "compare_turns", "run_compacted_session"]

TURN_TIMEOUT_SECONDS = 60.0
# The model's input grows from one compaction to the next, for 28 turns; each median is over two whole cycles.
CYCLE_TURNS = 28


class UnequalTurnsError(Exception):
    """The turns to compare are not alike, so their times mean nothing."""


@dataclass(frozen=True, slots=True)
class CompactedTurns:
    """What the sessions' turns took; the field names are keys of the benchmark's JSON, None when they were not run.

    Attributes:
        compacted_turn_200_ms: Median of turns 172 to 228, compaction on and the message window full.
        compacted_turn_1000_ms: Median of turns 972 to 1028.
        compacted_ratio: The second over the first; at most 1.2 is the target.
    """

    compacted_turn_200_ms: float | None = None
    compacted_turn_1000_ms: float | None = None
    compacted_ratio: float | None = None


async def run_compacted_session(path: Path) -> CompactedTurns:
    """Compare turns 200 and 1000 of sessions on a new file.

    Raises:
        UnequalTurnsError: A session did not compact around them, or its message window was not full.
    """
    early_ms, late_ms = await compare_turns(path, 200, 1_000)
    return CompactedTurns(
        compacted_turn_200_ms=early_ms,
        compacted_turn_1000_ms=late_ms,
        compacted_ratio=round(late_ms / early_ms, 2),
    )


async def compare_turns(path: Path, early_turn: int, late_turn: int) -> tuple[float, float]:
    """Median milliseconds of the turns around two turns, in `process`, like the long session without compaction.

    Two sessions are brought to where their turns are measured; these then alternate, so that noise of the machine hits
    both.
    """
    flow = create_compacting_flow(CompactingRunner())
    async with EmbeddedEngine(path, [flow], durability="process") as engine:
        client = AgentSessionClient(engine, flow)
        early, late = (_Session(engine, client, flow, f"turn-{turn}") for turn in (early_turn, late_turn))
        for session, turn in ((early, early_turn), (late, late_turn)):
            await client.start_session(session.session_id)
            for _ in range(turn - CYCLE_TURNS - 1):
                await session.run_turn()
            await session.begin()
        latencies: dict[_Session, list[float]] = {early: [], late: []}
        for number in range(2 * CYCLE_TURNS + 1):
            for session in (early, late) if number % 2 else (late, early):
                latencies[session].append(await session.run_turn())
        for session in latencies:
            await session.check()
    return median_milliseconds(latencies[early]), median_milliseconds(latencies[late])


class _Session:
    def __init__(
        self, engine: EmbeddedEngine, client: AgentSessionClient, flow: AgentSessionFlow, session_id: str
    ) -> None:
        self._engine = engine
        self._client = client
        self._flow = flow
        self.session_id = session_id
        self._first_generation = 0

    async def run_turn(self) -> float:
        """Seconds of one turn."""
        start = time.perf_counter()
        await self._client.send_user_message(self.session_id, USER_TEXT)
        state = await self._client.wait_until_idle(self.session_id, timeout=TURN_TIMEOUT_SECONDS)
        seconds = time.perf_counter() - start
        if state.last_turn_error is not None:
            raise UnequalTurnsError(f"a turn of {self.session_id} failed: {state.last_turn_error}")
        return seconds

    async def begin(self) -> None:
        """The turns that count come next."""
        state = await self._engine.get_attribute(self.session_id, self._flow.agent_state)
        if state is None or state.last_message_sequence <= self._flow.options.message_window_size:
            raise UnequalTurnsError(f"the message window of {self.session_id} is not full")
        self._first_generation = await self._generation()

    async def check(self) -> None:
        """The turns since then are whole cycles."""
        if await self._generation() - self._first_generation < 2:
            raise UnequalTurnsError(f"{self.session_id} did not compact twice")

    async def _generation(self) -> int:
        summary = await self._engine.get_attribute(self.session_id, self._flow.context_summary)
        return 0 if summary is None else summary.generation
