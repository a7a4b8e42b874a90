"""The process that an adapter's worker processes are forked from: one for each pytest process and adapter.

A kill does to a forked worker what it does to any process; importing the framework anew for each of a hundred workers
would only cost minutes.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys

from dex_flow.testing.fork_server import ForkServer

__all__ = ["ADAPTER_VARIABLE", "worker_fork_server"]

#: Where the adapter is, for the process that imports `worker_imports`.
ADAPTER_VARIABLE = "DEX_AGENTS_CONFORMANCE_WORKER_ADAPTER"


@functools.cache
def worker_fork_server(adapter: str) -> ForkServer:
    """The server; it ends with this process at the latest.

    Args:
        adapter: `path/to/file.py:Class`.
    """
    import_path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    environment = {"PYTHONPATH": import_path, ADAPTER_VARIABLE: adapter}
    server = ForkServer(["dex_flow.embedded", "dex_agents_conformance.worker_imports"], environment)
    atexit.register(server.close)
    return server
