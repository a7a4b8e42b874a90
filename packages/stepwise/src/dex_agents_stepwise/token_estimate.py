"""About how many tokens texts and messages have: by the model client's own count, or from their length."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable

from dex_agents import AgentMessage, FrameworkMessage, estimate_text_tokens
from dex_agents.compaction_cuts import BYTES_PER_TWO_TOKENS
from dex_agents_stepwise.model_client import ModelClient, TokenCounter

__all__ = ["TokenCounts", "TokenEstimator"]

#: What a provider adds around each message and each tool.
TOKENS_PER_ITEM = 4
# The keys and names around a stored response's own content.
_ENVELOPE_BYTES = 120
_MAX_REMEMBERED_TEXTS = 20_000
_MAX_REMEMBERED_COUNTERS = 8


class TokenCounts:
    """Remembers what clients counted, so that a text of a conversation is counted once and not in every model call."""

    def __init__(self) -> None:
        self._counts: OrderedDict[int, tuple[TokenCounter, dict[tuple[int, int], int]]] = OrderedDict()

    def count(self, counter: TokenCounter, text: str) -> int:
        """Tokens of a text.

        Raises:
            TypeError: The client returned something else.
        """
        # The client is kept beside its counts, or another one could get its address and its counts.
        _, counts = self._counts.setdefault(id(counter), (counter, {}))
        key = (len(text), hash(text))
        known = counts.get(key)
        if known is not None:
            return known
        count = counter.count_tokens(text)
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"{type(counter).__name__}.count_tokens must return a whole number, not {count!r}")
        if len(counts) >= _MAX_REMEMBERED_TEXTS:
            counts.clear()
        counts[key] = count
        if len(self._counts) > _MAX_REMEMBERED_COUNTERS:
            self._counts.popitem(last=False)
        return count


class TokenEstimator:
    """Estimates what a client's model reads.

    Without a count of the client, two tokens are 7 bytes of UTF-8. Of a model's response, its text and calls count,
    and, for the client that made it, what its stored form has beyond them, such as reasoning; nothing is decoded.

    Args:
        model: The client.
        counts: What clients counted so far.
    """

    def __init__(self, model: ModelClient, counts: TokenCounts) -> None:
        self._counter = model if isinstance(model, TokenCounter) else None
        self._counts = counts
        self._own_start = _stored_output_start(model)

    def text(self, text: str) -> int:
        """Tokens of a text."""
        if not text:
            return 0
        if self._counter is None:
            return estimate_text_tokens(text)
        return self._counts.count(self._counter, text)

    def item(self, text: str) -> int:
        """Tokens of a text that is a message or a tool of its own."""
        return self.text(text) + TOKENS_PER_ITEM

    def messages(self, messages: Iterable[AgentMessage | FrameworkMessage]) -> int:
        """Tokens of messages together."""
        return sum(self.message(message) for message in messages)

    def message(self, message: AgentMessage | FrameworkMessage) -> int:
        """Tokens of one message."""
        tokens = self.item(message.text)
        if message.role != "assistant":
            return tokens
        twice = _stored_twice_size(message.text)
        for call in message.tool_calls:
            tokens += self.text(call.tool_name) + self.text(call.arguments) + TOKENS_PER_ITEM
            twice += 2 * _size(call.tool_name) + 2 * _size(call.tool_call_id) + _stored_twice_size(call.arguments)
        if message.framework_item.startswith(self._own_start):
            beyond = _size(message.framework_item) - twice - _ENVELOPE_BYTES
            tokens += _tokens_of_bytes(max(0, beyond))
        return tokens


def _size(text: str) -> int:
    # Instructions are the application's own, and may hold what cannot be encoded.
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _stored_twice_size(text: str) -> int:
    """About how long a text is as a JSON string, and again as one inside the JSON text of a provider's own form."""
    return 2 * _size(text) + 4 * (text.count('"') + text.count("\\")) + 3 * text.count("\n")


def _tokens_of_bytes(size: int) -> int:
    return -(-size * 2 // BYTES_PER_TWO_TOKENS)


def _stored_output_start(model: ModelClient) -> str:
    provider, api = (json.dumps(name, ensure_ascii=False) for name in (model.provider, model.api))
    return f'{{"type":"model_output","provider":{provider},"api":{api},"item":"'
