"""Rules of message storage and retention: exact limits, what is read, and what deleted messages leave."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dex_agents import AgentMessage, AgentMessageChunk, AgentMessageIndex, CompactionPolicy, FrameworkMessage
from dex_agents.session.message_window import (
    CHUNK_OVERHEAD_BYTES,
    ROLLOVER_MAX_BYTES_PER_COMMIT,
    ROLLOVER_MAX_CHUNKS_PER_COMMIT,
    MessageStorageLimits,
)
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ContextSummarized,
    ModelStepCompleted,
    ModelStepNeedsCompaction,
    ModelStepRefused,
    ToolCallSucceeded,
)
from dex_agents.session.rpc_values import AgentMessagePage, ListAgentMessagesInput
from dex_agents.session.rpcs import LIST_AGENT_MESSAGES
from dex_agents.session.values import AgentMessageToolCall, AgentUsage, TurnReplySequence, message_sequence_key
from dex_agents.testing import SessionDriver
from dex_flow.codec import decode

from .session_scripts import ONE_CALL, answer, asks, finish_model, payloads, wanted

COMPACTION = CompactionPolicy(context_window_tokens=1_000)


def said(*texts: str) -> ModelStepCompleted:
    messages = tuple(FrameworkMessage(role="assistant", framework_item=f'"{text}"', text=text) for text in texts)
    return ModelStepCompleted(new_messages=messages, usage=ONE_CALL)


def session(builds_unfinished_turns: bool = False, **options: Any) -> SessionDriver:
    small = {"message_window_size": 4, "message_chunk_size": 2, "retained_message_limit": 3, "compaction": COMPACTION}
    driver = SessionDriver(AgentSessionOptions(**{**small, **options}), builds_unfinished_turns=builds_unfinished_turns)
    driver.start()
    return driver


def talk(driver: SessionDriver, turns: int) -> None:
    for number in range(turns):
        assert driver.send(f"question {number}")
        driver.succeed(driver.attempt_of("RunModel"), said(f"answer {number}"))


def compact(driver: SessionDriver, through: int) -> None:
    driver.succeed(driver.attempt_of("RunModel"), ModelStepNeedsCompaction(through_sequence=through))
    driver.succeed(driver.attempt_of("CompactContext"), ContextSummarized(text="s", usage=ONE_CALL))


def rows(driver: SessionDriver, name: str) -> dict[str, bytes]:
    return {key: data for (attribute, key), data in driver.store.attributes.items() if attribute == name}


def index_of(driver: SessionDriver) -> AgentMessageIndex:
    index: AgentMessageIndex = decode(AgentMessageIndex, rows(driver, "AgentMessageIndex")[""])
    return index


def ranges(driver: SessionDriver) -> list[tuple[int, int]]:
    return [(chunk.first_sequence, chunk.last_sequence) for chunk in index_of(driver).chunks]


def window(driver: SessionDriver) -> list[int]:
    return sorted(int(key) for key in rows(driver, "AgentMessages"))


def page(driver: SessionDriver, before: int | None = None, limit: int = 50) -> AgentMessagePage:
    return driver.call(LIST_AGENT_MESSAGES, ListAgentMessagesInput(before_sequence=before, limit=limit))


# Window and chunks


def test_the_limits_are_those_of_the_contract() -> None:
    options = AgentSessionOptions(compaction=COMPACTION)
    assert options.message_storage == MessageStorageLimits(
        window_size=64, chunk_size=32, chunk_max_bytes=1_048_576, retained_message_limit=1_000
    )
    assert (ROLLOVER_MAX_CHUNKS_PER_COMMIT, ROLLOVER_MAX_BYTES_PER_COMMIT) == (4, 8 * 1024 * 1024)
    AgentSessionOptions(message_chunk_max_bytes=8 * 1024 * 1024)
    with pytest.raises(ValueError, match="message_chunk_max_bytes must be at most 8388608"):
        AgentSessionOptions(message_chunk_max_bytes=8 * 1024 * 1024 + 1)


def test_an_append_writes_the_new_messages_alone() -> None:
    driver = session(message_window_size=64)
    talk(driver, 3)
    before = rows(driver, "AgentMessages")
    talk(driver, 1)
    after = rows(driver, "AgentMessages")
    assert {key: after[key] for key in before} == before
    assert sorted(after.keys() - before.keys()) == ["000000000007", "000000000008"]


def test_the_overhead_of_a_chunk_is_measured_on_the_json_that_is_written() -> None:
    assert len(msgspec.json.encode(AgentMessageChunk(messages=()))) == CHUNK_OVERHEAD_BYTES == 15


@pytest.mark.parametrize("excess", [0, 1])
def test_a_message_has_a_chunk_of_its_own_exactly_when_a_chunk_of_one_would_pass_the_limit(excess: int) -> None:
    limit = 2_000
    probe = AgentMessage(
        sequence=2, turn_id="turn-1", role="assistant", framework_item="", created_at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    room = limit - CHUNK_OVERHEAD_BYTES - len(msgspec.json.encode(probe))
    driver = session(message_chunk_max_bytes=limit)
    assert driver.send("hello")
    message = FrameworkMessage(role="assistant", framework_item="x" * (room + excess))
    driver.succeed(driver.attempt_of("RunModel"), ModelStepCompleted(new_messages=(message,), usage=ONE_CALL))
    if excess:
        assert (window(driver), ranges(driver)) == ([1], [(2, 2)])
        (chunk,) = rows(driver, "AgentMessageChunks").values()
        assert len(chunk) == limit + 1
    else:
        assert (window(driver), rows(driver, "AgentMessageChunks")) == ([1, 2], {})
        assert len(rows(driver, "AgentMessages")[message_sequence_key(2)]) == limit - CHUNK_OVERHEAD_BYTES


def test_names_of_calls_count_for_the_size_of_a_message() -> None:
    calls = tuple(
        AgentMessageToolCall(tool_call_id=f"{number}" * 100, tool_name="n" * 100, arguments="{}")
        for number in range(10)
    )
    driver = session(message_chunk_max_bytes=2_000)
    assert driver.send("hello")
    message = FrameworkMessage(role="assistant", framework_item="{}", tool_calls=calls)
    driver.succeed(driver.attempt_of("RunModel"), ModelStepCompleted(new_messages=(message,), usage=ONE_CALL))
    assert (window(driver), ranges(driver)) == ([1], [(2, 2)])


def test_a_chunk_closes_at_its_count_or_its_bytes_whichever_comes_first() -> None:
    driver = session(message_chunk_size=4, message_chunk_max_bytes=2_000, retained_message_limit=None)
    assert driver.send("hello")
    driver.succeed(driver.attempt_of("RunModel"), said("a", "b" * 500, "c" * 500, "d", "e", "f", "g"))
    talk(driver, 2)
    # The first chunk holds all but the second long text, whose bytes would pass the limit; the others hold four.
    assert ranges(driver) == [(1, 3), (4, 7), (8, 11)]
    assert max(len(data) for data in rows(driver, "AgentMessageChunks").values()) <= 2_000


def test_one_commit_moves_at_most_eight_mebibytes() -> None:
    driver = session(
        message_window_size=2, message_chunk_size=1, message_chunk_max_bytes=8 * 1024 * 1024, compaction=None
    )
    assert driver.send("hello")
    text = "x" * (3 * 512 * 1024)
    driver.succeed(driver.attempt_of("RunModel"), said(*[text] * 7))
    # Each is 3 MiB with its text, twice: two of them and the small first one; a fourth chunk would pass 8 MiB.
    assert ranges(driver) == [(1, 1), (2, 2), (3, 3)]
    assert window(driver) == [4, 5, 6, 7, 8]
    assert driver.send("next")
    assert ranges(driver)[3:] == [(4, 4), (5, 5)]


def test_the_index_is_written_only_when_chunks_change() -> None:
    driver = session(message_window_size=64)
    talk(driver, 5)
    assert rows(driver, "AgentMessageIndex") == {}
    other = session()
    talk(other, 3)
    assert other.send("one more")
    before = rows(other, "AgentMessageIndex")
    assert (ranges(other), window(other)) == ([(1, 2), (3, 4)], [5, 6, 7])
    finish_model(other, answer())
    assert window(other) == [5, 6, 7, 8]
    assert rows(other, "AgentMessageIndex") == before


def test_the_index_says_where_every_message_is() -> None:
    driver = session(message_chunk_max_bytes=1_000, retained_message_limit=None)
    talk(driver, 3)
    assert driver.send("big")
    driver.succeed(driver.attempt_of("RunModel"), said("y" * 2_000))
    index = index_of(driver)
    assert ranges(driver) == [(1, 2), (3, 4), (8, 8)]
    assert (index.first_sequence, index.window_first_sequence, window(driver)) == (1, 5, [5, 6, 7])
    # The oversized message is among those of the window, in a chunk.
    assert index.chunks[-1].first_sequence >= index.window_first_sequence
    assert [message.sequence for message in driver.snapshot().messages] == list(range(1, 9))


def test_a_turn_counts_its_messages_without_reading_old_ones() -> None:
    driver = session()
    talk(driver, 4)
    assert driver.send("next")
    reply = decode(TurnReplySequence, rows(driver, "TurnReplySequence")[""])
    assert (reply.turn_id, reply.sequence) == ("turn-5", 10)
    for name in ("AgentMessages", "AgentMessageChunks"):
        for key in rows(driver, name):
            if key < message_sequence_key(9):
                del driver.store.attributes[(name, key)]
    driver.succeed(driver.attempt_of("RunModel"), said("a", "b"))
    assert payloads(driver, "turn_completed")[-1] == {"message_count": 2}


# What is read


def forget_chunks(driver: SessionDriver, through: int) -> None:
    """Whoever reads a chunk up to here fails: its row is gone while the index names it."""
    for first, last in ranges(driver):
        if last <= through:
            del driver.store.attributes[("AgentMessageChunks", message_sequence_key(first))]


def test_model_steps_and_summaries_read_only_chunks_behind_the_summary() -> None:
    driver = session(retained_message_limit=None)
    talk(driver, 6)
    assert driver.send("next")
    compact(driver, 4)
    forget_chunks(driver, 4)
    assert [seen.sequence for seen in driver.snapshot_of(driver.attempt_of("RunModel")).messages] == list(range(5, 14))
    driver.succeed(driver.attempt_of("RunModel"), ModelStepNeedsCompaction(through_sequence=8))
    summary = driver.snapshot_of(driver.attempt_of("CompactContext"))
    assert [seen.sequence for seen in summary.messages] == [5, 6, 7, 8]
    with pytest.raises(LookupError, match="the chunk of messages 1 to 2 is not stored"):
        driver.snapshot()


@pytest.mark.parametrize("ending", ["steered", "failed"])
def test_the_steps_that_end_a_turn_read_only_chunks_behind_the_summary(ending: str) -> None:
    driver = session(retained_message_limit=None, builds_unfinished_turns=True)
    talk(driver, 6)
    assert driver.send("next")
    compact(driver, 4)
    if ending == "steered":
        finish_model(driver, asks(wanted("c")))
        assert driver.steer("stop")
        driver.succeed(driver.attempt_of("CallTool"), ToolCallSucceeded(output="ok"))
    else:
        finish_model(driver, ModelStepRefused(error_type="TurnRefusedError", message="no", usage=AgentUsage()))
    forget_chunks(driver, 4)
    step_type = "ApplyTurnControl" if ending == "steered" else "RecordTurnFailure"
    assert driver.snapshot_of(driver.attempt_of(step_type)).messages[0].sequence == 5


def test_without_a_summary_a_model_step_reads_every_message() -> None:
    driver = session(compaction=None)
    talk(driver, 6)
    assert driver.send("next")
    turn = driver.snapshot_of(driver.attempt_of("RunModel"))
    assert [seen.sequence for seen in turn.messages] == list(range(1, 14))


# Retention


def summarized(through: int, turns: int = 6, **options: Any) -> SessionDriver:
    driver = session(**options)
    talk(driver, turns)
    assert driver.send("next")
    compact(driver, through)
    return driver


def test_the_summary_deletes_what_it_covers_beyond_the_limit_in_its_own_commit() -> None:
    driver = summarized(8)
    # Chunks of two: 1 to 8 are covered, and at least three messages follow each.
    assert index_of(driver).first_sequence == 9
    assert [seen.sequence for seen in driver.snapshot().messages] == [9, 10, 11, 12, 13]


def test_a_chunk_that_the_summary_covers_in_part_stays() -> None:
    driver = summarized(7)
    assert index_of(driver).first_sequence == 7
    assert ranges(driver)[0] == (7, 8)


@pytest.mark.parametrize(("limit", "first"), [(1, 9), (5, 9), (6, 7), (7, 7), (8, 5), (100, 1)])
def test_the_newest_messages_up_to_the_limit_always_stay(limit: int, first: int) -> None:
    driver = summarized(8, retained_message_limit=limit)
    assert index_of(driver).first_sequence == first
    assert len(driver.snapshot().messages) >= min(limit, 13)


def test_a_message_append_deletes_what_the_limit_no_longer_keeps() -> None:
    driver = summarized(8, retained_message_limit=6)
    assert index_of(driver).first_sequence == 7
    driver.succeed(driver.attempt_of("RunModel"), said("answer"))
    assert index_of(driver).first_sequence == 9


def test_every_message_after_the_summary_stays_whatever_the_limit() -> None:
    driver = summarized(2, retained_message_limit=1)
    driver.succeed(driver.attempt_of("RunModel"), said("answer"))
    talk(driver, 10)
    assert [seen.sequence for seen in driver.snapshot().messages] == list(range(3, 35))


def test_a_limit_of_none_keeps_every_message() -> None:
    driver = summarized(8, retained_message_limit=None)
    driver.succeed(driver.attempt_of("RunModel"), said("answer"))
    assert index_of(driver).first_sequence == 1
    assert page(driver).deleted_before_sequence is None


def test_paging_ends_at_the_oldest_stored_message_and_every_page_says_what_was_deleted() -> None:
    driver = summarized(8)
    first = page(driver, limit=3)
    assert ([seen.sequence for seen in first.messages], first.next_before_sequence) == ([11, 12, 13], 11)
    second = page(driver, before=11, limit=3)
    assert ([seen.sequence for seen in second.messages], second.next_before_sequence) == ([9, 10], None)
    beyond = page(driver, before=9)
    assert (beyond.messages, beyond.next_before_sequence) == ((), None)
    assert [seen.deleted_before_sequence for seen in (first, second, beyond)] == [9, 9, 9]


def test_a_page_before_anything_was_deleted_ends_at_the_start_of_the_conversation() -> None:
    driver = session()
    talk(driver, 6)
    last = page(driver, before=3)
    assert [seen.sequence for seen in last.messages] == [1, 2]
    assert (last.next_before_sequence, last.deleted_before_sequence) == (None, None)


def test_deleted_messages_leave_snapshots_and_rows_and_their_numbers_are_not_used_again() -> None:
    driver = summarized(8)
    keys = {**rows(driver, "AgentMessages"), **rows(driver, "AgentMessageChunks")}
    assert min(keys) == message_sequence_key(9)
    driver.succeed(driver.attempt_of("RunModel"), said("answer"))
    assert driver.snapshot().messages[-1].sequence == 14


def test_a_runner_that_cannot_read_the_summary_starts_at_the_oldest_stored_message() -> None:
    driver = summarized(8)
    other = SessionDriver(AgentSessionOptions(), compacts=False)
    other.store, other.now = driver.store, driver.now
    turn = other.snapshot_of(driver.attempt_of("RunModel"))
    assert [seen.sequence for seen in turn.messages] == [9, 10, 11, 12, 13]
    assert (turn.context_summary, turn.first_stored_sequence) == (None, 9)


def test_a_session_with_deleted_messages_survives_workers_that_die() -> None:
    driver = summarized(8)
    driver.lose_worker()
    finish_model(driver, answer())
    assert page(driver).deleted_before_sequence == 9
