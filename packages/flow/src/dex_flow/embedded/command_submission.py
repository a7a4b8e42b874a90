"""Commands of one engine: queued for the writer, and followed up once they are committed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping

from dex_flow.embedded.command_transaction import AppliedCommand, AttemptLease, LiveEvents, apply_command
from dex_flow.embedded.commit_feed import CommitFeed
from dex_flow.embedded.committed_states import CommittedState, CommittedStates
from dex_flow.embedded.group_writer import Durable, WriteRequest
from dex_flow.embedded.pure_failure_log import log_pure_failures
from dex_flow.embedded.scheduler import Scheduler
from dex_flow.embedded.shared_file import SharedDatabase
from dex_flow.embedded.stream_store import StreamStore
from dex_flow.embedded.worker import Worker
from dex_flow.kernel import AttemptStarted, Command, InvokeRpc, Kernel, SkipTimer, StartFlow, StopFlow

__all__ = ["CommandSubmission"]

# What a caller was told is done, and the marker without which a crash would repeat an effect.
_ALWAYS_FLUSHED = (StartFlow, InvokeRpc, SkipTimer, StopFlow, AttemptStarted)


class CommandSubmission:
    """Used on the engine's event loop.

    Args:
        engine: Whose commits these are, for the commit feed.
        kernels: Registered definitions by Flow type.
        database: The open file.
        feed: Told of every commit.
        streams: Appends events.
        states: Told what each commit left.
        clock: Microseconds since the epoch.
        check_open: Raises when the engine is not open.

    Attributes:
        worker: Runs what is claimed; None claims nothing.
        scheduler: Told of due times and unclaimed work.
    """

    def __init__(
        self,
        engine: object,
        kernels: Mapping[str, Kernel],
        database: SharedDatabase,
        feed: CommitFeed,
        streams: StreamStore,
        states: CommittedStates,
        clock: Callable[[], int],
        check_open: Callable[[], None],
    ) -> None:
        self.worker: Worker | None = None
        self.scheduler: Scheduler | None = None
        self._engine = engine
        self._kernels = kernels
        self._database = database
        self._feed = feed
        self._streams = streams
        self._states = states
        self._clock = clock
        self._check_open = check_open
        self._loop = asyncio.get_running_loop()

    def submit(
        self,
        kernel: Kernel,
        flow_id: str,
        command: Command,
        *,
        lease: AttemptLease | None = None,
        live_events: list[LiveEvents] | None = None,
        lost_owner: int | None = None,
    ) -> asyncio.Future[AppliedCommand]:
        """Queue one command. What its commit brings along happens even when nobody waits for the result."""
        self._check_open()
        future: asyncio.Future[AppliedCommand] = self._loop.create_future()
        is_registered = kernel is self._kernels.get(kernel.flow.flow_type)
        worker = self.worker if is_registered else None
        state = self._database.writer_state
        slots = None if worker is None else worker.slots
        held: list[AppliedCommand] = []

        def apply(connection: sqlite3.Connection) -> AppliedCommand:
            applied = apply_command(
                connection,
                kernel,
                flow_id,
                self._clock(),
                command,
                state=state,
                streams=self._streams,
                author=self._engine if is_registered else None,
                slots=slots,
                lease=lease,
                live_events=live_events,
                lost_owner=lost_owner,
            )
            if applied.changes is not None:
                held.append(applied)
                changes = applied.changes
                is_work = changes.has_ready or changes.cancelled or changes.next_due is not None
                # Under an unregistered definition this engine does none of the work itself.
                author = self._engine if is_registered else kernel
                self._feed.changed(flow_id, self._engine if is_registered else None, author if is_work else None)
            return applied

        def done(applied: AppliedCommand | None, error: Exception | None) -> None:
            if applied is not None:
                changes = applied.changes
                if changes is not None:
                    if is_registered:
                        self._states.put(
                            flow_id,
                            CommittedState(kernel, applied.version, changes.status, changes.header, changes.known),
                        )
                    else:
                        self._states.forget(flow_id)
                self._follow_up(kernel, flow_id, applied, worker, lease)
                if not future.done():
                    future.set_result(applied)
                return
            if slots is not None and held and held[0].changes is not None:
                key = held[0].flow_key
                slots.held.difference_update(
                    (key, claim.step_execution_id, claim.attempt) for claim in held[0].changes.claimed
                )
            if worker is not None:
                worker.hold_running()
            if error is not None and not future.done():
                future.set_exception(error)

        durable: Durable = "always" if isinstance(command, _ALWAYS_FLUSHED) else "engine"
        request = WriteRequest(apply=apply, on_done=done, loop=self._loop, durable=durable, raises_before_writing=True)
        self._database.writer.submit(request)
        return future

    def _follow_up(
        self,
        kernel: Kernel,
        flow_id: str,
        applied: AppliedCommand,
        worker: Worker | None,
        lease: AttemptLease | None,
    ) -> None:
        changes = applied.changes
        if changes is None:
            return
        log_pure_failures(flow_id, changes)
        if worker is not None:
            for step_id, attempt in changes.cancelled:
                worker.cancel((applied.flow_key, step_id, attempt))
            if worker is self.worker:
                for claim in changes.claimed:
                    key = (applied.flow_key, claim.step_execution_id, claim.attempt)
                    if lease is not None and key == lease.slot:
                        worker.note_started(key)
                    else:
                        worker.start(kernel, flow_id, applied, claim)
        if self.scheduler is not None:
            if changes.next_due is not None:
                self.scheduler.due_at(changes.next_due)
            if changes.has_ready:
                self.scheduler.note_backlog()
            elif lease is not None or changes.cancelled:
                self.scheduler.note_free_slot()

    async def submit_for_scheduler(
        self, flow_type: str, flow_id: str, command: Command, lost_owner: int | None
    ) -> AppliedCommand:
        """Apply what the scheduler found to do."""
        return await self.submit(self._kernels[flow_type], flow_id, command, lost_owner=lost_owner)
