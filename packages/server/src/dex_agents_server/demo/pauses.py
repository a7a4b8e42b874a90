"""Points at which a worker of the demo stands still, so that a person can act, or a kill can come, at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime

from dex_agents_server.demo.worker_messages import ModelCallCancelled, Paused, WorkerMessage
from dex_agents_stepwise import ScriptedReplyHold

__all__ = ["ANSWER", "TURN_END", "Pauses", "tool_pause"]

#: In the middle of an answer that streams.
ANSWER = "answer"
#: While the worker ends a turn that was steered or stopped. Nothing but a kill leads on from there.
TURN_END = "turn-end"


def tool_pause(tool_name: str, order_id: int) -> str:
    """The point in a tool call after its effect and before its return."""
    return f"{tool_name}-{order_id}"


def _tell_nobody(message: WorkerMessage) -> None:
    """Without points there is nothing to tell."""


def _never_block() -> None:
    """Without points there is nothing to wait for."""


class Pauses:
    """The pause points of one worker; without any, nothing ever pauses.

    Args:
        points: Where to pause.
        tell: Told when a point is reached.
        block: Blocks the calling thread until the process is killed.
    """

    def __init__(
        self,
        points: Collection[str] = (),
        tell: Callable[[WorkerMessage], None] = _tell_nobody,
        block: Callable[[], None] = _never_block,
    ) -> None:
        self._points = frozenset(points)
        self._tell = tell
        self._block = block
        self._released = asyncio.Event()

    async def reach(self, point: str) -> None:
        """Stand still here until `release`, if the worker pauses at `point`."""
        if point in self._points:
            self._tell(Paused(point, datetime.now(UTC)))
            await self._released.wait()

    def reach_and_block(self, point: str) -> None:
        """Stand still here until the process is killed, if the worker pauses at `point`; for code that cannot await."""
        if point in self._points:
            self._tell(Paused(point, datetime.now(UTC)))
            self._block()

    def hold_reply(self, point: str, *, after_deltas: int) -> ScriptedReplyHold | None:
        """A hold in a streaming reply that tells when it is reached and when its model call is cancelled.

        Args:
            point: The pause point.
            after_deltas: How many pieces stream first.

        Returns:
            None when the worker does not pause at `point`.
        """
        return _ReportingHold(point, self._tell, after_deltas) if point in self._points else None

    def release(self) -> None:
        """Let everything go on that stands still, except where only a kill helps."""
        self._released.set()


class _ReportingHold(ScriptedReplyHold):
    def __init__(self, point: str, tell: Callable[[WorkerMessage], None], after_deltas: int) -> None:
        super().__init__(after_deltas=after_deltas)
        self._point = point
        self._tell = tell

    async def stop_reply(self) -> None:
        self._tell(Paused(self._point, datetime.now(UTC)))
        try:
            await super().stop_reply()
        except asyncio.CancelledError:
            self._tell(ModelCallCancelled(datetime.now(UTC)))
            raise
