"""The worker process of the demo: `python -m dex_agents_server.demo.worker_program FOLDER [--pause-refund ORDER]`.

It runs Steps until it is terminated, or until its standard input ends: then the demo is gone, whatever happened to it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from dex_agents_server.demo.demo_files import DemoFiles
from dex_agents_server.demo.orders_database import OrdersDatabase
from dex_agents_server.demo.support_agent import create_support_flow
from dex_agents_server.demo.worker_messages import RefundPaused, WorkerMessage, WorkerReady, encode_worker_message
from dex_flow.embedded import EmbeddedEngine


def _tell(message: WorkerMessage) -> None:
    print(encode_worker_message(message), flush=True)


async def _work(files: DemoFiles, pause_refund: int | None) -> None:
    async def pause_after_refund(order_id: int) -> None:
        if order_id == pause_refund:
            _tell(RefundPaused(order_id, datetime.now(UTC)))
            await asyncio.Event().wait()

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), _stop_at_end_of_input, stop)
    flow = create_support_flow(OrdersDatabase(files.orders), pause_after_refund)
    async with EmbeddedEngine(files.sessions, [flow]):
        _tell(WorkerReady(datetime.now(UTC)))
        await stop.wait()
    loop.remove_reader(sys.stdin.fileno())


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


def main() -> None:
    """Run the worker that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder of the demo's files")
    parser.add_argument("--pause-refund", type=int, metavar="ORDER", help="wait after the refund of this order")
    arguments = parser.parse_args()
    asyncio.run(_work(DemoFiles(arguments.folder), arguments.pause_refund))


if __name__ == "__main__":
    main()
