"""A worker process of the kill tests: runs the gated Flow on an embedded engine until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing.gated_flow import GatedFlow


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("database", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--durability", choices=("power", "process"), default="power")
    parser.add_argument("--worker-timeout", type=float, default=30.0)
    parser.add_argument("--max-concurrent-steps", type=int, default=100)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            stopped.set()  # the test's process is gone

    loop.add_reader(sys.stdin.fileno(), read_input)

    async with EmbeddedEngine(
        arguments.database,
        flows=[GatedFlow(arguments.directory)],
        durability=arguments.durability,
        worker_timeout=arguments.worker_timeout,
        max_concurrent_steps=arguments.max_concurrent_steps,
    ):
        print("ready", flush=True)
        await stopped.wait()
        loop.remove_reader(sys.stdin.fileno())
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
