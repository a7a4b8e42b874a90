"""The program of `KillableWorkerProcess`: one worker on the environment's file, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from dex_agents.testing.flow_factories import load_flow_factory
from dex_flow import Flow
from dex_flow.embedded import EmbeddedEngine

__all__ = ["CLOSED_LINE", "READY_LINE", "run_agent_worker_process"]

READY_LINE = "dex-agents test worker ready"
CLOSED_LINE = "dex-agents test worker closed"


def run_agent_worker_process(database: Path, flows: Sequence[Flow], *, worker_timeout: float = 30.0) -> None:
    """Be a worker of a test: run Flows until SIGTERM, and end at once when the test's process does.

    Call it as the whole of a program of your own, when `KillableWorkerProcess` cannot build your Flow. The program is
    started with a pipe as standard input, as `dex_flow.testing.ProgramProcesses` does; when the pipe closes, the
    process ends as if it were killed. It prints `dex-agents test worker ready` once it takes work, and
    `dex-agents test worker closed` after an orderly end. Log records from `INFO` go to standard output.

    Args:
        database: The environment's file.
        flows: What this worker runs.
        worker_timeout: Seconds of silence after which it gives up another worker that still lives.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    # A thread, because a tool may block the event loop when the test's process dies.
    threading.Thread(target=_end_with_parent, name="end with the test's process", daemon=True).start()
    asyncio.run(_run_worker(database, flows, worker_timeout))
    print(CLOSED_LINE, flush=True)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


async def _run_worker(database: Path, flows: Sequence[Flow], worker_timeout: float) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with EmbeddedEngine(database, flows=flows, durability="process", worker_timeout=worker_timeout):
        print(READY_LINE, flush=True)
        await stopped.wait()


def _main() -> None:
    own_directory = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != own_directory]  # its modules are none of the user's
    parser = argparse.ArgumentParser()
    parser.add_argument("factory")
    parser.add_argument("database", type=Path)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    flow = load_flow_factory(arguments.factory)(arguments.directory)
    run_agent_worker_process(arguments.database, [flow])


if __name__ == "__main__":
    _main()
