"""Window, chunks and retention: what is stored is what was appended, within the limits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dex_agents import AgentMessage, AgentMessageChunk, AgentMessageIndex, CompactionPolicy, FrameworkMessage
from dex_agents.session.message_window import CHUNK_OVERHEAD_BYTES
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ContextSummarized, ModelStepCompleted, ModelStepNeedsCompaction
from dex_agents.session.rpc_values import ListAgentMessagesInput
from dex_agents.session.rpcs import LIST_AGENT_MESSAGES
from dex_agents.session.values import AgentUsage, message_sequence_key
from dex_agents.testing import SessionDriver
from dex_flow.codec import decode

CHUNK_BYTES = 2_000
ONE_CALL = AgentUsage(model_calls=1)


def replied(*sizes: int) -> ModelStepCompleted:
    messages = tuple(
        FrameworkMessage(role="assistant", framework_item=msgspec.json.encode("x" * size).decode()) for size in sizes
    )
    return ModelStepCompleted(new_messages=messages, usage=ONE_CALL)


class Storage:
    """What a driven session has stored, read from its rows."""

    def __init__(self, **options: Any) -> None:
        self.options = AgentSessionOptions(
            **{
                "message_window_size": 8,
                "message_chunk_size": 4,
                "message_chunk_max_bytes": CHUNK_BYTES,
                "compaction": CompactionPolicy(context_window_tokens=1_000),
                "retained_message_limit": 6,
                **options,
            }
        )
        self.driver = SessionDriver(self.options)
        self.driver.start()
        self.written = 0
        self.summarized_through = 0

    def turn(self, *sizes: int, compacts_through: int | None = None) -> None:
        assert self.driver.send("hello")
        if compacts_through is not None:
            claim = self.driver.attempt_of("RunModel")
            self.driver.succeed(claim, ModelStepNeedsCompaction(through_sequence=compacts_through))
            self.driver.succeed(self.driver.attempt_of("CompactContext"), ContextSummarized(text="s", usage=ONE_CALL))
            self.summarized_through = compacts_through
        self.driver.succeed(self.driver.attempt_of("RunModel"), replied(*sizes))
        self.written += 1 + len(sizes)

    def rows(self, name: str) -> dict[str, bytes]:
        attributes = self.driver.store.attributes
        return {key: data for (attribute, key), data in attributes.items() if attribute == name}

    @property
    def index(self) -> AgentMessageIndex:
        rows = self.rows("AgentMessageIndex")
        return decode(AgentMessageIndex, rows[""]) if rows else AgentMessageIndex()

    @property
    def window(self) -> list[int]:
        return [decode(AgentMessage, data).sequence for _, data in sorted(self.rows("AgentMessages").items())]

    @property
    def chunks(self) -> dict[str, AgentMessageChunk]:
        return {key: decode(AgentMessageChunk, data) for key, data in self.rows("AgentMessageChunks").items()}

    def check(self) -> None:
        """Everything that is promised about the rows and what is read of them."""
        index, window, chunks = self.index, self.window, self.chunks
        assert {message_sequence_key(chunk.first_sequence) for chunk in index.chunks} == chunks.keys()
        archived = []
        for chunk in index.chunks:
            messages = chunks[message_sequence_key(chunk.first_sequence)].messages
            sequences = [message.sequence for message in messages]
            assert sequences == list(range(chunk.first_sequence, chunk.last_sequence + 1))
            size = len(msgspec.json.encode(AgentMessageChunk(messages=messages)))
            assert len(messages) == 1 or (size <= CHUNK_BYTES and len(messages) <= self.options.message_chunk_size)
            archived += sequences
        stored = sorted(archived + window)
        assert stored == list(range(index.first_sequence, self.written + 1))
        assert len(window) <= self.options.message_window_size
        assert all(first.last_sequence < second.first_sequence for first, second in pairwise(index.chunks))
        assert all(index.window_first_sequence <= sequence for sequence in window)
        for sequence, data in self.rows("AgentMessages").items():
            assert len(data) + CHUNK_OVERHEAD_BYTES <= CHUNK_BYTES, sequence
        assert [message.sequence for message in self.driver.snapshot().messages] == stored
        self.check_retention(index)
        self.check_pages(stored)

    def check_retention(self, index: AgentMessageIndex) -> None:
        limit = self.options.retained_message_limit
        deleted = index.first_sequence - 1
        assert deleted <= self.summarized_through
        if limit is None:
            assert deleted == 0
            return
        assert self.written - deleted >= min(limit, self.written)
        first = index.chunks[0] if index.chunks else None
        if first is not None and first.first_sequence == index.first_sequence:
            assert first.last_sequence > self.summarized_through or self.written - first.last_sequence < limit

    def check_pages(self, stored: list[int]) -> None:
        before: int | None = None
        read: list[int] = []
        while True:
            page = self.driver.call(LIST_AGENT_MESSAGES, ListAgentMessagesInput(before_sequence=before, limit=3))
            sequences = [message.sequence for message in page.messages]
            assert len(sequences) <= 3
            read = sequences + read
            deleted = self.index.first_sequence > 1
            assert page.deleted_before_sequence == (self.index.first_sequence if deleted else None)
            before = page.next_before_sequence
            if before is None:
                break
        assert read == stored


sizes = st.lists(st.sampled_from([1, 50, 300, 900, 1_900, 2_500, 6_000]), max_size=12)
turns = st.lists(st.tuples(sizes, st.one_of(st.none(), st.integers(0, 30))), max_size=14)


@settings(deadline=None, max_examples=150)
@given(turns=turns, limit=st.sampled_from([None, 1, 6, 20]), chunk=st.integers(1, 5), window=st.integers(5, 12))
def test_any_history_is_stored_once_within_its_limits_and_read_back_in_order(
    turns: list[tuple[list[int], int | None]], limit: int | None, chunk: int, window: int
) -> None:
    storage = Storage(retained_message_limit=limit, message_chunk_size=chunk, message_window_size=window)
    for sizes, offset in turns:
        through = None
        if offset is not None and storage.summarized_through + 1 <= storage.written:
            through = min(storage.summarized_through + 1 + offset, storage.written)
        storage.turn(*sizes, compacts_through=through)
        while (waiting := len(storage.window)) > window:
            storage.turn()
            assert len(storage.window) < waiting
        storage.check()


def test_a_session_without_chunks_has_no_index() -> None:
    storage = Storage()
    storage.turn(1, 1)
    assert storage.rows("AgentMessageIndex") == {}
    assert storage.window == [1, 2, 3]


def test_the_oldest_messages_move_in_the_commit_that_fills_the_window_and_a_chunk_is_never_rewritten() -> None:
    storage = Storage()
    storage.turn(*[1] * 7)
    assert storage.chunks == {}
    storage.turn(1)
    assert [(chunk.first_sequence, chunk.last_sequence) for chunk in storage.index.chunks] == [(1, 4)]
    assert storage.window == list(range(5, 11))
    first = storage.rows("AgentMessageChunks")
    storage.turn(*[1] * 5)
    assert first.items() <= storage.rows("AgentMessageChunks").items()


def test_one_commit_moves_at_most_four_chunks_and_a_backlog_drains_over_several() -> None:
    storage = Storage()
    storage.turn(*[1] * 40)
    assert len(storage.index.chunks) == 4
    assert len(storage.window) == 41 - 16
    assert storage.driver.send("one more")
    assert len(storage.window) == 42 - 32
    storage.written += 1
    storage.driver.succeed(storage.driver.attempt_of("RunModel"), replied(1))
    assert len(storage.window) <= 8


def test_an_oversized_message_never_enters_the_window() -> None:
    storage = Storage()
    storage.turn(1, 2_500, 1)
    assert storage.window == [1, 2, 4]
    assert [(chunk.first_sequence, chunk.last_sequence) for chunk in storage.index.chunks] == [(3, 3)]
    assert [message.sequence for message in storage.driver.snapshot().messages] == [1, 2, 3, 4]
    storage.turn(*[1] * 8)
    storage.check()


def test_without_compaction_nothing_is_deleted() -> None:
    storage = Storage(compaction=None, retained_message_limit=1)
    for _ in range(10):
        storage.turn(1, 1, 1)
    assert storage.index.first_sequence == 1
    assert len(storage.driver.snapshot().messages) == 40


def test_a_model_step_reads_only_what_follows_the_summary() -> None:
    storage = Storage(retained_message_limit=None)
    storage.turn(*[1] * 12)
    storage.turn(*[1] * 3, compacts_through=10)
    assert storage.driver.send("next")
    snapshot = storage.driver.snapshot_of(storage.driver.attempt_of("RunModel"))
    assert [message.sequence for message in snapshot.messages] == list(range(11, storage.written + 2))
    assert snapshot.context_summary is not None
    assert snapshot.context_summary.last_sequence == 10


@pytest.mark.parametrize("limit", [0, -1])
def test_a_retention_below_one_message_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="retained_message_limit must be at least 1"):
        AgentSessionOptions(retained_message_limit=limit)


def test_a_window_smaller_than_a_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="message_window_size must be at least 32"):
        AgentSessionOptions(message_window_size=31)
