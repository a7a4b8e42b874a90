"""Snapshots and waits: answered from what this engine's own commits left in memory where that is enough."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from dex_flow.embedded import queries
from dex_flow.embedded.committed_states import CommittedStates, NotKnownError, view_known
from dex_flow.embedded.flow_store import FlowRow, SqliteStateReader
from dex_flow.embedded.reader_thread import ReaderThread
from dex_flow.embedded.watchers import Watchers
from dex_flow.errors import EngineClosedError, FlowClosedError, StorageError
from dex_flow.kernel import ClaimedAttempt, DetachedView, Kernel, decode_header
from dex_flow.step_methods import is_synchronous
from dex_flow.transaction import StateView

__all__ = ["CommittedReads"]

Value = TypeVar("Value")

_FALLBACK_SECONDS = 0.5


class CommittedReads:
    """Reads of one open engine; used on its event loop.

    Args:
        reader: Reads the file.
        watchers: Who waits for changes.
        kernels: The engine's definitions by Flow type.
        clock: Microseconds since the epoch.
        check_open: Raises `EngineClosedError` once the engine closes.
        on_full: Called when the states in memory took too much of it and were forgotten.

    Attributes:
        states: What commits of this engine left; the engine puts them here.
    """

    def __init__(
        self,
        reader: ReaderThread,
        watchers: Watchers,
        kernels: Mapping[str, Kernel],
        clock: Callable[[], int],
        check_open: Callable[[], None],
        on_full: Callable[[], None],
    ) -> None:
        self.states = CommittedStates(on_full)
        self._reader = reader
        self._watchers = watchers
        self._kernels = kernels
        self._clock = clock
        self._check_open = check_open
        self._loop = asyncio.get_running_loop()
        self._has_foreign_news = False
        self._checks_time = False
        self._look: asyncio.Task[None] | None = None

    # Snapshots

    async def load_snapshot(self, kernel: Kernel, flow_id: str, claim: ClaimedAttempt) -> Any:
        """What an attempt's `run` needs, of the state its claim left or a later one."""
        state = self.states.get(flow_id)
        if state is not None and state.kernel is kernel:
            code = kernel.snapshot_loader(claim.step_type, claim.input)
            try:
                return view_known(state, flow_id, self._clock(), code)
            except (NotKnownError, SystemExit, asyncio.CancelledError):
                pass  # also what `load` may raise but a task must not: the reader gives it a form the attempt can take
        snapshot = await self._reader.read(partial(self.read_snapshot, kernel, flow_id, claim))
        self.states.count_again(flow_id)
        return snapshot

    def read_snapshot(self, kernel: Kernel, flow_id: str, claim: ClaimedAttempt, connection: sqlite3.Connection) -> Any:
        """The same from the file; runs on the reader thread."""
        row = queries.existing_flow(connection, flow_id)
        code = kernel.snapshot_loader(claim.step_type, claim.input)
        return self._view(kernel, flow_id, connection, row, code)

    def _view(
        self,
        kernel: Kernel,
        flow_id: str,
        connection: sqlite3.Connection,
        row: FlowRow,
        code: Callable[[StateView], Value],
    ) -> Value:
        """Run read-only code over the stored state; what it reads is added to what is known of it."""
        state = self.states.get(flow_id)
        is_current = state is not None and state.kernel is kernel and state.version == row.version
        known = state.known if state is not None and is_current else None
        return kernel.view(SqliteStateReader(connection, row), flow_id, self._clock(), code, known)

    # Waits

    async def wait_until(
        self, flow_id: str, condition: Callable[[StateView], Value | None], timeout: float | None
    ) -> Value:
        """See `Engine`."""
        if not is_synchronous(condition):
            raise TypeError(f"{_name_code(condition)} must be a plain function: wait_until does not await it")

        def evaluate(connection: sqlite3.Connection) -> tuple[Value | None, FlowRow]:
            row = queries.existing_flow(connection, flow_id)
            kernel = self._kernels.get(row.flow_type)
            if kernel is None:
                return condition(DetachedView(SqliteStateReader(connection, row), flow_id, self._clock())), row
            return self._view(kernel, flow_id, connection, row, condition), row

        # Versions in memory that satisfied the condition, with its value.
        found: list[tuple[int, Value]] = []

        def is_over() -> bool:
            state = self.states.get(flow_id)
            if state is None or (watch.version is not None and state.version < watch.version):
                return True  # others have gone on since this engine's last commit
            try:
                value = view_known(state, flow_id, self._clock(), condition)
            except (Exception, SystemExit, asyncio.CancelledError):
                return True  # the evaluation that follows reads the file, or raises the same to whoever waits
            watch.version = state.version
            if value is not None and value is not False:
                found.append((state.version, value))
            return bool(found) or state.status != "open"

        deadline = None if timeout is None else self._loop.time() + timeout
        with self._watchers.watch(flow_id, is_over) as watch:
            while True:
                watch.event.clear()
                self._check_open()
                # From the file: others may have committed what the caller knows of. Outside the timeout: a state that
                # is there already is found however short it is.
                value, row = await self._reader.read(evaluate)
                self.states.count_again(flow_id)
                if value is not None and value is not False:
                    return value
                if found and found[-1][0] > row.version:
                    return found[-1][1]
                found.clear()  # that may have been over before this call began
                if row.status != "open":
                    raise FlowClosedError(flow_id, row.status, decode_header(row.header).failure)
                watch.version = row.version
                try:
                    async with asyncio.timeout_at(deadline):
                        await watch.event.wait()
                except TimeoutError:
                    row = await self._reader.read(partial(queries.existing_flow, flow_id=flow_id))
                    raise TimeoutError(
                        f"flow {flow_id!r} did not satisfy {_name_code(condition)} within {timeout:g} s; "
                        f"it is {row.status}, with {_list_steps(row)}"
                    ) from None
                if found:
                    return found[0][1]

    # Commits of other processes

    def note_foreign_commit(self) -> None:
        """Another process has committed something."""
        self._has_foreign_news = True
        if self._look is None or self._look.done():
            self._look = self._loop.create_task(self._look_at_file())

    async def look_regularly(self) -> None:
        """Wake-ups between processes are hints; this bounds what a lost one costs, and goes with the clock."""
        while True:
            await asyncio.sleep(_FALLBACK_SECONDS)
            self._checks_time = True
            self.note_foreign_commit()

    async def close(self) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._look

    async def _look_at_file(self) -> None:
        """Wake those whose execution has changed; one look at a time, whatever comes meanwhile."""
        while self._has_foreign_news:
            checks_time, self._has_foreign_news, self._checks_time = self._checks_time, False, False
            watched = self._watchers.watched
            if not watched:
                return
            try:
                versions = await self._reader.read(partial(queries.read_versions, flow_ids=watched))
            except (EngineClosedError, StorageError):
                # Who waits reads the file itself and gets the error.
                self._watchers.wake_all()
            else:
                self._watchers.look(versions, checks_time=checks_time)


def _name_code(code: Any) -> str:
    """What a function is called and where it is defined, for messages about it."""
    while isinstance(code, partial):
        code = code.func
    name = getattr(code, "__qualname__", None) or repr(code)
    compiled = getattr(code, "__code__", None)
    return name if compiled is None else f"{name} ({compiled.co_filename}:{compiled.co_firstlineno})"


def _list_steps(row: FlowRow) -> str:
    steps = decode_header(row.header).steps.values()
    return ", ".join(f"step {step.type} {step.status}" for step in list(steps)[:5]) or "no open step"
