"""The worker process of the cancel benchmark: runs the model calls, and prints their moments as lines of JSON."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from bench.streaming_agent import ModelMoment, create_streaming_flow
from dex_flow.embedded import EmbeddedEngine

__all__ = ["READY_LINE", "run_cancel_worker"]

READY_LINE = "ready"


async def run_cancel_worker(path: Path, cleanup_seconds: float) -> None:
    """Run Steps until standard input ends.

    Args:
        path: The database file.
        cleanup_seconds: How long the model's `finally` takes.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            ended.set()

    loop.add_reader(sys.stdin.fileno(), read_input)
    async with EmbeddedEngine(path, [create_streaming_flow(_print_moment, cleanup_seconds)]):
        print(READY_LINE, flush=True)
        await ended.wait()


def _print_moment(moment: ModelMoment) -> None:
    print(msgspec.json.encode(moment).decode(), flush=True)
