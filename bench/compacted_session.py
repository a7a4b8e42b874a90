"""Turns of one long session that compacts: what turn 1000 takes, beside turn 200."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench.compacting_runner import CompactingRunner, create_compacting_flow
from bench.measurements import median_milliseconds
from bench.scripted_agent import USER_TEXT
from dex_agents import AgentSessionClient
from dex_flow.embedded import EmbeddedEngine

__all__ = ["CompactedTurns", "UnequalTurnsError", "compare_turns", "run_compacted_session"]

TURN_TIMEOUT_SECONDS = 60.0
# The model's input grows from one compaction to the next, for 28 turns; each median is over two whole cycles.
CYCLE_TURNS = 28


class UnequalTurnsError(Exception):
    """The turns to compare are not alike, so their times mean nothing."""


@dataclass(frozen=True, slots=True)
class CompactedTurns:
    """What the session's turns took; the field names are keys of the benchmark's JSON, None when it was not run.

    Attributes:
        compacted_turn_200_ms: Median of turns 172 to 228, compaction on and the message window full.
        compacted_turn_1000_ms: Median of turns 972 to 1028.
        compacted_ratio: The second over the first; at most 1.2 is the target.
    """

    compacted_turn_200_ms: float | None = None
    compacted_turn_1000_ms: float | None = None
    compacted_ratio: float | None = None


async def run_compacted_session(path: Path) -> CompactedTurns:
    """Compare turns 200 and 1000 of a session on a new file.

    Raises:
        UnequalTurnsError: The session did not compact around each of them, or its message window was not full.
    """
    early_ms, late_ms = await compare_turns(path, 200, 1_000)
    return CompactedTurns(
        compacted_turn_200_ms=early_ms,
        compacted_turn_1000_ms=late_ms,
        compacted_ratio=round(late_ms / early_ms, 2),
    )


async def compare_turns(path: Path, early_turn: int, late_turn: int) -> tuple[float, float]:
    """Median milliseconds of the turns around two turns, in `process`, like the long session without compaction."""
    runner = CompactingRunner()
    flow = create_compacting_flow(runner)
    latencies: list[float] = []
    summaries: list[int] = []
    sequences: list[int] = []
    async with EmbeddedEngine(path, [flow], durability="process") as engine:
        client = AgentSessionClient(engine, flow)
        await client.start_session("session")
        for turn in range(1, late_turn + CYCLE_TURNS + 1):
            start = time.perf_counter()
            await client.send_user_message("session", USER_TEXT)
            state = await client.wait_until_idle("session", timeout=TURN_TIMEOUT_SECONDS)
            latencies.append(time.perf_counter() - start)
            if state.last_turn_error is not None:
                raise UnequalTurnsError(f"turn {turn} failed: {state.last_turn_error}")
            summaries.append(len(runner.summaries))
            sequences.append(state.last_message_sequence)
    early, late = _around(early_turn), _around(late_turn)
    for turns in (early, late):
        if sequences[turns.start] <= flow.options.message_window_size:
            raise UnequalTurnsError(f"the message window was not full at turn {turns.start + 1}")
        if summaries[turns.stop - 1] - summaries[turns.start] < 2:
            raise UnequalTurnsError(f"turns {turns.start + 1} to {turns.stop} did not compact twice")
    return median_milliseconds(latencies[early]), median_milliseconds(latencies[late])


def _around(turn: int) -> slice:
    return slice(turn - CYCLE_TURNS - 1, turn + CYCLE_TURNS)
