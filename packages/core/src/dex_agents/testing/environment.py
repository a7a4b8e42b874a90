"""Everything a test of an agent needs: a private engine, a client, worker processes, gates and a log."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dex_agents.testing.file_gate import FileGate
from dex_agents.testing.flow_factories import FlowFactory, load_flow_factory, locate_flow_factory
from dex_agents.testing.session_client import AgentSessionTestClient
from dex_agents.testing.worker_process import KillableWorkerProcess
from dex_flow import Flow
from dex_flow.embedded import EmbeddedEngine
from dex_flow.testing import InvocationLog
from dex_flow.testing.fork_server import ForkServer

__all__ = ["AgentTestEnvironment"]


class AgentTestEnvironment:
    """A private embedded engine on a file of its own; an async context manager that leaves nothing behind.

    Args:
        flow_factory: Builds the agent's Flow from the test's directory; a function of a module, or where it is:
            `module:function` or `path/to/file.py:function`.
        runs_worker: Whether this process runs Steps. Without, start a worker process.
        directory: Where the database, gates and logs are, such as pytest's `tmp_path`, which keeps them after the
            test; None makes a temporary one, and removes it.
        timeout: Seconds of every wait of the client that says nothing else.

    Attributes:
        directory: Where the database, gates and logs are.
        flow: The agent's Flow in this process.
        engine: The engine of this process.
        client: Talks to sessions.
        log: What the agent's code recorded with `InvocationLog(directory / "invocations.jsonl")`.

    Raises:
        ImportError: There is no such factory.
        TypeError: It returns no Flow of an agent session.
    """

    directory: Path
    flow: Flow
    engine: EmbeddedEngine
    client: AgentSessionTestClient
    log: InvocationLog

    def __init__(
        self,
        flow_factory: FlowFactory | str,
        *,
        runs_worker: bool = False,
        directory: Path | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._flow_factory = flow_factory
        self._runs_worker = runs_worker
        self._given_directory = directory
        self._timeout = timeout
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        factory = self._flow_factory
        async with contextlib.AsyncExitStack() as stack:
            if self._given_directory is None:
                self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dex-agents-test-")))
            else:
                self.directory = self._given_directory
            self.log = InvocationLog(self.directory / "invocations.jsonl")
            self.flow = (load_flow_factory(factory) if isinstance(factory, str) else factory)(self.directory)
            self.engine = await stack.enter_async_context(
                EmbeddedEngine(self.database, flows=[self.flow], durability="process", runs_worker=self._runs_worker)
            )
            self.client = AgentSessionTestClient(self.engine, self.flow, timeout=self._timeout)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    @property
    def database(self) -> Path:
        """The file with the sessions."""
        return self.directory / "sessions.db"

    def gate(self, name: str) -> FileGate:
        """The gate that the agent's code passes as `FileGate(directory, name)`."""
        return FileGate(self.directory, name)

    async def start_worker(
        self, *, environment: Mapping[str, str] | None = None, fork_server: ForkServer | None = None
    ) -> KillableWorkerProcess:
        """Start a worker process and wait until it takes work; it is killed at the end at the latest.

        Args:
            environment: Variables added to this process's own; with a fork server, that has its own instead.
            fork_server: Forks the worker instead of a cold start.

        Raises:
            RuntimeError: The fork server has ended.
            ProcessFailedError: It did not become ready; carries what it printed.
            ValueError: The factory is no function of a module.
        """
        factory = self._flow_factory
        location = factory if isinstance(factory, str) else locate_flow_factory(factory)
        worker = KillableWorkerProcess(
            location, self.database, self.directory, environment=environment, fork_server=fork_server
        )
        return await self._exit.enter_async_context(worker)
