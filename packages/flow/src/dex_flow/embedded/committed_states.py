"""What this engine's own commits left of executions, so that the event loop answers from memory what it can.

A state here was committed; other processes may have gone on meanwhile. Whoever needs the newest state reads the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from dex_flow.kernel import Kernel, KnownState, StoredRequest
from dex_flow.transaction import StateView

__all__ = ["CommittedState", "CommittedStates", "NotKnownError", "view_known"]

Value = TypeVar("Value")

_MOST_FLOWS = 1_024
_MOST_BYTES = 64 << 20


class NotKnownError(Exception):
    """The file has to be read."""


class CommittedState(NamedTuple):
    """One committed version of an execution."""

    kernel: Kernel
    version: int
    status: str
    header: bytes
    known: KnownState


class CommittedStates:
    """By flow ID; changed on the event loop, read on the reader thread too.

    Args:
        on_full: Called when all were forgotten because they took too much memory.
    """

    def __init__(self, on_full: Callable[[], None]) -> None:
        self._on_full = on_full
        self._states: dict[str, CommittedState] = {}
        # What is known grows as it is read, so what was counted is kept.
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def get(self, flow_id: str) -> CommittedState | None:
        """The latest one."""
        return self._states.get(flow_id)

    def put(self, flow_id: str, state: CommittedState) -> None:
        """A command was committed."""
        self.forget(flow_id)
        if len(self._states) >= _MOST_FLOWS or self._bytes > _MOST_BYTES:
            self._forget_all()
        self._states[flow_id] = state
        size = self._sizes[flow_id] = state.known.size
        self._bytes += size

    def count_again(self, flow_id: str) -> None:
        """Reads of the file may have added to what is known of an execution."""
        state = self._states.get(flow_id)
        if state is None:
            return
        size = state.known.size
        self._bytes += size - self._sizes[flow_id]
        self._sizes[flow_id] = size
        if self._bytes > _MOST_BYTES:
            self._forget_all()
            self._on_full()

    def forget(self, flow_id: str) -> None:
        """A command under another definition was committed."""
        self._states.pop(flow_id, None)
        self._bytes -= self._sizes.pop(flow_id, 0)

    def _forget_all(self) -> None:
        self._states.clear()
        self._sizes.clear()
        self._bytes = 0


def view_known(state: CommittedState, flow_id: str, now: int, code: Callable[[StateView], Value]) -> Value:
    """Run read-only code over a state in memory.

    Raises:
        NotKnownError: The code reads what is not in memory.
        Exception: What the code raised.
    """
    reader = _KnownOnlyReader(state.header)
    try:
        value = state.kernel.view(reader, flow_id, now, code, state.known)
    except BaseException as error:
        if reader.is_in_vain:
            raise NotKnownError(flow_id) from error
        raise
    # Whatever the code made of the refusal to read does not count.
    if reader.is_in_vain:
        raise NotKnownError(flow_id)
    return value


class _KnownOnlyReader:
    """A `StateReader` that has nothing beyond what is known."""

    __slots__ = ("_header", "is_in_vain")

    def __init__(self, header: bytes) -> None:
        self._header = header
        self.is_in_vain = False

    def header(self) -> bytes | None:
        return self._header

    def attribute(self, name: str, key: str) -> bytes | None:
        self._refuse()

    def attribute_range(
        self, name: str, at_least: str, below: str | None, limit: int | None, newest_first: bool
    ) -> list[tuple[str, bytes]]:
        self._refuse()

    def messages(self, channel: str, key: str, limit: int | None) -> list[tuple[int, bytes]]:
        self._refuse()

    def message(self, channel: str, key: str, message_id: int) -> bytes | None:
        self._refuse()

    def message_count(self, channel: str, key: str) -> int:
        self._refuse()

    def step_body(self, step_execution_id: int) -> bytes | None:
        self._refuse()

    def stored_request(self, request_id: str) -> StoredRequest | None:
        self._refuse()

    def oldest_requests(self, limit: int) -> list[StoredRequest]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.is_in_vain = True
        raise NotKnownError
