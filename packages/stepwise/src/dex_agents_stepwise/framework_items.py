"""The stored `framework_item` of a Stepwise message: one of three JSON objects, told apart by `type`."""

from __future__ import annotations

import functools
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

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


class _StoredItem(BaseModel):
    # A newer release may store more fields; reading ignores them.
    model_config = ConfigDict(frozen=True, extra="ignore")


class StoredToolCall(_StoredItem):
    """A call of a model output under the provider's own ID; `arguments` is always JSON object text."""

    tool_call_id: str
    tool_name: str
    arguments: str


class UserTextItem(_StoredItem):
    """What the user said, or a note of the session."""

    type: Literal["user_text"] = "user_text"
    text: str


class ModelOutputItem(_StoredItem):
    """A model's response; `item` is the provider's own form of it, which only the same `provider` and `api` reads."""

    type: Literal["model_output"] = "model_output"
    provider: str
    api: str
    item: str | None = None
    text: str = ""
    tool_calls: tuple[StoredToolCall, ...] = ()


class ToolResultItem(_StoredItem):
    """The result of one call under the session's durable `tool_call_id`."""

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    tool_name: str
    output: str


StoredItem: TypeAlias = UserTextItem | ModelOutputItem | ToolResultItem

_ADAPTER: TypeAdapter[StoredItem] = TypeAdapter(Annotated[StoredItem, Field(discriminator="type")])


_MOST_CACHED_CHARACTERS = 8_192


# Stored items never change, and every model call of a session reads all of them again. Large ones are few, and would
# fill the memory.
@functools.lru_cache(maxsize=16_384)
def _decode(text: str) -> StoredItem:
    return _ADAPTER.validate_json(text)


def encode_framework_item(item: StoredItem) -> str:
    """JSON text of a stored item."""
    return item.model_dump_json()


def decode_framework_item(text: str) -> StoredItem:
    """Read a stored item.

    Raises:
        UnreadableFrameworkItemError: It is none of the three shapes.
    """
    try:
        return _decode(text) if len(text) <= _MOST_CACHED_CHARACTERS else _ADAPTER.validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise UnreadableFrameworkItemError(
            f"a stored message is not a Stepwise item ({problem['msg']}); a session keeps the runner it was started "
            "with, so start a new session for another runner"
        ) from error
