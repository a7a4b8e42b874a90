"""A worker process of the compaction kill tests: runs the compacting agent until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from dex_flow.embedded import EmbeddedEngine
from tests.session_kill.compacting_agent import GatedCompactingAgent, create_gated_compacting_flow


async def main(database: Path, directory: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)

    def read_input() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            os._exit(1)  # the test's process is gone, and may have left this one held inside a transaction

    loop.add_reader(sys.stdin.fileno(), read_input)
    flow = create_gated_compacting_flow(GatedCompactingAgent(directory))
    async with EmbeddedEngine(database, flows=[flow]):
        print("ready", flush=True)
        await stopped.wait()
        loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
