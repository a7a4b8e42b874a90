"""A worker process of the session kill tests: runs the planned agent until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path

from dex_agents.testing.kill_points import create_kill_point_flow
from dex_flow.embedded import EmbeddedEngine
from tests.session_kill.planned_agent import PlannedAgent


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("database", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--worker-timeout", type=float, default=30.0)
    parser.add_argument("--clock-offset", type=float, default=0.0, help="seconds this worker's clock is ahead")
    parser.add_argument("--bug", action="append", default=[])
    parser.add_argument("--blocks", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            os._exit(1)  # the test's process is gone, and may have left this one held inside a transaction

    loop.add_reader(sys.stdin.fileno(), read_input)

    agent = PlannedAgent(arguments.directory, blocks=arguments.blocks)
    flow = create_kill_point_flow(agent.create_flow(), agent.gates, arguments.bug)
    ahead = int(arguments.clock_offset * 1_000_000)
    async with EmbeddedEngine(
        arguments.database,
        flows=[flow],
        worker_timeout=arguments.worker_timeout,
        clock=lambda: time.time_ns() // 1_000 + ahead,
    ):
        print("ready", flush=True)
        await stopped.wait()
        loop.remove_reader(sys.stdin.fileno())
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
