"""Where a conversation may be cut, for runners that summarise: between rounds, never between a call and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from dex_agents.session.texts import NOTE_PREFIX
from dex_agents.session.values import AgentMessage

__all__ = [
    "BYTES_PER_TWO_TOKENS",
    "SUMMARY_REQUEST_TEXT",
    "count_omitted_messages",
    "estimate_text_tokens",
    "select_compaction_cutoff",
]

#: The last word of a summary request: a conversation usually ends with an answer, and many providers want it to be the
#: user's.
SUMMARY_REQUEST_TEXT = f"{NOTE_PREFIX} Write the summary of the conversation now."

# Between English prose, 4 to 4.5 bytes per token, and JSON or code, about 3.
BYTES_PER_TWO_TOKENS = 7


def estimate_text_tokens(text: str) -> int:
    """About how many tokens a text has, by its length: two tokens are 7 bytes of UTF-8."""
    # Instructions are the application's own, and may hold what cannot be encoded.
    size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    return -(-size * 2 // BYTES_PER_TWO_TOKENS)


def select_compaction_cutoff(
    messages: Sequence[AgentMessage],
    turn_id: str,
    retained_token_budget: int,
    message_tokens: Callable[[AgentMessage], int],
    *,
    pending_tokens: int = 0,
) -> int | None:
    """The sequence of the last message to summarise, or None when nothing can or need be.

    What stays begins with a user message or a model response, and right before it every call has its stored result.
    So a call and its results stay together, and a response whose results are still to come always stays.

    Args:
        messages: The messages after the current summary, oldest first.
        turn_id: The active turn. Its user message stays, unless the turn alone is larger than the budget.
        retained_token_budget: About how many tokens may stay. More stay when no cut leaves so few.
        message_tokens: Tokens of one message.
        pending_tokens: Tokens of what follows the messages and is not stored yet.
    """
    sizes = [message_tokens(message) for message in messages]
    # Tokens that stay when everything before this position is cut off.
    kept = [size + pending_tokens for size in accumulate(reversed(sizes), initial=0)][::-1]
    if kept[0] <= retained_token_budget:
        return None  # summarising again and again would make nothing smaller that is too large besides the messages
    turn_start = next((index for index, message in enumerate(messages) if message.turn_id == turn_id), len(messages))
    positions = _positions_between_rounds(messages)
    if kept[turn_start] <= retained_token_budget:
        positions = [position for position in positions if position <= turn_start]
    if not positions:
        return None
    fitting = (position for position in positions if kept[position] <= retained_token_budget)
    return messages[next(fitting, positions[-1]) - 1].sequence


def count_omitted_messages(
    messages: Sequence[AgentMessage], available_tokens: int, message_tokens: Callable[[AgentMessage], int]
) -> int:
    """How many of the oldest messages a summary request leaves out so that the others fit.

    Whole rounds of a response and its results are left out; the last round stays, whatever its size.

    Args:
        messages: What is to be summarised, oldest first.
        available_tokens: What is left for messages.
        message_tokens: Tokens of one message.
    """
    sizes = [message_tokens(message) for message in messages]
    omitted = 0
    remaining = sum(sizes)
    for position, message in enumerate(messages):
        if remaining <= available_tokens:
            break
        if position and message.role != "tool":
            remaining -= sum(sizes[omitted:position])
            omitted = position
    return omitted


def _positions_between_rounds(messages: Sequence[AgentMessage]) -> list[int]:
    """Where a round begins right behind one whose calls all have their results."""
    positions = []
    missing_results = 0
    for index, message in enumerate(messages):
        if message.role == "tool":
            missing_results -= 1
            continue
        if index and missing_results <= 0:
            positions.append(index)
        missing_results = len(message.tool_calls)
    return positions
