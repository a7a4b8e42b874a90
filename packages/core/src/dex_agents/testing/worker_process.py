"""A real worker process of a test's agent, to kill at the worst moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dex_agents.testing.worker_program import READY_LINE
from dex_flow.testing import ProcessFailedError, ProgramProcess
from dex_flow.testing.fork_server import ForkServer

__all__ = ["KillableWorkerProcess"]

_PROGRAM = Path(__file__).with_name("worker_program.py")


class KillableWorkerProcess:
    """A worker process in a process group of its own; `AgentTestEnvironment.start_worker` makes them.

    An async context manager that leaves no process behind. The worker also ends when the test's process does, however
    that ends. It imports what this process can.

    Args:
        factory: `module:function` or `path/to/file.py:function`; called with `directory`, returns the Flow.
        database: The file with the sessions.
        directory: Where gates and logs are.
        environment: Variables added to this process's own; with a fork server, that has its own instead.
        fork_server: Forks the worker instead of a cold start, for many tests of an agent whose imports take long.
    """

    def __init__(
        self,
        factory: str,
        database: Path,
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        self._arguments = (factory, os.fspath(database), os.fspath(directory))
        import_path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        self._environment = {"PYTHONPATH": import_path, **(environment or {})}
        self._fork_server = fork_server
        self._process: ProgramProcess | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.clean_up()
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.clean_up()

    @property
    def process_id(self) -> int:
        """The operating system's ID of the latest process."""
        return self._started().process_id

    @property
    def is_running(self) -> bool:
        """Whether the latest process has not ended; a frozen one runs."""
        return self._process is not None and self._process.is_running

    @property
    def output(self) -> str:
        """Everything the latest process printed and logged so far."""
        return self._started().output

    async def start(self, *, timeout: float = 30.0) -> None:
        """Start a process and wait until it takes work.

        Raises:
            RuntimeError: One runs already.
            ProcessFailedError: It ended, or is not ready after `timeout` seconds; carries what it printed.
        """
        if self.is_running:
            raise RuntimeError(f"the worker runs already as process {self.process_id}; kill or stop it first")
        await self.clean_up()
        self._process = await asyncio.to_thread(
            ProgramProcess, _PROGRAM, self._arguments, self._environment, fork_server=self._fork_server
        )
        await self.wait_for_line(READY_LINE, timeout=timeout)

    async def restart(self, *, timeout: float = 30.0) -> None:
        """Kill the process when it runs, and start another one."""
        await self.kill()
        await self.start(timeout=timeout)

    async def kill(self) -> None:
        """SIGKILL for the process and every process it started; nothing when it has ended."""
        process = self._started()
        if process.is_running:
            os.killpg(process.process_id, signal.SIGKILL)
            await asyncio.to_thread(process.wait_for_end)

    async def stop(self, *, timeout: float = 30.0) -> None:
        """SIGTERM, and wait for the orderly end: what runs has two seconds to finish.

        Raises:
            ProcessFailedError: It still runs after `timeout` seconds, or ended with an error.
        """
        process = self._started()
        code = await asyncio.to_thread(process.stop, timeout=timeout)
        if code != 0:
            raise ProcessFailedError(f"the worker ended with exit code {code}; it printed:\n{process.output}")

    async def wait_for_line(self, text: str, *, timeout: float = 30.0) -> str:
        """The first line of the latest process that contains `text`.

        Raises:
            ProcessFailedError: It ended without it, or `timeout` seconds passed; carries what it printed.
        """
        return await asyncio.to_thread(self._started().wait_for_line, text, timeout=timeout)

    async def clean_up(self) -> None:
        """Kill what runs, and free what it holds in this process."""
        if self._process is not None:
            await self.kill()
            await asyncio.to_thread(self._process.clean_up)

    def _started(self) -> ProgramProcess:
        if self._process is None:
            raise RuntimeError("the worker was not started")
        return self._process
