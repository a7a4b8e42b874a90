"""The stored `framework_item` of a Stepwise message: one of three JSON objects, told apart by `type`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = [
    "ModelOutputItem",
    "StoredItem",
    "StoredToolCall",
    "ToolResultItem",
    "UnreadableFrameworkItemError",
    "UserTextItem",
    "decode_framework_item",
    "encode_framework_item",
]


class UnreadableFrameworkItemError(ValueError):
    """A stored message was not written by a Stepwise runner, or by a newer release with another shape."""


# A newer release may store more fields; reading ignores them. Every model call of a session reads all of its items, so
# they hold nothing that the garbage collector must follow.
class StoredToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call of a model output under the provider's own ID; `arguments` is always JSON object text."""

    tool_call_id: str
    tool_name: str
    arguments: str


class UserTextItem(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="user_text"):
    """What the user said, or a note of the session."""

    text: str


class ModelOutputItem(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="model_output"):
    """A model's response; `item` is the provider's own form of it, which only the same `provider` and `api` reads."""

    provider: str
    api: str
    item: str | None = None
    text: str = ""
    tool_calls: tuple[StoredToolCall, ...] = ()


class ToolResultItem(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag="tool_result"):
    """The result of one call under the session's durable `tool_call_id`."""

    tool_call_id: str
    tool_name: str
    output: str


StoredItem: TypeAlias = UserTextItem | ModelOutputItem | ToolResultItem

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[StoredItem] = msgspec.json.Decoder(StoredItem)


def encode_framework_item(item: StoredItem) -> str:
    """JSON text of a stored item."""
    return _encoder.encode(item).decode()


def decode_framework_item(text: str) -> StoredItem:
    """Read a stored item.

    Raises:
        UnreadableFrameworkItemError: It is none of the three shapes.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableFrameworkItemError(
            f"a stored message is not a Stepwise item ({error}); a session keeps the runner it was started "
            "with, so start a new session for another runner"
        ) from error
