"""Uncommitted state over stored state, with an undo journal.

Values whose types allow it are shared; others are decoded for every read, so that what code changes in place without
setting it, or before it fails, changes nothing. Values are encoded when the piece of code that set them ends, so that a
value that cannot be stored, or not be read as its declared type, fails that piece alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dex_flow.codec import decode, encode_declared
from dex_flow.declarations import Declaration, Stream
from dex_flow.errors import UndeclaredNameError, UnstorableValueError
from dex_flow.flow import Flow
from dex_flow.immutability import is_immutable_type
from dex_flow.kernel.known import KnownState, KnownValue
from dex_flow.kernel.reader import StateReader

__all__ = ["Overlay"]

_MISSING: Any = object()
Key = tuple[str, str]


class Overlay:
    """Attributes, channels and events of one command.

    Args:
        flow: The definition.
        reader: Stored state, for what is not known of it.
        next_message: ID of the next message.
        known: What is known of exactly that state; what is read is added.
    """

    __slots__ = (
        "_dirty",
        "_flow",
        "_journal",
        "_reader",
        "consumed",
        "events",
        "known",
        "next_message",
        "published",
        "touched",
        "written",
    )

    def __init__(
        self,
        flow: Flow,
        reader: StateReader,
        next_message: int,
        known: KnownState | None = None,
    ) -> None:
        self._flow = flow
        self._reader = reader
        self.known = KnownState() if known is None else known
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._dirty: list[Key] = []
        self.written: dict[Key, KnownValue | None] = {}
        # By (channel, key): new messages that wait, and stored ones that are gone.
        self.published: dict[Key, dict[int, bytes]] = {}
        self.consumed: dict[Key, dict[int, bool]] = {}
        self.events: list[tuple[str, bytes]] = []
        self.touched: list[Key] = []
        self.next_message = next_message

    def declaration(self, name: str) -> Declaration[Any]:
        """The declared durable name; `UndeclaredNameError` otherwise."""
        try:
            return self._flow.declarations[name]
        except KeyError:
            raise UndeclaredNameError(f"flow {self._flow.flow_type!r} declares no {name!r}") from None

    @property
    def is_changed(self) -> bool:
        """Whether anything was written, counting what belongs to Steps."""
        return bool(self._journal or self.events)

    # Undo

    def mark(self) -> tuple[int, int, int, int]:
        """A point to roll back to; also begins a new piece of code."""
        self._dirty.clear()
        return len(self._journal), len(self.events), len(self.touched), self.next_message

    def roll_back(self, mark: tuple[int, int, int, int]) -> None:
        """Undo every write since the mark."""
        journal = self._journal
        while len(journal) > mark[0]:
            target, key, old = journal.pop()
            if old is _MISSING:
                del target[key]
            else:
                target[key] = old
        del self.events[mark[1] :]
        del self.touched[mark[2] :]
        self.next_message = mark[3]
        self._dirty.clear()

    def encode_written(self) -> None:
        """Encode what was set since the mark; raises when a value cannot be stored."""
        written = self.written
        for slot in self._dirty:
            pending = written[slot]
            if pending is not None and pending.data is None:
                pending.data, pending.value = self._encoded(slot[0], slot[1], pending.value)
        self._dirty.clear()

    def record(self, target: dict[Any, Any], key: Any, value: Any) -> None:
        """Write `target[key]` so that it can be undone."""
        self._journal.append((target, key, target.get(key, _MISSING)))
        target[key] = value

    def remove(self, target: dict[Any, Any], key: Any) -> None:
        """Delete `target[key]` so that it can be undone."""
        self._journal.append((target, key, target.pop(key)))

    def check_key(self, name: str, key: str) -> None:
        """Refuse a key that no store can hold."""
        if not key.isascii():
            try:
                key.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"a key of {self.declaration(name)!r} is not valid Unicode: {key!r}") from error

    def _encoded(self, name: str, key: str, value: Any) -> tuple[bytes, Any]:
        declaration = self.declaration(name)
        try:
            return encode_declared(declaration.value_type, value)
        except Exception as error:
            where = f"{declaration!r} under {key!r}" if key else repr(declaration)
            raise UnstorableValueError(where, declaration.value_type, error) from error

    # Attributes

    def get(self, name: str, key: str) -> Any:
        slot = (name, key)
        if slot in self.written:
            found = self.written[slot]
        else:
            found = self.known.slots.get(slot, _MISSING)
            if found is _MISSING:
                found = self._find(name, key)
        return None if found is None else self._own(self.declaration(name).value_type, found)

    def _find(self, name: str, key: str) -> KnownValue | None:
        known = self.known.ranges.get(name)
        if known is not None and key >= known.at_least:
            return known.get(key)
        declaration = self.declaration(name)
        data = self._reader.attribute(name, key)
        value = None if data is None else KnownValue(decode(declaration.value_type, data), data)
        self.known.add_value(name, key, value)
        return value

    def _own(self, value_type: Any, known: KnownValue) -> Any:
        """The value for code that may change it in place; what the current piece of code has set is its own already."""
        if known.data is None or is_immutable_type(value_type):
            return known.value
        return decode(value_type, known.data)

    def set(self, name: str, key: str, value: Any) -> None:
        self.declaration(name)
        if not key.isascii():
            self.check_key(name, key)
        slot, written = (name, key), self.written
        self._journal.append((written, slot, written.get(slot, _MISSING)))
        written[slot] = KnownValue(value)
        self._dirty.append(slot)

    def delete(self, name: str, key: str) -> None:
        self.declaration(name)
        self.check_key(name, key)
        self.record(self.written, (name, key), None)

    def read_range(
        self, name: str, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, Any]]:
        stored_wanted = limit
        own: dict[str, KnownValue | None] = {}
        if self.written:
            own = {
                key: pending
                for (own_name, key), pending in self.written.items()
                if own_name == name and key >= at_least and (below is None or key < below)
            }
            stored_wanted = None if limit is None else limit + len(own)
        stored = self._stored_range(name, at_least, below, stored_wanted, newest_first)
        value_type = self.declaration(name).value_type
        if not own:
            if is_immutable_type(value_type):
                return [(key, value.value) for key, value in stored]
            return [(key, self._own(value_type, value)) for key, value in stored]
        rows = {key: self._own(value_type, value) for key, value in stored if key not in own}
        rows.update((key, self._own(value_type, pending)) for key, pending in own.items() if pending is not None)
        keys = sorted(rows, reverse=newest_first)
        return [(key, rows[key]) for key in (keys if limit is None else keys[:limit])]

    def _stored_range(
        self, name: str, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, KnownValue]]:
        value_type = self.declaration(name).value_type
        known = self.known.ranges.get(name)
        if known is not None and at_least >= known.at_least:
            return known.select(at_least, below, limit, newest_first)
        read = self._reader.attribute_range(name, at_least, below, limit, newest_first)
        stored = [(key, KnownValue(decode(value_type, data), data)) for key, data in read]
        if below is None and (limit is None or len(stored) < limit):
            self.known.add_range(name, at_least, stored[::-1] if newest_first else stored)
        return stored

    # Channels

    def publish(self, name: str, key: str, value: Any) -> int:
        self.declaration(name)
        self.check_key(name, key)
        data, _ = self._encoded(name, key, value)
        message_id = self.next_message
        self.next_message += 1
        self.record(self.published.setdefault((name, key), {}), message_id, data)
        self.touched.append((name, key))
        return message_id

    def pending(self, name: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        """Waiting messages as encoded bytes, oldest first; also of a channel that is no longer declared."""
        gone = self.consumed.get((name, key), ())
        wanted = None if limit is None else limit + len(gone)
        found = [row for row in self._stored_messages(name, key, wanted) if row[0] not in gone]
        if limit is None or len(found) < limit:
            # Undoing a consumption puts a message back at the end of its dict.
            found += sorted(self.published.get((name, key), {}).items())
        return found if limit is None else found[:limit]

    def _stored_messages(self, name: str, key: str, limit: int | None) -> Sequence[tuple[int, bytes]]:
        known = self.known.channels.get((name, key))
        if known is not None:
            return known
        stored = self._reader.messages(name, key, limit)
        if limit is None or len(stored) < limit:
            self.known.add_channel(name, key, stored)
        return stored

    def count(self, name: str, key: str) -> int:
        slot = (name, key)
        own, gone = self.published.get(slot, ()), self.consumed.get(slot, ())
        known = self.known.channels.get(slot)
        if known is None:
            stored = self._reader.message_count(name, key)
            if stored == 0:
                self.known.add_channel(name, key, ())
        else:
            stored = len(known)
        return stored + len(own) - len(gone)

    def consume(self, name: str, key: str, message_id: int) -> None:
        own = self.published.get((name, key))
        if own is not None and message_id in own:
            self.remove(own, message_id)
        else:
            self.record(self.consumed.setdefault((name, key), {}), message_id, True)

    def delete_message(self, name: str, key: str, message_id: int) -> bool:
        self.declaration(name)
        slot = (name, key)
        if message_id not in self.published.get(slot, ()):
            if message_id in self.consumed.get(slot, ()):
                return False
            if not self._is_stored(name, key, message_id):
                return False
        self.consume(name, key, message_id)
        return True

    def _is_stored(self, name: str, key: str, message_id: int) -> bool:
        known = self.known.channels.get((name, key))
        if known is not None:
            return any(message_id == waiting for waiting, _ in known)
        return self._reader.message(name, key, message_id) is not None

    def emit(self, stream: Stream[Any], event: Any) -> None:
        self.declaration(stream.name)
        self.events.append((stream.name, self._encoded(stream.name, "", event)[0]))
