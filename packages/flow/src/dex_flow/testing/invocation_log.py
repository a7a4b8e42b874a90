"""An append-only file of what really happened, whichever process did it and however it ended."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec

__all__ = ["Invocation", "InvocationLog"]


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One line.

    Attributes:
        key: What was invoked.
        event: How far it came; `GatedFlow` bodies write `begin`, `effect` and `end`.
        attempt: From 1; 0 when there is none.
        process: The process ID of the writer.
    """

    key: str
    event: str
    attempt: int = 0
    process: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Invocation)


class InvocationLog:
    """Appends with `O_APPEND` and one write per line, so that lines of killed and concurrent processes stay whole.

    Args:
        path: The file; created by the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def record(self, key: str, event: str, attempt: int = 0) -> None:
        """Append one line before returning."""
        line = Invocation(key=key, event=event, attempt=attempt, process=os.getpid())
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, _encoder.encode(line) + b"\n")
        finally:
            os.close(descriptor)

    def read(self) -> list[Invocation]:
        """Every line so far, oldest first."""
        if not self.path.exists():
            return []
        return [_decoder.decode(line) for line in self.path.read_bytes().splitlines()]

    def count(self, event: str) -> Counter[str]:
        """How often each key came to this event."""
        return Counter(line.key for line in self.read() if line.event == event)
