"""What the session must have stored once a turn has ended."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents import AgentMessage

__all__ = ["check_transcript"]


def check_transcript(messages: Sequence[AgentMessage], *, active_turn_id: str | None) -> None:
    """Every message once, and every call of a turn that ended with exactly one result right behind it, in call order.

    Args:
        messages: Every stored message, oldest first.
        active_turn_id: A turn that still runs, whose calls may have no result yet.

    Raises:
        AssertionError: It is not so; names the rule.
    """
    first = messages[0].sequence if messages else 1
    sequences = [message.sequence for message in messages]
    assert sequences == list(range(first, first + len(messages))), f"[stored-messages-have-no-gap] {sequences}"
    expected: list[tuple[str, str]] = []
    for message in messages:
        if message.turn_id == active_turn_id:
            return
        if message.role == "tool":
            assert expected, f"[no-result-without-its-call] stored: {message}"
            found = (message.turn_id, message.tool_call_id or "")
            wanted = expected.pop(0)
            assert found == wanted, f"[results-in-call-order] stored {found} where {wanted} belongs"
            continue
        assert not expected, f"[one-result-per-call] no stored result behind the calls {expected}"
        expected = [(message.turn_id, call.tool_call_id) for call in message.tool_calls]
    assert not expected, f"[one-result-per-call] no stored result behind the calls {expected}"
