"""`EmbeddedEngine`: durable Flows in one SQLite file, shared by any number of processes on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

from dex_flow.codec import encode
from dex_flow.declarations import Attribute, AttributeMap, Stream
from dex_flow.embedded import queries
from dex_flow.embedded.arguments import check_flow_id, check_flows, check_one_of, check_request_id
from dex_flow.embedded.command_submission import CommandSubmission
from dex_flow.embedded.command_transaction import (
    check_definition,
)
from dex_flow.embedded.commit_feed import CommitFeed, commit_feed
from dex_flow.embedded.committed_reads import CommittedReads
from dex_flow.embedded.database_file import Durability
from dex_flow.embedded.flow_store import SqliteStateReader
from dex_flow.embedded.group_writer import WriterCounters, WriteRequest
from dex_flow.embedded.reader_thread import ReaderThread
from dex_flow.embedded.scheduler import Scheduler, SchedulerPorts
from dex_flow.embedded.schema import initialize_schema
from dex_flow.embedded.shared_file import SharedDatabase, acquire
from dex_flow.embedded.stream_store import StreamStore
from dex_flow.embedded.wake_up import WakeUpReceiver
from dex_flow.embedded.watchers import Watchers
from dex_flow.embedded.worker import Worker
from dex_flow.embedded.worker_liveness import remove_dead_worker
from dex_flow.embedded.worker_rows import WorkerRegistration, delete_worker, raise_beat, remove_dead_workers
from dex_flow.engine import FlowDescription, FlowStatus, StepHistoryEntry, StreamEvent
from dex_flow.errors import (
    DefinitionError,
    EngineClosedError,
    FlowAlreadyStartedError,
    FlowDefinitionMismatchError,
)
from dex_flow.exception_text import storable_text
from dex_flow.flow import Flow
from dex_flow.kernel import (
    AttemptsLost,
    InvokeRpc,
    Kernel,
    SkipTimer,
    StartFlow,
    StopFlow,
)
from dex_flow.rpcs import Rpc
from dex_flow.transaction import StateView

__all__ = ["EmbeddedEngine"]

Value = TypeVar("Value")
Input = TypeVar("Input")
Output = TypeVar("Output")

_HEARTBEAT_SECONDS = 1.0


def _system_clock() -> int:
    return time.time_ns() // 1_000


class EmbeddedEngine:
    """Runs Flows on one SQLite file; use it as an async context manager.

    Args:
        path: The database file; created when missing. It must be on a local disk.
        flows: Definitions of the Flows this process works on.
        durability: `power` flushes every commit to disk; `process` survives the death of processes only, yet flushes
            accepted calls and the started markers of single-attempt Steps.
        runs_worker: Whether this process runs Steps; without, it is a client.
        max_concurrent_steps: Most attempts of this process at once.
        worker_timeout: Seconds of silence after which another worker that still lives (frozen, or cut off from the
            disk) is given up.
        shutdown_grace: Seconds that closing waits for running attempts before it cancels them.
        clock: Microseconds since the epoch; for tests.

    Raises:
        StorageError: The file cannot be opened.
        StoredFormatError: A newer release wrote it.
        DefinitionError: Two Flows have one type, or something else than a Flow was passed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        flows: Sequence[Flow] = (),
        *,
        durability: Durability = "power",
        runs_worker: bool = True,
        max_concurrent_steps: int = 100,
        worker_timeout: float = 30.0,
        shutdown_grace: float = 2.0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        if durability not in ("power", "process"):
            raise ValueError(f"durability must be 'power' or 'process', not {durability!r}")
        if max_concurrent_steps < 1:
            raise ValueError(f"max_concurrent_steps must be at least 1, not {max_concurrent_steps}")
        if worker_timeout <= 0 or shutdown_grace < 0:
            raise ValueError(
                "worker_timeout must be more than 0 s and shutdown_grace not negative, "
                f"not {worker_timeout!r} and {shutdown_grace!r}"
            )
        self._path = path
        self._kernels: dict[str, Kernel] = {}
        for flow in check_flows(flows):
            if flow.flow_type in self._kernels:
                raise DefinitionError(f"two flows have the type {flow.flow_type!r}")
            self._kernels[flow.flow_type] = Kernel(flow)
        self._durability: Durability = durability
        self._runs_worker = runs_worker and bool(flows)
        self._max_concurrent_steps = max_concurrent_steps
        self._worker_timeout = worker_timeout
        self._shutdown_grace = shutdown_grace
        self._clock = clock or _system_clock
        self._streams = StreamStore()
        self._watchers: Watchers
        self._reads: CommittedReads
        self._is_open = False
        self._exit = contextlib.AsyncExitStack()
        self._commands: CommandSubmission
        self._database: SharedDatabase
        self._reader: ReaderThread
        self._feed: CommitFeed
        self._loop: asyncio.AbstractEventLoop

    # Opening and closing

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise RuntimeError("this engine is open already")
        self._loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            self._database = await asyncio.to_thread(acquire, self._path, self._durability, initialize_schema)
            stack.push_async_callback(asyncio.to_thread, self._database.release)
            self._reader = ReaderThread(self._database)
            stack.push_async_callback(asyncio.to_thread, self._reader.close)
            self._feed = commit_feed(self._database)
            self._watchers = Watchers(self._loop)
            self._reads = CommittedReads(
                self._reader,
                self._watchers,
                self._kernels,
                self._clock,
                self._check_open,
                self._database.writer_state.forget_soon,
            )
            stack.push_async_callback(self._reads.close)
            self._commands = CommandSubmission(
                self,
                self._kernels,
                self._database,
                self._feed,
                self._streams,
                self._reads.states,
                self._clock,
                self._check_open,
            )
            stack.callback(self._feed.listen(self._on_local_commit))
            receiver = WakeUpReceiver(self._database.path, self._on_foreign_commit, self._loop)
            stack.callback(receiver.close)
            self._is_open = True
            stack.callback(self._mark_closed)
            fallback = asyncio.create_task(self._reads.look_regularly())
            stack.push_async_callback(_cancel, fallback)
            if self._runs_worker:
                await self._start_worker(stack)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def _start_worker(self, stack: contextlib.AsyncExitStack) -> None:
        writer = self._database.writer
        flows = [kernel.flow for kernel in self._kernels.values()]
        self._streams.remember(await writer.write(lambda connection: self._streams.prepare(connection, flows)))
        directory = self._database.workers_directory
        registration = WorkerRegistration(directory)
        try:
            worker_key = await writer.write(registration.register, durable="never", announce=False)
        except BaseException:
            registration.close()
            raise
        stack.push_async_callback(self._remove_worker, worker_key)
        stack.callback(registration.close)
        beat = WriteRequest(
            apply=partial(raise_beat, worker_key=worker_key), on_done=_ignore, durable="never", announce=False
        )
        stack.callback(writer.every(_HEARTBEAT_SECONDS, lambda: writer.submit(beat)))
        worker = self._commands.worker = Worker(
            worker_key,
            self._max_concurrent_steps,
            writer,
            self._database.writer_state,
            self._streams,
            self._reads.load_snapshot,
            self._commands.submit,
            partial(self._feed.changed, known_to=self),
        )
        scheduler = self._commands.scheduler = Scheduler(
            SchedulerPorts(
                read=self._reader.read,
                command=self._commands.submit_for_scheduler,
                fingerprints={name: kernel.flow.fingerprint for name, kernel in self._kernels.items()},
                free_slots=lambda: worker.slots.free,
                running_attempts=lambda: [(key, attempt.lease.epoch) for key, attempt in list(worker.running.items())],
                cancel_attempt=worker.cancel,
                remove_dead_workers=partial(
                    writer.write,
                    partial(remove_dead_workers, directory=directory),
                    durable="never",
                    announce=False,
                ),
                clock=self._clock,
            ),
            worker_key,
            directory,
            self._worker_timeout,
        )
        task = asyncio.create_task(scheduler.run())
        stack.push_async_callback(self._stop_worker, task)

    async def _stop_worker(self, scheduler_task: asyncio.Task[None]) -> None:
        await _cancel(scheduler_task)
        worker = self._commands.worker
        assert worker is not None
        self._commands.scheduler = None
        try:
            left = await worker.stop(self._shutdown_grace)
        finally:
            self._commands.worker = None
        message = "the worker was stopped during the attempt"
        for kernel, flow_id in left:
            await self._commands.submit(kernel, flow_id, AttemptsLost(message), lost_owner=worker.slots.worker_key)

    async def _remove_worker(self, worker_key: int) -> None:
        remove_dead_worker(self._database.workers_directory, worker_key)
        await self._database.writer.write(
            partial(delete_worker, worker_key=worker_key), durable="never", announce=False
        )

    def _mark_closed(self) -> None:
        self._is_open = False
        self._watchers.wake_all()

    # Engine port

    async def start_flow(
        self,
        flow: Flow,
        flow_id: str,
        input: Any = None,
        *,
        request_id: str | None = None,
        already_started: Literal["error", "ignore"] = "error",
    ) -> bool:
        """See `Engine`."""
        self._check_open()
        check_flow_id(flow_id)
        check_request_id(request_id)
        check_one_of("already_started", already_started, ("error", "ignore"))
        command = StartFlow(encode(input), request_id)
        try:
            await self._commands.submit(self._kernel(flow), flow_id, command)
        except FlowAlreadyStartedError:
            if already_started == "ignore":
                return False
            raise
        return True

    async def invoke_rpc(
        self, flow: Flow, flow_id: str, rpc: Rpc[Input, Output], input: Input, *, request_id: str | None = None
    ) -> Output:
        """See `Engine`."""
        self._check_open()
        check_request_id(request_id)
        kernel = self._kernel(flow)
        flow.rpc(rpc.name)
        data = encode(input)
        if rpc.read_only:
            return await self._read(lambda connection: self._read_rpc(connection, kernel, flow_id, rpc.name, data))
        applied = await self._commands.submit(kernel, flow_id, InvokeRpc(rpc.name, data, request_id))
        output: Output = applied.output
        return output

    def _read_rpc(self, connection: sqlite3.Connection, kernel: Kernel, flow_id: str, name: str, data: bytes) -> Any:
        row = queries.existing_flow(connection, flow_id)
        check_definition(kernel, flow_id, row)
        reader = SqliteStateReader(connection, row)
        return kernel.read_rpc(reader, flow_id, self._clock(), name, data)

    async def get_attribute(self, flow_id: str, attribute: Attribute[Value]) -> Value | None:
        """See `Engine`."""
        return await self._read(
            lambda connection: queries.read_attribute(connection, flow_id, attribute.name, "", attribute.value_type)
        )

    async def get_attribute_instance(self, flow_id: str, attribute_map: AttributeMap[Value], key: str) -> Value | None:
        """See `Engine`."""
        name, value_type = attribute_map.name, attribute_map.value_type
        return await self._read(lambda connection: queries.read_attribute(connection, flow_id, name, key, value_type))

    async def wait_until(
        self, flow_id: str, condition: Callable[[StateView], Value | None], *, timeout: float | None = None
    ) -> Value:
        """See `Engine`."""
        self._check_open()
        return await self._reads.wait_until(flow_id, condition, timeout)

    async def read_stream(
        self, flow_id: str, stream: Stream[Value], *, after: int = 0, limit: int = 1_000
    ) -> list[StreamEvent]:
        """See `Engine`."""
        events, _ = await self._read(lambda connection: queries.read_stream(connection, flow_id, stream, after, limit))
        return events

    async def follow_stream(self, flow_id: str, stream: Stream[Value], *, after: int = 0) -> AsyncIterator[StreamEvent]:
        """See `Engine`."""
        position = after
        self._check_open()
        with self._watchers.watch(flow_id) as watch:
            while True:
                watch.event.clear()
                read = partial(queries.read_stream, flow_id=flow_id, stream=stream, after=position, limit=1_000)
                events, status = await self._read(read)
                for event in events:
                    position = event.position
                    yield event
                if not events:
                    if status != "open":
                        return
                    await watch.event.wait()

    async def read_step_history(self, flow_id: str, *, after: int = 0, limit: int = 10_000) -> list[StepHistoryEntry]:
        """See `Engine`."""
        return await self._read(lambda connection: queries.read_history(connection, flow_id, after, limit))

    async def describe_flow(self, flow_id: str) -> FlowDescription:
        """See `Engine`."""
        return await self._read(lambda connection: queries.describe(connection, flow_id))

    async def list_flows(
        self, *, flow_type: str | None = None, status: FlowStatus | None = None, limit: int = 100, after: str = ""
    ) -> Sequence[FlowDescription]:
        """See `Engine`."""
        check_one_of("status", status, (None, *get_args(FlowStatus)))
        return await self._read(lambda connection: queries.list_flows(connection, flow_type, status, limit, after))

    async def skip_timer(self, flow_id: str, step_execution_id: int) -> bool:
        """See `Engine`."""
        applied = await self._commands.submit(await self._stored_kernel(flow_id), flow_id, SkipTimer(step_execution_id))
        return bool(applied.output)

    async def stop_flow(self, flow_id: str, reason: str = "stopped") -> bool:
        """See `Engine`."""
        kernel = await self._stored_kernel(flow_id)
        applied = await self._commands.submit(kernel, flow_id, StopFlow(storable_text(reason)))
        return bool(applied.output)

    @property
    def path(self) -> Path:
        """The database file."""
        return Path(self._path)

    @property
    def counters(self) -> WriterCounters:
        """Commits and flushes of this process on the file, for benchmarks."""
        self._check_open()
        return self._database.writer.counters

    # Helpers

    def _check_open(self) -> None:
        if not self._is_open:
            raise EngineClosedError("the engine is not open; use it inside 'async with'")

    async def _read(self, code: Callable[[sqlite3.Connection], Value]) -> Value:
        self._check_open()
        return await self._reader.read(code)

    def _kernel(self, flow: Flow) -> Kernel:
        known = self._kernels.get(flow.flow_type)
        return known if known is not None and known.flow is flow else Kernel(flow)

    async def _stored_kernel(self, flow_id: str) -> Kernel:
        row = await self._read(lambda connection: queries.existing_flow(connection, flow_id))
        kernel = self._kernels.get(row.flow_type)
        if kernel is None:
            raise FlowDefinitionMismatchError(
                f"flow {flow_id!r} is a {row.flow_type!r}, and this engine has no definition of that; "
                "pass it in flows=[...]"
            )
        return kernel

    def _on_local_commit(self, changed: Mapping[str, object], authors: frozenset[object]) -> None:
        self._watchers.on_commit({flow_id: known_to is self for flow_id, known_to in changed.items()})
        if self._commands.scheduler is not None and authors - {self}:
            with contextlib.suppress(RuntimeError):  # the loop closed meanwhile
                self._loop.call_soon_threadsafe(self._wake_scheduler)

    def _on_foreign_commit(self) -> None:
        self._wake_scheduler()
        self._reads.note_foreign_commit()

    def _wake_scheduler(self) -> None:
        if self._commands.scheduler is not None:
            self._commands.scheduler.wake()


def _ignore(_: None, error: Exception | None) -> None:
    """A missed heartbeat row is followed by the next one; the writer has logged why."""


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
