"""Cancelled turns of real sessions: a client here, and the model call in this process or in another one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.cancel_worker import READY_LINE
from bench.streaming_agent import ModelMoment, MomentKind, create_streaming_flow
from dex_agents.client import AgentSessionClient
from dex_flow.embedded import EmbeddedEngine

__all__ = ["CancelTimes", "cancel_across_processes", "cancel_in_process"]

TIMEOUT_SECONDS = 60.0
# Every cancelled turn leaves its user message in the input of the next one, so sessions stay short.
CANCELS_PER_SESSION = 8
USER_TEXT = "Tell me a very long story. ".ljust(200, ".")


class CancelRefusedError(Exception):
    """A turn of the benchmark could not be cancelled or ended otherwise, so its times mean nothing."""


@dataclass(frozen=True, slots=True)
class CancelTimes:
    """One cancelled turn; all in seconds.

    Attributes:
        cancel_turn: How long the call took.
        finally_from_call: From its beginning to the `finally` of the model's coroutine.
        coroutine_finally: From its return to that `finally`; 0 when that came first.
        turn_over: From its return until the client sees that the session is idle.
        was_first: Whether the call returned, and the turn was over, before the coroutine had cleaned up.
    """

    cancel_turn: float
    finally_from_call: float
    coroutine_finally: float
    turn_over: float
    was_first: bool


class _Moments:
    """Moments of model calls, to wait for."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, MomentKind], asyncio.Future[float]] = {}

    def add(self, moment: ModelMoment) -> None:
        self._moment(moment.turn, moment.kind).set_result(moment.at)

    async def wait_for(self, turn: str, kind: MomentKind) -> float:
        return await self._moment(turn, kind)

    def _moment(self, turn: str, kind: MomentKind) -> asyncio.Future[float]:
        return self._found.setdefault((turn, kind), asyncio.get_running_loop().create_future())


async def cancel_in_process(path: Path, cancels: int, cleanup_seconds: float = 0.0) -> list[CancelTimes]:
    """Cancel turns whose model call runs in this process.

    Args:
        path: A new database file.
        cancels: How many turns, one after the other.
        cleanup_seconds: How long the model's `finally` takes.
    """
    moments = _Moments()
    flow = create_streaming_flow(moments.add, cleanup_seconds)
    async with asyncio.timeout(TIMEOUT_SECONDS + cancels), EmbeddedEngine(path, [flow]) as engine:
        return await _cancel_turns(AgentSessionClient(engine, flow), moments, cancels)


async def cancel_across_processes(path: Path, cancels: int, cleanup_seconds: float = 0.0) -> list[CancelTimes]:
    """Cancel turns whose model call runs in a worker process; this one is a client. Arguments as above."""
    moments = _Moments()
    flow = create_streaming_flow(moments.add)
    async with (
        asyncio.timeout(TIMEOUT_SECONDS + cancels),
        _worker_process(path, cleanup_seconds, moments),
        EmbeddedEngine(path, [flow], runs_worker=False) as engine,
    ):
        return await _cancel_turns(AgentSessionClient(engine, flow), moments, cancels)


@contextlib.asynccontextmanager
async def _worker_process(path: Path, cleanup_seconds: float, moments: _Moments) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench", "run-cancel-worker", str(path), "--cleanup-seconds", str(cleanup_seconds)),
        cwd=Path(__file__).resolve().parents[1],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ready = await process.stdout.readline()
        if ready.decode().strip() != READY_LINE:
            raise RuntimeError("the worker process did not start; it said why on standard error")
        reading = asyncio.create_task(_read_moments(process.stdout, moments))
        yield
        process.stdin.close()
        await reading
        if await process.wait() != 0:
            raise RuntimeError(f"the worker process ended with {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read_moments(output: asyncio.StreamReader, moments: _Moments) -> None:
    decoder = msgspec.json.Decoder(ModelMoment)
    async for line in output:
        moments.add(decoder.decode(line))


async def _cancel_turns(client: AgentSessionClient, moments: _Moments, cancels: int) -> list[CancelTimes]:
    await _cancel_session(client, moments, "warm-up", 2)
    times: list[CancelTimes] = []
    while len(times) < cancels:
        count = min(cancels - len(times), CANCELS_PER_SESSION)
        times += await _cancel_session(client, moments, f"session-{len(times)}", count)
    return times


async def _cancel_session(
    client: AgentSessionClient, moments: _Moments, session_id: str, cancels: int
) -> list[CancelTimes]:
    await client.start_session(session_id)
    return [await _cancel_turn(client, moments, session_id, f"turn-{number + 1}") for number in range(cancels)]


async def _cancel_turn(client: AgentSessionClient, moments: _Moments, session_id: str, turn_id: str) -> CancelTimes:
    turn = f"{session_id}/{turn_id}"
    await client.send_user_message(session_id, USER_TEXT)
    await moments.wait_for(turn, "streams")
    called = time.monotonic()
    is_cancelled = await client.cancel_turn(session_id, turn_id)
    returned = time.monotonic()
    await client.wait_until_idle(session_id, timeout=TIMEOUT_SECONDS)
    over = time.monotonic()
    if not is_cancelled:
        raise CancelRefusedError(f"{turn} was not active")
    cancelled = await moments.wait_for(turn, "cancelled")
    cleaned_up = await moments.wait_for(turn, "cleaned_up")
    return CancelTimes(
        cancel_turn=returned - called,
        finally_from_call=cancelled - called,
        coroutine_finally=max(0.0, cancelled - returned),
        turn_over=over - returned,
        was_first=over < cleaned_up,
    )
