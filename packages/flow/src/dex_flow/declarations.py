"""Durable names of a Flow: attributes, channels and streams. A declared name never changes once stored."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

from dex_flow.errors import DefinitionError
from dex_flow.waits import ChannelCondition

__all__ = ["Attribute", "AttributeMap", "Channel", "ChannelMap", "Declaration", "Stream"]

Value = TypeVar("Value")

DEFAULT_STREAM_CAPACITY_BYTES = 10 * 1024 * 1024


class Declaration(Generic[Value]):
    """One durable name and the type of its values.

    Args:
        name: The durable name, unique in its Flow.
        value_type: What the values are; anything msgspec can decode.
    """

    __slots__ = ("name", "value_type")

    @overload
    def __init__(self, name: str, value_type: type[Value]) -> None: ...

    @overload
    def __init__(self, name: str, value_type: Any) -> None: ...

    def __init__(self, name: str, value_type: Any) -> None:
        if not isinstance(name, str) or not name:
            raise DefinitionError(f"a durable name must be non-empty text, not {name!r}")
        self.name = name
        self.value_type = value_type

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Attribute(Declaration[Value]):
    """One value of a Flow execution, unset until pure code sets it."""

    __slots__ = ()


class AttributeMap(Declaration[Value]):
    """Values by text key, readable in key order."""

    __slots__ = ()


class Channel(Declaration[Value]):
    """A first-in first-out queue whose messages have IDs and are consumed exactly once."""

    __slots__ = ()

    def receive(self, count: int = 1) -> ChannelCondition:
        """The condition that `count` messages are there; satisfying it consumes them."""
        return ChannelCondition(self.name, "", count)


class ChannelMap(Declaration[Value]):
    """Channels by text key."""

    __slots__ = ()

    def receive(self, key: str, count: int = 1) -> ChannelCondition:
        """The condition that `count` messages are there under `key`; satisfying it consumes them."""
        return ChannelCondition(self.name, key, count)


class Stream(Declaration[Value]):
    """Best-effort live events, trimmed oldest first.

    Args:
        name: The durable name.
        value_type: The type of one event.
        capacity_bytes: Bytes kept for all executions of the Flow type together.
    """

    __slots__ = ("capacity_bytes",)

    @overload
    def __init__(self, name: str, value_type: type[Value], capacity_bytes: int = ...) -> None: ...

    @overload
    def __init__(self, name: str, value_type: Any, capacity_bytes: int = ...) -> None: ...

    def __init__(self, name: str, value_type: Any, capacity_bytes: int = DEFAULT_STREAM_CAPACITY_BYTES) -> None:
        super().__init__(name, value_type)
        if capacity_bytes < 1:
            raise DefinitionError(f"stream {name!r} needs a capacity of at least 1 byte, not {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
