"""What is known of one stored version of an execution, decoded, so that nothing of it need be read again.

Knowledge is exact or absent. What code reads is added; a command leaves what is known of the version it makes, and what
was known of the earlier one stays as it is, so that others may go on reading it meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dex_flow.declarations import Attribute, AttributeMap, Channel
from dex_flow.flow import Flow
from dex_flow.kernel.state import StepBody

if TYPE_CHECKING:
    from dex_flow.kernel.overlay import Overlay

__all__ = ["KnownRange", "KnownState", "KnownValue"]

Key = tuple[str, str]
_Messages = tuple[tuple[int, bytes], ...]

_MOST_VALUES = 64
_MOST_MESSAGES = 64
_LARGEST_RANGE = 1 << 20
_LARGEST_VALUE = 1 << 16
_LARGEST_STATE = 2 << 20


class KnownValue:
    """A value and its encoding, which is None until the code that set it has ended well."""

    __slots__ = ("data", "value")

    def __init__(self, value: Any, data: bytes | None = None) -> None:
        self.value = value
        self.data = data


class KnownRange:
    """Every instance of a map from one key on, in key order.

    The lists are shared with later versions that only appended to them, so just the first `count` items belong here.
    """

    __slots__ = ("at_least", "count", "keys", "size", "values")

    def __init__(self, at_least: str, keys: list[str], values: list[KnownValue], size: int) -> None:
        self.at_least = at_least
        self.keys = keys
        self.values = values
        self.count = len(keys)
        self.size = size

    def get(self, key: str) -> KnownValue | None:
        """The instance under a key that is not below the range."""
        index = bisect_left(self.keys, key, 0, self.count)
        return self.values[index] if index < self.count and self.keys[index] == key else None

    def select(
        self, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, KnownValue]]:
        """The stored instances that a read of the range wants."""
        start = 0 if at_least <= self.at_least else bisect_left(self.keys, at_least, 0, self.count)
        end = self.count if below is None else bisect_left(self.keys, below, 0, self.count)
        if limit is not None and end - start > limit:
            if newest_first:
                start = end - limit
            else:
                end = start + limit
        chosen = list(zip(self.keys[start:end], self.values[start:end], strict=True))
        if newest_first:
            chosen.reverse()
        return chosen

    def after(self, written: Iterable[tuple[str, KnownValue | None]]) -> KnownRange | None:
        """The range once these instances were set, or deleted where the value is None; None when it grew too large."""
        keys, values, size = self.keys, self.values, self.size
        is_shared = True
        if len(keys) != self.count:
            keys, values, is_shared = keys[: self.count], values[: self.count], False
        for key, value in written:
            if value is not None:
                assert value.data is not None
                size += len(value.data)
                if not keys or key > keys[-1]:
                    keys.append(key)
                    values.append(value)
                    continue
            if is_shared:
                # What was appended above belongs to the new version alone.
                keys, values, is_shared = keys.copy(), values.copy(), False
                del self.keys[self.count :], self.values[self.count :]
            index = bisect_left(keys, key)
            found = index < len(keys) and keys[index] == key
            if found:
                size -= len(values[index].data or b"")
            if value is None:
                if found:
                    del keys[index], values[index]
            elif found:
                values[index] = value
            else:
                keys.insert(index, key)
                values.insert(index, value)
        return None if size > _LARGEST_RANGE else KnownRange(self.at_least, keys, values, size)


class KnownState:
    """Knowledge of one version.

    Attributes:
        slots: Attribute values by (name, key); None for one that is not set.
        ranges: Instances of maps by name.
        channels: All waiting messages by (channel, key).
        bodies: What open Steps carry, by Step execution ID.
        size: At least the encoded bytes of all this.
    """

    __slots__ = ("bodies", "channels", "ranges", "size", "slots")

    def __init__(self) -> None:
        self.slots: dict[Key, KnownValue | None] = {}
        self.ranges: dict[str, KnownRange] = {}
        self.channels: dict[Key, _Messages] = {}
        self.bodies: dict[int, StepBody] = {}
        self.size = 0

    @classmethod
    def of_new_execution(cls, flow: Flow) -> KnownState:
        """Before an execution starts nothing of it is stored."""
        known = cls()
        for name, declaration in flow.declarations.items():
            if isinstance(declaration, AttributeMap):
                known.ranges[name] = KnownRange("", [], [], 0)
            elif isinstance(declaration, Channel):
                known.channels[name, ""] = ()
            elif isinstance(declaration, Attribute) and len(known.slots) < _MOST_VALUES:
                known.slots[name, ""] = None
        return known

    # Reading

    def add_value(self, name: str, key: str, value: KnownValue | None) -> None:
        """Note what was read."""
        size = 0 if value is None or value.data is None else len(value.data)
        if size <= _LARGEST_VALUE and len(self.slots) < _MOST_VALUES:
            self.slots[name, key] = value
            self.size += size

    def add_range(self, name: str, at_least: str, instances: list[tuple[str, KnownValue]]) -> None:
        """Note every instance from one key on."""
        size = sum(len(value.data or b"") for _, value in instances)
        if size <= _LARGEST_RANGE:
            self.ranges[name] = KnownRange(
                at_least, [key for key, _ in instances], [value for _, value in instances], size
            )
            self.size += size

    def add_channel(self, name: str, key: str, messages: Iterable[tuple[int, bytes]]) -> None:
        """Note all messages that wait."""
        self._put_channel((name, key), tuple(messages))

    def add_body(self, step_id: int, body: StepBody, size: int) -> None:
        """Note what an open Step carries."""
        if size <= _LARGEST_VALUE:
            self.bodies[step_id] = body
            self.size += size

    def _put_channel(self, slot: Key, messages: _Messages) -> None:
        if len(messages) <= _MOST_MESSAGES and len(self.channels) < _MOST_VALUES:
            self.channels[slot] = messages
            self.size += sum(len(data) for _, data in messages)
        else:
            self.channels.pop(slot, None)

    # The next version

    def after(self, overlay: Overlay, bodies: dict[int, tuple[StepBody, int] | None]) -> KnownState:
        """What is known once the overlay's writes are stored, and these bodies with their encoded sizes."""
        size = self.size
        ranges, slots = self.ranges.copy(), self.slots.copy()
        of_ranges: dict[str, list[tuple[str, KnownValue | None]]] = {}
        for slot, value in overlay.written.items():
            value_size = 0 if value is None or value.data is None else len(value.data)
            size += value_size
            name, key = slot
            known = ranges.get(name)
            if known is not None and key >= known.at_least:
                of_ranges.setdefault(name, []).append((key, value))
                slots.pop(slot, None)
            elif value_size <= _LARGEST_VALUE:
                slots[slot] = value
            else:
                slots.pop(slot, None)
        for name, written in of_ranges.items():
            later = ranges[name].after(written)
            if later is None:
                del ranges[name]
            else:
                ranges[name] = later
        if len(slots) > _MOST_VALUES:
            # Instances are many and seldom read again.
            slots = {slot: value for slot, value in slots.items() if not slot[1]}
        next_state = KnownState()
        next_state.ranges, next_state.slots = ranges, slots
        next_state.channels, next_state.bodies = self.channels, self.bodies
        next_state.size = size
        if overlay.published or overlay.consumed:
            next_state.channels = self.channels.copy()
            next_state._follow_channels(overlay)
        if bodies:
            next_state._follow_bodies(bodies)
        return next_state if next_state.size <= _LARGEST_STATE else KnownState()

    def _follow_bodies(self, bodies: dict[int, tuple[StepBody, int] | None]) -> None:
        self.bodies = self.bodies.copy()
        for step_id, body in bodies.items():
            if body is None:
                self.bodies.pop(step_id, None)
            else:
                self.bodies[step_id] = body[0]
                self.size += body[1]

    def _follow_channels(self, overlay: Overlay) -> None:
        for slot in {**overlay.published, **overlay.consumed}:
            known = self.channels.get(slot)
            if known is None:
                continue
            gone = overlay.consumed.get(slot, {})
            left = tuple(message for message in known if message[0] not in gone)
            new = overlay.published.get(slot)
            self._put_channel(slot, left + tuple(sorted(new.items())) if new else left)
