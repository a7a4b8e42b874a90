"""Pydantic AI's messages as the session stores them: JSON text that says which version of the framework wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic_ai
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
)
from pydantic_core import PydanticSerializationError

from dex_agents import AgentMessage, FrameworkMessage, TurnRefusedError
from dex_agents.session.sanitizer import sanitize_json_text, sanitize_json_value

__all__ = [
    "FRAMEWORK_VERSION",
    "NO_TIME",
    "IncompatibleFrameworkVersionError",
    "StoredItem",
    "UnreadableFrameworkItemError",
    "continues_previous",
    "decode_messages",
    "encode_item",
    "encode_message",
    "load_history",
]

FRAMEWORK_VERSION: str = pydantic_ai.__version__
#: The time in parts that the adapter makes: building them must be pure, and the session keeps its own times.
NO_TIME = datetime.fromtimestamp(0, UTC)


class UnreadableFrameworkItemError(TurnRefusedError):
    """A stored message was not written by this adapter."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"a stored message is not a Pydantic AI item ({reason}); a session keeps the runner it was started with, "
            "so start a new session for another runner"
        )


class IncompatibleFrameworkVersionError(TurnRefusedError):
    """A stored value was written by a version of Pydantic AI that the installed one cannot read.

    Args:
        written_by: The version that wrote it.
        reason: What the installed version says about it.
    """

    def __init__(self, written_by: str, reason: str) -> None:
        super().__init__(
            f"Pydantic AI {written_by} wrote a message of this session that the installed version "
            f"{FRAMEWORK_VERSION} cannot read; run this session with {written_by} or newer ({reason})"
        )


class _StoredItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored form of `StoredItem`.

    Attributes:
        pydantic_ai: The version that wrote it.
        messages: Messages of the framework, each its JSON.
        continues_request: Whether the first message's parts belong to the request before it.
        inserted: Parts the framework put into the request before it, each as a request of its own.
        inserted_at: Where each of them stands in that request.
    """

    pydantic_ai: str
    messages: tuple[msgspec.Raw, ...] = ()
    continues_request: bool = False
    inserted: tuple[msgspec.Raw, ...] = ()
    inserted_at: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """What one message of the session holds of the framework's conversation.

    The session stores a message per result of a tool; the framework has one request with all of them. It also adds
    parts of its own to the request it sends. So an item can extend the request before it.

    Attributes:
        messages: Messages of the framework, in order.
        continues_request: Whether the first message's parts belong to the request before it.
        inserted: Parts that the framework put into the request before it, with their positions there.
    """

    messages: Sequence[ModelMessage] = ()
    continues_request: bool = False
    inserted: Sequence[tuple[int, ModelRequestPart]] = field(default_factory=tuple)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_StoredItem)


def encode_message(message: ModelMessage) -> str:
    """JSON text of one message of the framework."""
    return _dump(message).decode()


def _dump(message: ModelMessage) -> bytes:
    try:
        return ModelMessagesTypeAdapter.dump_json([message])[1:-1]
    except PydanticSerializationError:
        # A lone surrogate somewhere; anything else that cannot be JSON raises again.
        (value,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
        return json.dumps(sanitize_json_value(value), ensure_ascii=False).encode()


def decode_messages(texts: Sequence[str | msgspec.Raw], written_by: Sequence[str]) -> list[ModelMessage]:
    """Messages from their JSON texts.

    Args:
        texts: The texts.
        written_by: Which version wrote each of them.

    Raises:
        IncompatibleFrameworkVersionError: The installed version cannot read one of them.
    """
    encoded = [text.encode() if isinstance(text, str) else bytes(text) for text in texts]
    try:
        return ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(encoded) + b"]")
    except ValueError:
        for text, version in zip(encoded, written_by, strict=True):
            _check_readable(text, version)
        raise


def _check_readable(text: bytes, written_by: str) -> None:
    try:
        ModelMessagesTypeAdapter.validate_json(b"[" + text + b"]")
    except ValueError as error:
        reason = str(error).splitlines()
        raise IncompatibleFrameworkVersionError(written_by, "; ".join(line.strip() for line in reason[:3])) from error


def encode_item(item: StoredItem) -> str:
    """JSON text of an item, repaired so that every reader of JSON can read it."""
    stored = _StoredItem(
        pydantic_ai=FRAMEWORK_VERSION,
        messages=tuple(_raw(message) for message in item.messages),
        continues_request=item.continues_request,
        inserted=tuple(_raw(ModelRequest(parts=[part])) for _, part in item.inserted),
        inserted_at=tuple(position for position, _ in item.inserted),
    )
    return sanitize_json_text(_encoder.encode(stored).decode())


def load_history(messages: Iterable[AgentMessage | FrameworkMessage]) -> list[ModelMessage]:
    """The framework's conversation from stored messages, oldest first.

    Raises:
        UnreadableFrameworkItemError: Another runner wrote one of them.
        IncompatibleFrameworkVersionError: A version of the framework wrote one that the installed one cannot read.
    """
    items = [_decode_item(message.framework_item) for message in messages]
    texts = [raw for item in items for raw in (*item.inserted, *item.messages)]
    versions = [item.pydantic_ai for item in items for _ in (*item.inserted, *item.messages)]
    decoded = iter(decode_messages(texts, versions))
    history: list[ModelMessage] = []
    for item in items:
        inserted = [part for _ in item.inserted for part in _parts_of(next(decoded))]
        own = [next(decoded) for _ in item.messages]
        _insert(history, inserted, item.inserted_at)
        if item.continues_request and own and history and isinstance(history[-1], ModelRequest):
            history[-1] = replace(history[-1], parts=[*history[-1].parts, *_parts_of(own.pop(0))])
        history += own
    return history


def continues_previous(framework_item: str) -> bool:
    """Whether a stored message only extends the request before it, so that nothing may come between them.

    Raises:
        UnreadableFrameworkItemError: Another runner wrote it.
    """
    item = _decode_item(framework_item)
    return item.continues_request or not item.messages


def _insert(history: list[ModelMessage], parts: list[ModelRequestPart], positions: Sequence[int]) -> None:
    if not parts or not history or not isinstance(history[-1], ModelRequest):
        return  # the request they were part of is summarised
    together = list(history[-1].parts)
    for position, part in zip(positions, parts, strict=True):
        together.insert(position, part)
    history[-1] = replace(history[-1], parts=together)


def _parts_of(message: ModelMessage) -> list[ModelRequestPart]:
    if isinstance(message, ModelResponse):
        raise UnreadableFrameworkItemError("a response stands where a request must be")
    return list(message.parts)


def _decode_item(text: str) -> _StoredItem:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableFrameworkItemError(str(error)) from error


def _raw(message: ModelMessage) -> Any:
    return msgspec.Raw(_dump(message))
