"""Reading messages from outside on the embedded engine: windowed, archived, oversized, deleted ones, and in races."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.compacting_runner import ANSWER_TEXT, CompactingRunner
from dex_agents import (
    AgentMessage,
    AgentMessageIndex,
    AgentSessionClient,
    AgentSessionFlow,
    AgentTurnContext,
    CompactionPolicy,
    create_agent_session_flow,
    message_sequence_key,
)
from dex_agents.session.persistence import AGENT_MESSAGE_CHUNKS, AGENT_MESSAGES
from dex_flow.embedded import EmbeddedEngine

WAIT_SECONDS = 60.0
LARGE_TEXT = "€" * 8_000
RETAINED = 20
MESSAGES_PER_TURN = 4


class CuttingRunner(CompactingRunner):
    """Summarises everything before the turn, in every fifth one."""

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """The window is full in every fifth turn, until a summary covers what came before."""
        is_due = int(turn.turn_id.removeprefix("turn-")) % 5 == 0 and len(turn.messages) > 1
        return 1_000 if is_due else 1

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """The message before the turn."""
        return turn.messages[-1].sequence - 1


def small_flow(runner: CompactingRunner, **options: Any) -> AgentSessionFlow:
    """A Flow whose messages soon move and soon go."""
    limits = {
        "message_window_size": 8,
        "message_chunk_size": 4,
        "message_chunk_max_bytes": 4_096,
        "retained_message_limit": RETAINED,
    }
    return create_agent_session_flow(
        runner, "ReadSession", compaction=CompactionPolicy(context_window_tokens=1_000), **{**limits, **options}
    )


async def read_without_client(
    engine: EmbeddedEngine, flow: AgentSessionFlow, sequence: int
) -> tuple[str, AgentMessage | None]:
    """The two documented reads, and where they found the message."""
    index = await engine.get_attribute("s", flow.agent_message_index) or AgentMessageIndex()
    for chunk in index.chunks:
        if chunk.first_sequence <= sequence <= chunk.last_sequence:
            key = message_sequence_key(chunk.first_sequence)
            stored = await engine.get_attribute_instance("s", AGENT_MESSAGE_CHUNKS, key)
            assert stored is not None
            place = "oversized" if chunk.first_sequence >= index.window_first_sequence else "chunk"
            return place, stored.messages[sequence - chunk.first_sequence]
    message = await engine.get_attribute_instance("s", AGENT_MESSAGES, message_sequence_key(sequence))
    return "none" if message is None else "window", message


def test_every_message_is_read_wherever_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        flow = small_flow(CuttingRunner())
        async with EmbeddedEngine(tmp_path / "sessions.db", [flow], durability="process") as engine:
            client = AgentSessionClient(engine, flow)
            await client.start_session("s")
            assert await client.get_message("s", 1) is None
            written: dict[int, tuple[str, str]] = {}
            seen_in: dict[int, set[str]] = {}
            for turn in range(1, 21):
                text = f"{turn} {LARGE_TEXT}" if turn % 4 == 0 else f"question {turn}"
                result = await client.send_and_wait("s", text, timeout=WAIT_SECONDS)
                assert result.text == ANSWER_TEXT
                last = turn * MESSAGES_PER_TURN
                written[last - 3] = ("user", text)
                written.update({last - 2: ("assistant", ""), last: ("assistant", ANSWER_TEXT)})
                index = await engine.get_attribute("s", flow.agent_message_index) or AgentMessageIndex()
                for sequence in range(1, last + 1):
                    message = await client.get_message("s", sequence)
                    place, same = await read_without_client(engine, flow, sequence)
                    seen_in.setdefault(sequence, set()).add(place)
                    assert message == same
                    assert (message is None) == (sequence < index.first_sequence)
                    if message is not None:
                        assert message.sequence == sequence
                        if sequence in written:
                            assert (message.role, message.text) == written[sequence]
                for absent in (-1, 0, last + 1, 10**12, 10**15):
                    assert await client.get_message("s", absent) is None
            # Each small message was in the window, then in a chunk, then gone; a large one was in its chunk at once.
            assert seen_in[1] == {"window", "chunk", "none"}
            assert seen_in[13] == {"oversized", "chunk", "none"}

    asyncio.run(scenario())


@pytest.mark.parametrize("limit", [-5, 0, 1, 7, 200, 10_000])
def test_pages_of_any_size_meet_and_end_at_the_oldest_stored_message(tmp_path: Path, limit: int) -> None:
    async def scenario() -> None:
        flow = small_flow(CuttingRunner())
        async with EmbeddedEngine(tmp_path / "sessions.db", [flow], durability="process") as engine:
            client = AgentSessionClient(engine, flow)
            await client.start_session("s")
            for turn in range(1, 13):
                text = LARGE_TEXT if turn % 3 == 0 else f"question {turn}"
                await client.send_and_wait("s", text, timeout=WAIT_SECONDS)
            index = await engine.get_attribute("s", flow.agent_message_index)
            assert index is not None
            assert index.first_sequence > 1
            sequences: list[int] = []
            before: int | None = None
            while True:
                page = await client.list_agent_messages("s", before_sequence=before, limit=limit)
                assert len(page.messages) <= min(max(limit, 1), 200)
                assert page.deleted_before_sequence == index.first_sequence
                sequences = [*(message.sequence for message in page.messages), *sequences]
                before = page.next_before_sequence
                if before is None:
                    break
            assert sequences == list(range(index.first_sequence, 12 * MESSAGES_PER_TURN + 1))

    asyncio.run(scenario())


async def page_backwards(client: AgentSessionClient) -> list[list[int]]:
    """One walk over all pages while the session goes on; checks each page by itself and against the one after it."""
    pages: list[list[int]] = []
    before: int | None = None
    deleted_before = 0
    while True:
        page = await client.list_agent_messages("s", before_sequence=before, limit=5)
        sequences = [message.sequence for message in page.messages]
        assert all(later == earlier + 1 for earlier, later in pairwise(sequences))
        first = page.deleted_before_sequence or 1
        assert first >= deleted_before, "deleted messages came back"
        deleted_before = first
        if sequences:
            assert before is None or sequences[-1] == before - 1, "a message between two pages is missing"
            assert sequences[0] >= first
            assert (page.next_before_sequence is None) == (sequences[0] == first)
        elif before is not None:
            # Retention took what this page would have held.
            assert before <= first
        pages.append(sequences)
        before = page.next_before_sequence
        if before is None:
            return pages


@pytest.mark.parametrize("reads_from_file", [False, True])
def test_paging_while_retention_deletes_misses_and_repeats_nothing(tmp_path: Path, reads_from_file: bool) -> None:
    turns = 60

    async def scenario() -> None:
        flow = small_flow(CuttingRunner())
        database = tmp_path / "sessions.db"
        async with (
            EmbeddedEngine(database, [flow], durability="process") as engine,
            EmbeddedEngine(database, [flow], durability="process", runs_worker=False) as other,
        ):
            writer = AgentSessionClient(engine, flow)
            reader = AgentSessionClient(other if reads_from_file else engine, flow)
            await writer.start_session("s")
            finished = asyncio.Event()

            async def talk() -> None:
                for turn in range(1, turns + 1):
                    text = LARGE_TEXT if turn % 7 == 0 else f"question {turn}"
                    await writer.send_and_wait("s", text, timeout=WAIT_SECONDS)
                finished.set()

            async def read() -> tuple[int, int]:
                walks, oldest = 0, 0
                while not finished.is_set():
                    pages = await page_backwards(reader)
                    oldest = max(oldest, min((page[0] for page in pages if page), default=0))
                    snapshot = await reader.get_agent_snapshot("s")
                    sequences = [message.sequence for message in snapshot.messages]
                    assert all(later == earlier + 1 for earlier, later in pairwise(sequences))
                    # What one committed state has, a later one has lost only to retention.
                    for sequence in sequences[:3]:
                        message = await reader.get_message("s", sequence)
                        if message is None:
                            page = await reader.list_agent_messages("s", limit=1)
                            assert page.deleted_before_sequence is not None
                            assert page.deleted_before_sequence > sequence
                    walks += 1
                return walks, oldest

            async with asyncio.TaskGroup() as group:
                group.create_task(talk())
                reading = group.create_task(read())
            walks, oldest = reading.result()
            assert walks > 1
            assert oldest > 1, "retention deleted nothing while somebody read"

    asyncio.run(scenario())
