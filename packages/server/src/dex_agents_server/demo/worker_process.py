"""Starts, kills and stops the demo's worker processes; none outlives the demo."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.demo_files import DemoFiles
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.worker_messages import WorkerMessage, WorkerReady, decode_worker_message

__all__ = ["WorkerProcess", "WorkerProcesses", "worker_processes"]

Message = TypeVar("Message", bound=WorkerMessage)
Result = TypeVar("Result")

_PROGRAM = "dex_agents_server.demo.worker_program"
_STOP_SECONDS = 5.0
_LOG_CHARACTERS = 2_000


class WorkerProcess:
    """One worker in a process group of its own, so that Ctrl-C reaches the demo alone, which then ends the worker.

    Args:
        number: From 1, in the order of their starts.
        process: The running process, with piped input and output.
        files: Where the worker works.

    Attributes:
        number: As given.
        ready_at: From when on it runs Steps; known once `WorkerProcesses.start` returns it.
    """

    def __init__(self, number: int, process: asyncio.subprocess.Process, files: DemoFiles) -> None:
        self.number = number
        self.ready_at: datetime
        self._process = process
        self._files = files

    @property
    def pid(self) -> int:
        """The operating system's number of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.returncode is None

    async def wait_for_message(self, message_type: type[Message]) -> Message:
        """The next message of this type.

        Raises:
            DemoError: The worker ended first.
        """
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = decode_worker_message(line)
            if isinstance(message, message_type):
                return message
        raise DemoError(await self._describe_end())

    async def while_running(self, waiting: Coroutine[Any, Any, Result]) -> Result:
        """The result of `waiting`, which depends on the worker.

        Raises:
            DemoError: The worker ended first.
        """
        task = asyncio.create_task(waiting)
        end = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise DemoError(await self._describe_end())
            return task.result()
        finally:
            for pending in (task, end):
                pending.cancel()
            await asyncio.wait({task, end})

    async def release(self) -> None:
        """Let everything go on that stands still at a pause point, except where only a kill helps."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"release\n")
        await self._process.stdin.drain()

    async def kill(self) -> datetime:
        """SIGKILL: the process ends at once, whatever it does; returns when the signal was sent."""
        killed_at = datetime.now(UTC)
        self.send_kill()
        await self._process.wait()
        return killed_at

    def send_kill(self) -> None:
        """SIGKILL the whole process group, without waiting for its end."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and the loop does not know yet
                os.killpg(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End the worker in good order.

        Raises:
            DemoError: It did not end in good order.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            raise DemoError(f"worker {self.number} did not stop within {_STOP_SECONDS:g} s of its last work") from None
        if code != 0:
            raise DemoError(await self._describe_end())

    async def _describe_end(self) -> str:
        code = await self._process.wait()
        path = self._files.worker_log(self.number)
        log = (await asyncio.to_thread(path.read_text, encoding="utf-8", errors="replace")).strip()
        said = f"; it said:\n{log[-_LOG_CHARACTERS:]}" if log else ""
        return f"worker {self.number} (process {self.pid}) ended unexpectedly with exit code {code}{said}"


class WorkerProcesses:
    """Starts workers; made by `worker_processes`, which ends all of them."""

    def __init__(self, files: DemoFiles, scenario: ScenarioName) -> None:
        self._files = files
        self._scenario = scenario
        self._started: list[WorkerProcess] = []

    async def start(self, *pauses: str) -> WorkerProcess:
        """Start a worker and wait until it runs Steps.

        Args:
            pauses: The points at which it stands still; see `pauses`.

        Raises:
            DemoError: It ended instead.
        """
        number = len(self._started) + 1
        with self._files.worker_log(number).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _PROGRAM,
                str(self._files.folder),
                self._scenario,
                *(argument for point in pauses for argument in ("--pause", point)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        worker = WorkerProcess(number, process, self._files)
        self._started.append(worker)
        worker.ready_at = (await worker.wait_for_message(WorkerReady)).at
        return worker

    def send_kill_to_all(self) -> list[WorkerProcess]:
        """SIGKILL every worker that runs, and return those."""
        running = [worker for worker in self._started if worker.is_running]
        for worker in running:
            worker.send_kill()
        return running


@contextlib.asynccontextmanager
async def worker_processes(files: DemoFiles, scenario: ScenarioName) -> AsyncIterator[WorkerProcesses]:
    """Workers that play a scenario on `files`; at the end those that run are killed, also on an error or a signal."""
    workers = WorkerProcesses(files, scenario)
    try:
        yield workers
    finally:
        # The signals go out before anything is awaited, so that even an impatient second Ctrl-C leaves nothing behind.
        for worker in workers.send_kill_to_all():
            await worker.kill()
