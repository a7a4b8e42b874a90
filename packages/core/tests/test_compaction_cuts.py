"""Where a conversation is cut, whatever the runner: rounds stay whole, and as much stays as the budget allows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents import AgentMessage, AgentMessageToolCall, count_omitted_messages, estimate_text_tokens
from dex_agents import select_compaction_cutoff as select


def conversation(rounds: list[int], *, open_results: int = 0) -> list[AgentMessage]:
    """Turns of a user message, a response with so many calls, and their results; the last ones may miss."""
    messages: list[AgentMessage] = []

    def add(role: str, turn: int, calls: int = 0) -> None:
        tool_calls = tuple(
            AgentMessageToolCall(tool_call_id=f"c{number}", tool_name="t", arguments="{}") for number in range(calls)
        )
        messages.append(
            AgentMessage(
                sequence=len(messages) + 1,
                turn_id=f"turn-{turn}",
                role=role,  # type: ignore[arg-type]
                framework_item="{}",
                created_at=datetime(2026, 12, 2, tzinfo=UTC),
                tool_calls=tool_calls,
            )
        )

    for turn, calls in enumerate(rounds, start=1):
        add("user", turn)
        add("assistant", turn, calls)
        is_last = turn == len(rounds)
        for _ in range(calls - (min(open_results, calls) if is_last else 0)):
            add("tool", turn)
    return messages


def one(message: AgentMessage) -> int:
    return 1


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(0, 40),
    st.integers(0, 5),
)
def test_a_cut_leaves_whole_rounds_and_as_much_as_fits(
    rounds: list[int], open_results: int, budget: int, pending: int
) -> None:
    messages = conversation(rounds, open_results=open_results)
    turn_id = messages[-1].turn_id
    cutoff = select(messages, turn_id, budget, one, pending_tokens=pending)
    if cutoff is None:
        positions = [position for position in range(1, len(messages)) if messages[position].role != "tool"]
        assert len(messages) + pending <= budget or not positions
        return
    cut, kept = messages[:cutoff], messages[cutoff:]
    assert kept, "something stays"
    assert kept[0].role != "tool", "no result without its call"
    last_response = max(index for index, message in enumerate(cut) if message.role != "tool")
    assert len(cut[last_response].tool_calls) == len(cut) - last_response - 1, "every call in front has its results"
    if len(kept) + pending > budget:
        assert all(message.role == "tool" for message in kept[1:]) or open_results, "no cut leaves less"


def test_the_active_turns_message_stays_while_the_turn_fits() -> None:
    messages = conversation([2, 2, 2])
    assert select(messages, "turn-3", 4, one) == 8, "the turn has four messages"
    assert select(messages, "turn-3", 3, one) == 9, "alone it is too large"
    assert select(messages, "turn-3", 12, one) is None, "nothing need be cut"


@pytest.mark.parametrize(("available", "omitted"), [(8, 0), (7, 1), (6, 4), (4, 4), (3, 5), (0, 5)])
def test_a_summary_request_leaves_out_whole_rounds(available: int, omitted: int) -> None:
    messages = conversation([2, 2])
    assert count_omitted_messages(messages, available, one) == omitted


def test_tokens_are_estimated_from_bytes() -> None:
    assert [estimate_text_tokens(text) for text in ("", "a", "a" * 7, "ü" * 7, "\ud83d")] == [0, 1, 2, 4, 1]
