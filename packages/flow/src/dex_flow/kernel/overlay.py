"""Uncommitted state over stored state, with an undo journal.

Values are shared, never copied: pure code treats them as immutable. Values are encoded when the piece of code that set
them ends, so that a value that cannot be stored fails that piece alone.
"""

from __future__ import annotations

from typing import Any

from dex_flow.codec import decode, encode
from dex_flow.declarations import Declaration, Stream
from dex_flow.errors import UndeclaredNameError
from dex_flow.flow import Flow
from dex_flow.kernel.reader import StateReader

__all__ = ["Overlay"]

_MISSING: Any = object()
Key = tuple[str, str]
_MOST_KNOWN_VALUES = 64


class _Pending:
    """A written attribute value and, once its code ended well, its encoding."""

    __slots__ = ("data", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.data: bytes | None = None


class Overlay:
    """Attributes, channels and events of one command."""

    __slots__ = (
        "_dirty",
        "_flow",
        "_journal",
        "_known",
        "_reader",
        "consumed",
        "events",
        "next_message",
        "published",
        "touched",
        "written",
    )

    def __init__(self, flow: Flow, reader: StateReader, next_message: int, known: dict[Key, Any] | None = None) -> None:
        self._flow = flow
        self._reader = reader
        self._known: dict[Key, Any] = {} if known is None else known
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._dirty: list[Key] = []
        self.written: dict[Key, _Pending | None] = {}
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

    def known_after(self) -> dict[Key, Any]:
        """Values of single slots as they stand after the command, for a later command on exactly that state."""
        known = dict(self._known)
        for slot, pending in self.written.items():
            known[slot] = None if pending is None else pending.value
        return known if len(known) <= _MOST_KNOWN_VALUES else {}

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
        for key in self._dirty:
            pending = self.written[key]
            if pending is not None and pending.data is None:
                pending.data = self._encoded(*key, pending.value)
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

    def _encoded(self, name: str, key: str, value: Any) -> bytes:
        try:
            return encode(value)
        except Exception as error:
            where = f"{self.declaration(name)!r} under {key!r}" if key else repr(self.declaration(name))
            raise ValueError(f"a value for {where} cannot be stored: {error}") from error

    # Attributes

    def get(self, name: str, key: str) -> Any:
        slot = (name, key)
        if slot in self.written:
            pending = self.written[slot]
            return None if pending is None else pending.value
        if slot in self._known:
            return self._known[slot]
        declaration = self.declaration(name)
        data = self._reader.attribute(name, key)
        value = self._known[slot] = None if data is None else decode(declaration.value_type, data)
        return value

    def set(self, name: str, key: str, value: Any) -> None:
        self.declaration(name)
        self.check_key(name, key)
        slot = (name, key)
        self.record(self.written, slot, _Pending(value))
        self._dirty.append(slot)

    def delete(self, name: str, key: str) -> None:
        self.declaration(name)
        self.check_key(name, key)
        self.record(self.written, (name, key), None)

    def read_range(
        self, name: str, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, Any]]:
        value_type = self.declaration(name).value_type
        own = {
            key: pending
            for (own_name, key), pending in self.written.items()
            if own_name == name and key >= at_least and (below is None or key < below)
        }
        wanted = None if limit is None else limit + len(own)
        stored = self._reader.attribute_range(name, at_least, below, wanted, newest_first)
        if not own:
            return [(key, decode(value_type, data)) for key, data in stored]
        rows: dict[str, Any] = {key: decode(value_type, data) for key, data in stored if key not in own}
        rows.update((key, pending.value) for key, pending in own.items() if pending is not None)
        keys = sorted(rows, reverse=newest_first)
        return [(key, rows[key]) for key in (keys if limit is None else keys[:limit])]

    # Channels

    def publish(self, name: str, key: str, value: Any) -> int:
        self.declaration(name)
        self.check_key(name, key)
        data = self._encoded(name, key, value)
        message_id = self.next_message
        self.next_message += 1
        self.record(self.published.setdefault((name, key), {}), message_id, data)
        self.touched.append((name, key))
        return message_id

    def pending(self, name: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        """Waiting messages as encoded bytes, oldest first."""
        self.declaration(name)
        gone = self.consumed.get((name, key), ())
        wanted = None if limit is None else limit + len(gone)
        found = [row for row in self._reader.messages(name, key, wanted) if row[0] not in gone]
        if limit is None or len(found) < limit:
            # Undoing a consumption puts a message back at the end of its dict.
            found += sorted(self.published.get((name, key), {}).items())
        return found if limit is None else found[:limit]

    def count(self, name: str, key: str) -> int:
        self.declaration(name)
        slot = (name, key)
        own, gone = self.published.get(slot, ()), self.consumed.get(slot, ())
        return self._reader.message_count(name, key) + len(own) - len(gone)

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
            if self._reader.message(name, key, message_id) is None:
                return False
        self.consume(name, key, message_id)
        return True

    def emit(self, stream: Stream[Any], event: Any) -> None:
        self.declaration(stream.name)
        self.events.append((stream.name, self._encoded(stream.name, "", event)))
