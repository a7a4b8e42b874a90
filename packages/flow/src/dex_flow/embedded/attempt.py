"""One running attempt: its `Activity`, its live events, its timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dex_flow.codec import encode
from dex_flow.declarations import Stream
from dex_flow.embedded.command_transaction import AttemptLease, LiveEvents
from dex_flow.errors import HeartbeatTimeoutError, StepAttemptTimeoutError
from dex_flow.exception_text import storable_text
from dex_flow.kernel import ClaimedAttempt, Kernel, SaveCheckpoint, timestamp

if TYPE_CHECKING:
    from dex_flow.embedded.worker import Worker

__all__ = ["RunningAttempt"]


class RunningAttempt:
    """The `Activity` of one attempt that this process runs."""

    def __init__(
        self, worker: Worker, kernel: Kernel, flow_id: str, claim: ClaimedAttempt, lease: AttemptLease
    ) -> None:
        self.kernel = kernel
        self.claim = claim
        self.lease = lease
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self._worker = worker
        self._flow_id = flow_id
        self._loop = asyncio.get_running_loop()
        self._buffer: list[LiveEvents] = []
        self._is_flushing = False
        self._timers: list[asyncio.TimerHandle] = []
        self._last_heartbeat = self._loop.time()
        self._checkpoint = claim.checkpoint
        self._deadline: datetime | None = None

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
        return self._deadline

    @property
    def heartbeat_checkpoint(self) -> str | None:
        """See `Activity`."""
        return self._checkpoint

    def emit(self, stream: Stream[Any], event: Any) -> None:
        """See `Activity`; call it on the event loop's thread."""
        self.kernel.flow.streams[stream.name]
        if self.is_over:
            return
        data = encode(event)
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

    def start_clocks(self, on_timeout: Callable[[RunningAttempt, Exception], None]) -> None:
        """Begin the attempt and heartbeat timeouts."""
        options = self.claim.options
        self.heartbeat()
        if options.attempt_timeout is not None:
            seconds = options.attempt_timeout.total_seconds()
            self._deadline = timestamp(self.claim.started_at) + timedelta(seconds=seconds)
            self._timers.append(
                self._loop.call_later(
                    seconds,
                    on_timeout,
                    self,
                    StepAttemptTimeoutError(f"the attempt ran longer than its timeout of {seconds:g} s"),
                )
            )
        if options.heartbeat_timeout is not None:
            self._watch_heartbeat(options.heartbeat_timeout.total_seconds(), on_timeout)

    def _watch_heartbeat(self, seconds: float, on_timeout: Callable[[RunningAttempt, Exception], None]) -> None:
        remaining = self._last_heartbeat + seconds - self._loop.time()
        if remaining > 0:
            timer = self._loop.call_later(remaining, self._watch_heartbeat, seconds, on_timeout)
            self._timers = [
                other for other in self._timers if not other.cancelled() and other.when() > self._loop.time()
            ]
            self._timers.append(timer)
        elif not self.is_over:
            on_timeout(self, HeartbeatTimeoutError(f"the attempt sent no heartbeat for {seconds:g} s"))

    def end(self) -> None:
        """Nothing of this attempt counts from now on."""
        self.is_over = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
