"""One running attempt: its `Activity`, its live events, its timeouts."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dex_flow.codec import encode_declared
from dex_flow.declarations import Stream
from dex_flow.embedded.command_transaction import AttemptLease, LiveEvents
from dex_flow.errors import (
    HeartbeatTimeoutError,
    StepAttemptTimeoutError,
    UndeclaredNameError,
    UnstorableValueError,
)
from dex_flow.exception_text import storable_text
from dex_flow.kernel import ClaimedAttempt, Kernel, SaveCheckpoint, timestamp

if TYPE_CHECKING:
    from dex_flow.embedded.worker import Worker

__all__ = ["RunningAttempt"]


class RunningAttempt:
    """The `Activity` of one attempt that this process runs."""

    __slots__ = (
        "_buffer",
        "_checkpoint",
        "_due",
        "_flow_id",
        "_is_flushing",
        "_last_heartbeat",
        "_longest_silence",
        "_loop",
        "_worker",
        "claim",
        "error",
        "is_over",
        "kernel",
        "lease",
        "task",
    )

    def __init__(
        self, worker: Worker, kernel: Kernel, flow_id: str, claim: ClaimedAttempt, lease: AttemptLease
    ) -> None:
        self.kernel = kernel
        self.claim = claim
        self.lease = lease
        self.is_over = False
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self._worker = worker
        self._flow_id = flow_id
        self._loop = worker.loop
        self._buffer: list[LiveEvents] = []
        self._is_flushing = False
        self._last_heartbeat = 0.0
        self._due: float | None = None
        self._longest_silence: float | None = None
        self._checkpoint = claim.checkpoint

    # Activity

    @property
    def flow_id(self) -> str:
        """See `Activity`."""
        return self._flow_id

    @property
    def step_execution_id(self) -> int:
        """See `Activity`."""
        return self.claim.step_execution_id

    @property
    def attempt(self) -> int:
        """See `Activity`."""
        return self.claim.attempt

    @property
    def deadline(self) -> datetime | None:
        """See `Activity`."""
        seconds = self.claim.options.attempt_timeout
        return None if seconds is None else timestamp(self.claim.started_at) + seconds

    @property
    def heartbeat_checkpoint(self) -> str | None:
        """See `Activity`."""
        return self._checkpoint

    def emit(self, stream: Stream[Any], event: Any) -> None:
        """See `Activity`; call it on the event loop's thread."""
        declared = self.kernel.flow.streams.get(stream.name)
        if declared is None:
            raise UndeclaredNameError(f"flow {self.kernel.flow.flow_type!r} declares no stream {stream.name!r}")
        if self.is_over:
            return
        try:
            data, _ = encode_declared(declared.value_type, event)
        except Exception as error:
            raise UnstorableValueError(repr(declared), declared.value_type, error) from error
        if self._buffer and self._buffer[-1].stream.name == stream.name:
            self._buffer[-1].events.append(data)
        else:
            self._buffer.append(LiveEvents(stream, [data]))
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def heartbeat(self) -> None:
        """See `Activity`."""
        self._last_heartbeat = self._loop.time()

    async def save_heartbeat_checkpoint(self, text: str) -> None:
        """See `Activity`."""
        self.heartbeat()
        text = storable_text(text, 1_000_000)
        await self._worker.command(
            self.kernel, self._flow_id, SaveCheckpoint(self.step_execution_id, self.attempt, text), lease=self.lease
        )
        self._checkpoint = text

    # Live events

    def take_buffer(self) -> list[LiveEvents]:
        """The events that were not flushed, for the commit that ends the attempt."""
        buffer, self._buffer = self._buffer, []
        return buffer

    def _flush(self) -> None:
        if self.is_over or not self._buffer:
            self._is_flushing = False
            return
        self._worker.append_live_events(self, self.take_buffer(), self._flush)

    # Timeouts

    def begin(self) -> None:
        """`run` is about to begin; the timeouts count from now on."""
        options = self.claim.options
        now = self._last_heartbeat = self._loop.time()
        if options.attempt_timeout is not None:
            self._due = now + options.attempt_timeout.total_seconds()
        if options.heartbeat_timeout is not None:
            self._longest_silence = options.heartbeat_timeout.total_seconds()
        self._worker.clocks.add(self)

    def find_timeout(self, now: float) -> tuple[float | None, Exception | None]:
        """See `TimedAttempt`."""
        due = self._due
        if due is not None and now >= due:
            assert self.claim.options.attempt_timeout is not None
            seconds = self.claim.options.attempt_timeout.total_seconds()
            return None, StepAttemptTimeoutError(f"the attempt ran longer than its timeout of {seconds:g} s")
        if self._longest_silence is not None:
            silent_until = self._last_heartbeat + self._longest_silence
            if now >= silent_until:
                seconds = self._longest_silence
                return None, HeartbeatTimeoutError(f"the attempt sent no heartbeat for {seconds:g} s")
            due = silent_until if due is None else min(due, silent_until)
        return due, None

    def end(self) -> None:
        """Nothing of this attempt counts from now on."""
        self.is_over = True
        self._worker.clocks.discard(self)
