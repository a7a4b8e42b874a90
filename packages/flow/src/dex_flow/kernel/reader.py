"""The kernel's only source of stored state: point reads and ordered ranges, so that a command costs what it touches."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["StateReader", "StoredRequest"]


class StoredRequest(msgspec.Struct, frozen=True, array_like=True):
    """A remembered mutating call; `input_digest` tells a repeated call from a reused ID."""

    request_id: str
    number: int
    operation: str
    input_digest: str
    output: msgspec.Raw
    recorded_at: int


class StateReader(Protocol):
    """Reads of one Flow execution's stored rows as encoded bytes."""

    def header(self) -> bytes | None:
        """The header row; None when the execution does not exist."""
        ...

    def attribute(self, name: str, key: str) -> bytes | None:
        """One value; the key of a plain attribute is empty."""
        ...

    def attribute_range(
        self, name: str, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, bytes]]:
        """Keys and values with `at_least <= key < below` in key order."""
        ...

    def messages(self, channel: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        """Waiting messages by ascending ID."""
        ...

    def message(self, channel: str, key: str, message_id: int) -> bytes | None:
        """One waiting message."""
        ...

    def message_count(self, channel: str, key: str) -> int:
        """How many messages wait; decodes none."""
        ...

    def step_body(self, step_execution_id: int) -> bytes | None:
        """Input, consumed messages, outcome, recovery error and checkpoint of one open Step."""
        ...

    def stored_request(self, request_id: str) -> StoredRequest | None:
        """A remembered request."""
        ...

    def oldest_requests(self, limit: int) -> list[StoredRequest]:
        """Remembered requests by ascending number."""
        ...
