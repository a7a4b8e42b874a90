"""One timer for the timeouts of all attempts of a worker."""

from __future__ import annotations

import asyncio

from dex_flow.embedded.attempt_clocks import AttemptClocks

DEADLINE = 60.0


class _Attempt:
    def __init__(self, due: float | None) -> None:
        self.due = due

    def find_timeout(self, now: float) -> tuple[float | None, Exception | None]:
        if self.due is not None and now >= self.due:
            return None, TimeoutError("over")
        return self.due, None


def test_attempts_time_out_in_any_order_and_those_that_ended_do_not() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        over: asyncio.Queue[_Attempt] = asyncio.Queue()
        clocks: AttemptClocks[_Attempt] = AttemptClocks(loop, lambda attempt, _: over.put_nowait(attempt))
        now = loop.time()
        late, early, ended, moved = (_Attempt(now + seconds) for seconds in (0.06, 0.02, 0.01, 0.01))
        for attempt in (late, early, ended, moved, _Attempt(None)):
            clocks.add(attempt)
        clocks.discard(ended)
        moved.due = now + 0.04
        assert [await over.get() for _ in range(3)] == [early, moved, late]
        again = _Attempt(loop.time())
        clocks.add(again)
        assert await over.get() is again
        assert over.empty()

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_closing_stops_the_timer() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        over: list[_Attempt] = []
        clocks: AttemptClocks[_Attempt] = AttemptClocks(loop, lambda attempt, _: over.append(attempt))
        clocks.add(_Attempt(loop.time() + 0.01))
        clocks.close()
        other: asyncio.Event = asyncio.Event()
        loop.call_later(0.02, other.set)
        await other.wait()
        assert over == []

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
