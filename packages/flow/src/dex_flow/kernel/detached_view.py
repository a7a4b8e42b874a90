"""A `StateView` for processes without the Flow's definition: the declarations that a caller passes say the types."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from dex_flow.codec import decode
from dex_flow.declarations import Attribute, AttributeMap, Channel, ChannelMap
from dex_flow.errors import FlowNotFoundError
from dex_flow.kernel.reader import StateReader
from dex_flow.kernel.state import decode_last_now, timestamp

__all__ = ["DetachedView"]

Value = TypeVar("Value")


class DetachedView:
    """Reads of stored state; a name that the Flow does not declare is unset or empty here.

    Args:
        reader: The stored state.
        flow_id: The execution.
        now: Microseconds since the epoch.

    Raises:
        FlowNotFoundError: The execution does not exist.
    """

    __slots__ = ("_flow_id", "_now", "_reader")

    def __init__(self, reader: StateReader, flow_id: str, now: int) -> None:
        stored = reader.header()
        if stored is None:
            raise FlowNotFoundError(flow_id)
        self._reader = reader
        self._flow_id = flow_id
        self._now = max(now, decode_last_now(stored))

    @property
    def flow_id(self) -> str:
        return self._flow_id

    @property
    def now(self) -> datetime:
        return timestamp(self._now)

    def get(self, attribute: Attribute[Value]) -> Value | None:
        return self._read(attribute, "")

    def get_instance(self, attribute_map: AttributeMap[Value], key: str) -> Value | None:
        return self._read(attribute_map, key)

    def read_range(
        self,
        attribute_map: AttributeMap[Value],
        *,
        at_least: str = "",
        below: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[tuple[str, Value]]:
        rows = self._reader.attribute_range(attribute_map.name, at_least, below, limit, newest_first)
        return [(key, decode(attribute_map.value_type, data)) for key, data in rows]

    def list_messages(self, channel: Channel[Value], *, limit: int | None = None) -> list[tuple[int, Value]]:
        return self._list(channel, "", limit)

    def list_instance_messages(
        self, channel_map: ChannelMap[Value], key: str, *, limit: int | None = None
    ) -> list[tuple[int, Value]]:
        return self._list(channel_map, key, limit)

    def count_messages(self, channel: Channel[Any] | ChannelMap[Any], key: str = "") -> int:
        return self._reader.message_count(channel.name, key)

    def _read(self, declaration: Attribute[Value] | AttributeMap[Value], key: str) -> Value | None:
        data = self._reader.attribute(declaration.name, key)
        value: Value | None = None if data is None else decode(declaration.value_type, data)
        return value

    def _list(self, channel: Channel[Any] | ChannelMap[Any], key: str, limit: int | None) -> list[tuple[int, Any]]:
        rows = self._reader.messages(channel.name, key, limit)
        return [(number, decode(channel.value_type, data)) for number, data in rows]
