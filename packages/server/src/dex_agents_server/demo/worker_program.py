"""The worker process of the demo: `python -m dex_agents_server.demo.worker_program FOLDER SCENARIO [--pause POINT]...`.

It runs Steps until it is terminated, or until its standard input ends: then the demo is gone, whatever happened to it.
A line on its standard input lets everything go on that stands still at a pause point.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from dex_agents_server.demo.demo_files import DemoFiles
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_server.demo.pauses import Pauses
from dex_agents_server.demo.scenarios import SCENARIOS, ScenarioName
from dex_agents_server.demo.support_agent import create_support_flow
from dex_agents_server.demo.worker_messages import WorkerMessage, WorkerReady, encode_worker_message
from dex_flow.embedded import EmbeddedEngine

_EXIT_DEMO_GONE = 1
_READ_BYTES = 4_096


def _tell(message: WorkerMessage) -> None:
    print(encode_worker_message(message), flush=True)


def _block_until_killed() -> None:
    while os.read(sys.stdin.fileno(), _READ_BYTES):
        pass
    os._exit(_EXIT_DEMO_GONE)


async def _work(files: DemoFiles, scenario: ScenarioName, points: list[str]) -> None:
    pauses = Pauses(points, _tell, _block_until_killed)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), _read_input, pauses.release, stop)
    flow = create_support_flow(OrdersDatabase(files.orders), SCENARIOS[scenario].script, pauses)
    async with EmbeddedEngine(files.sessions, [flow]):
        _tell(WorkerReady(datetime.now(UTC)))
        await stop.wait()
    loop.remove_reader(sys.stdin.fileno())


def _read_input(release: Callable[[], None], stop: asyncio.Event) -> None:
    if os.read(sys.stdin.fileno(), _READ_BYTES):
        release()
    else:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


def main() -> None:
    """Run the worker that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the demo's files")
    parser.add_argument("scenario", type=ScenarioName, help="what the model says")
    parser.add_argument("--pause", action="append", default=[], metavar="POINT", help="stand still at this point")
    arguments = parser.parse_args()
    asyncio.run(_work(DemoFiles(arguments.folder), arguments.scenario, arguments.pause))


if __name__ == "__main__":
    main()
