"""The process that the workers of the session kill tests are forked from: one for each pytest process.

What a kill does to a worker does not depend on how it started; hundreds of cold starts would only cost minutes. The
takeover tests, the demo's tests and all kill tests of the engine start their workers cold.
"""

from __future__ import annotations

import atexit
import functools
import os
from pathlib import Path

from dex_flow.testing.fork_server import ForkServer

__all__ = ["WORKER_ENVIRONMENT", "worker_fork_server"]

WORKER_ENVIRONMENT = {"PYTHONPATH": os.fspath(Path(__file__).parents[2])}
_MODULES = (
    "tests.session_kill.compacting_agent",
    "dex_agents.testing.kill_points",
    "tests.session_kill.planned_agent",
    "dex_flow.embedded",
)


@functools.cache
def worker_fork_server() -> ForkServer:
    """The server; it ends with this process at the latest."""
    server = ForkServer(_MODULES, WORKER_ENVIRONMENT)
    atexit.register(server.close)
    return server
