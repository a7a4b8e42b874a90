"""One session of many turns with compaction and retention: what a turn stores, writes and reads does not grow.

Everything asserted is counted, not timed; `nox -s long` also compares times, on a machine that is to have the time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from bench.compacted_session import compare_turns
from bench.compacting_runner import (
    CHARACTERS_PER_TOKEN,
    CONTEXT_WINDOW_TOKENS,
    CompactingRunner,
    create_compacting_flow,
)
from dex_agents import AgentMessage, AgentMessageIndex, AgentSessionClient, CompactionPolicy
from dex_flow.embedded import EmbeddedEngine
from dex_flow.embedded.flow_store import SqliteStateReader
from tests.long_sessions.stored_bytes import StoredBytes, Written

TURN_SECONDS = 60.0
RETAINED_MESSAGES = 200
WINDOW_SIZE, CHUNK_SIZE = 64, 32
MESSAGES_PER_TURN = 4
GROWTH = 1.2
# The window, the chunks of a model input of up to 180 messages, and single values.
MOST_ROWS_READ = WINDOW_SIZE + 180 // CHUNK_SIZE + 20
USER_TEXT = "Where is order 42, and when will it arrive? ".ljust(200, ".")
TURNS = int(os.environ.get("LONG_SESSION_TURNS", "800"))
TIMED_TURNS = 2_000


@dataclass
class Turns:
    """What each turn left, in order."""

    state: list[Written] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    rows_read: list[int] = field(default_factory=list)
    index_sizes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def ratio(self, values: Sequence[float], average: Callable[[Sequence[float]], float] = fmean) -> float:
        """The last hundred turns over turns 100 to 200, whole cycles of compaction in both."""
        return average(values[-100:]) / average(values[100:200])


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the attributes that the engine reads from the file, in its only item."""
    count = [0]
    attribute, attribute_range = SqliteStateReader.attribute, SqliteStateReader.attribute_range

    def counted_attribute(reader: SqliteStateReader, name: str, key: str) -> bytes | None:
        count[0] += 1
        return attribute(reader, name, key)

    def counted_range(reader: SqliteStateReader, *arguments: Any) -> list[tuple[str, bytes]]:
        found = attribute_range(reader, *arguments)
        count[0] += len(found)
        return found

    monkeypatch.setattr(SqliteStateReader, "attribute", counted_attribute)
    monkeypatch.setattr(SqliteStateReader, "attribute_range", counted_range)
    return count


async def run_turns(client: AgentSessionClient, stored: StoredBytes, rows_read: list[int], count: int) -> Turns:
    turns = Turns()
    for _ in range(count):
        written, rows = stored.written(), rows_read[0]
        start = time.perf_counter()
        await client.send_user_message("s", USER_TEXT)
        state = await client.wait_until_idle("s", timeout=TURN_SECONDS)
        turns.seconds.append(time.perf_counter() - start)
        assert state.last_turn_error is None
        turns.written.append(stored.written().since(written))
        turns.rows_read.append(rows_read[0] - rows)
        turns.state.append(stored.state())
        turns.index_sizes.append(stored.attribute_size("AgentMessageIndex"))
    return turns


async def page_through(client: AgentSessionClient, deleted_before: int, limit: int) -> list[AgentMessage]:
    """Every message by pages from the newest on; each page says where the stored ones begin."""
    messages: list[AgentMessage] = []
    before: int | None = None
    while True:
        page = await client.list_agent_messages("s", before_sequence=before, limit=limit)
        assert page.deleted_before_sequence == deleted_before
        assert page.messages
        messages = [*page.messages, *messages]
        before = page.next_before_sequence
        if before is None:
            return messages
        assert len(page.messages) == limit
        assert before == page.messages[0].sequence


async def check_messages(engine: EmbeddedEngine, client: AgentSessionClient, index: AgentMessageIndex) -> None:
    """What retention kept, and where paging ends."""
    snapshot = await client.get_agent_snapshot("s")
    assert snapshot.state is not None
    assert snapshot.context_summary is not None
    last = snapshot.state.last_message_sequence
    assert last == snapshot.state.turn_count * MESSAGES_PER_TURN
    first = index.first_sequence
    # A chunk stays as long as fewer messages than the limit would be left without it.
    assert RETAINED_MESSAGES <= last - first + 1 < RETAINED_MESSAGES + CHUNK_SIZE
    assert first <= snapshot.context_summary.last_sequence
    assert last - index.window_first_sequence + 1 <= WINDOW_SIZE
    assert len(index.chunks) <= (RETAINED_MESSAGES + CHUNK_SIZE) // CHUNK_SIZE
    everything = list(range(first, last + 1))
    assert [message.sequence for message in snapshot.messages] == everything
    for limit in (1, 50, 200):
        assert [message.sequence for message in await page_through(client, first, limit)] == everything
    assert await client.get_message("s", first - 1) is None
    assert (await client.list_agent_messages("s", before_sequence=first)).messages == ()


@pytest.mark.timeout(900)
def test_a_session_of_many_turns_stays_as_small_and_as_cheap_as_a_short_one(
    tmp_path: Path, rows_read: list[int], record_property: Callable[[str, object], None]
) -> None:
    count = TURNS
    assert count >= 400

    async def scenario() -> tuple[Turns, CompactingRunner]:
        runner = CompactingRunner()
        flow = create_compacting_flow(runner, retained_message_limit=RETAINED_MESSAGES)
        database = tmp_path / "sessions.db"
        async with EmbeddedEngine(database, [flow], durability="process") as engine:
            client = AgentSessionClient(engine, flow)
            await client.start_session("s")
            with StoredBytes(database) as stored:
                turns = await run_turns(client, stored, rows_read, count)
            index = await engine.get_attribute("s", flow.agent_message_index)
            assert index is not None
            await check_messages(engine, client, index)
            return turns, runner

    turns, runner = asyncio.run(scenario())
    assert len(runner.summaries) > count // 50
    assert turns.ratio([state.size for state in turns.state], max) <= GROWTH
    assert turns.ratio([state.rows for state in turns.state], max) <= GROWTH
    assert turns.ratio([written.size for written in turns.written]) <= GROWTH
    assert turns.ratio([written.rows for written in turns.written]) <= GROWTH
    # Most turns find everything in memory; one that does not reads the window and what the model input needs beside it.
    assert max(turns.rows_read[100:]) <= MOST_ROWS_READ
    assert turns.ratio(turns.index_sizes, max) <= GROWTH
    # Two model calls in each turn, neither of which sees what the summary stands for.
    steps = 2
    inputs = runner.input_characters[100 * steps :]
    assert (
        max(inputs)
        < CompactionPolicy(context_window_tokens=CONTEXT_WINDOW_TOKENS).trigger_tokens * CHARACTERS_PER_TOKEN
    )
    assert max(inputs[-100 * steps :]) <= GROWTH * max(inputs[: 100 * steps])
    times = {
        "median_ms_of_turns_100_to_200": median(turns.seconds[100:200]) * 1_000,
        "median_ms_of_the_last_100_turns": median(turns.seconds[-100:]) * 1_000,
        "ratio": turns.ratio(turns.seconds, median),
    }
    for name, value in times.items():
        record_property(name, round(value, 2))
    print(f"{count} turns: {', '.join(f'{name} {value:.2f}' for name, value in times.items())}")


@pytest.mark.skipif(TURNS < TIMED_TURNS, reason="times are compared by `nox -s long` alone")
@pytest.mark.timeout(900)
def test_turns_of_a_long_session_take_as_long_as_those_of_a_short_one(tmp_path: Path) -> None:
    """Turns 122 to 178 of one session alternate with turns 1,922 to 1,978 of another."""
    early_ms, late_ms = asyncio.run(compare_turns(tmp_path / "sessions.db", 150, 1_950))
    print(f"turn 150 takes {early_ms:.2f} ms, turn 1,950 {late_ms:.2f} ms, {late_ms / early_ms:.2f} times as long")
    assert late_ms <= GROWTH * early_ms
