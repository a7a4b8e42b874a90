"""One kernel command inside one write transaction, with the lease rules.

A running execution is leased to one worker (owner and epoch). Commands of attempts carry the lease they began under and
are refused when it has changed, so that a worker that was given up cannot commit. RPCs come from any process. Whoever
finds an execution without running attempts may lease it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dex_flow.declarations import Stream
from dex_flow.embedded.flow_store import FlowRow, insert_flow
from dex_flow.embedded.stream_store import StreamStore
from dex_flow.embedded.writer_state import WriterState, WriterStateReader
from dex_flow.errors import FlowDefinitionMismatchError, FlowNotFoundError
from dex_flow.flow import Flow
from dex_flow.kernel import (
    AttemptDiscardedError,
    AttemptFailed,
    AttemptsLost,
    AttemptStarted,
    AttemptSucceeded,
    Changes,
    Command,
    Kernel,
    StartFlow,
    decode_header,
)

__all__ = [
    "AppliedCommand",
    "AttemptLease",
    "LiveEvents",
    "WorkerSlots",
    "append_live_events",
    "apply_command",
    "check_definition",
]

AttemptKey = tuple[int, int, int]


@dataclass(slots=True)
class WorkerSlots:
    """Attempts a worker holds: added on the writer thread, removed where they end (single set operations are atomic).

    Attributes:
        worker_key: The worker's row.
        limit: Most attempts at once.
        held: (flow key, Step execution ID, attempt) of each.
    """

    worker_key: int
    limit: int
    held: set[AttemptKey] = field(default_factory=set)

    @property
    def free(self) -> int:
        """How many more attempts fit."""
        return max(0, self.limit - len(self.held))


class AttemptLease(NamedTuple):
    """What an attempt's commands must still hold true."""

    worker_key: int
    epoch: int
    slot: AttemptKey


class LiveEvents(NamedTuple):
    """Live events of an attempt that were not flushed yet."""

    stream: Stream[Any]
    events: list[bytes]


class AppliedCommand(NamedTuple):
    """What the engine does after the commit."""

    flow_key: int
    epoch: int
    version: int
    changes: Changes | None
    output: Any


def apply_command(
    connection: sqlite3.Connection,
    kernel: Kernel,
    flow_id: str,
    now: int,
    command: Command,
    *,
    state: WriterState,
    streams: StreamStore,
    author: object = None,
    slots: WorkerSlots | None = None,
    lease: AttemptLease | None = None,
    live_events: list[LiveEvents] | None = None,
    lost_owner: int | None = None,
) -> AppliedCommand:
    """Apply one command; runs on the writer thread and raises before its first write only.

    Args:
        connection: The writer's, inside a transaction.
        kernel: Interprets the execution's Flow.
        flow_id: The execution.
        now: Microseconds since the epoch.
        command: What happened.
        state: What the writer knows, and takes the rows to write.
        streams: Appends events.
        author: Whose definition this is; None keeps nothing of what the command decodes.
        slots: The calling worker's; None claims nothing.
        lease: For commands of an attempt.
        live_events: Appended before the command's own events.
        lost_owner: With `AttemptsLost`: the worker that is given up; nothing happens when it no longer is the owner.

    Raises:
        FlowDefinitionMismatchError: The stored execution is of another Flow type or an incompatible definition.
        AttemptDiscardedError: The lease has changed or the attempt no longer counts.
        DexFlowError: As `Kernel.apply`.
    """
    if (
        lease is not None
        and slots is not None
        and isinstance(command, AttemptStarted | AttemptSucceeded | AttemptFailed)
    ):
        slots.held.discard(lease.slot)
    hot = state.find(connection, flow_id)
    row = None if hot is None else hot.row
    if row is None and not isinstance(command, StartFlow):
        raise FlowNotFoundError(flow_id)
    if row is not None:
        check_definition(kernel, flow_id, row)
        if lease is not None and (row.owner != lease.worker_key or row.epoch != lease.epoch):
            raise AttemptDiscardedError(f"flow {flow_id!r} was taken over by another worker")
        if isinstance(command, AttemptsLost) and row.owner != lost_owner:
            return AppliedCommand(row.key, row.epoch, row.version, None, False)
    owner, epoch = (None, 0) if row is None else (row.owner, row.epoch)
    is_given_up = isinstance(command, AttemptsLost)
    may_claim = slots is not None and (row is None or owner == slots.worker_key or row.active_steps == 0 or is_given_up)
    claim_slots = slots.free if slots is not None and may_claim else 0
    known = None if hot is None or author is None or hot.author is not author else hot.known
    result = kernel.apply(
        WriterStateReader(connection, row, state), flow_id, now, command, claim_slots=claim_slots, known=known
    )
    if hot is not None and live_events:
        for live in live_events:
            streams.append(connection, state, hot, live.stream, live.events)
    changes = result.changes
    if changes is None:
        key, version = (-1, 0) if row is None else (row.key, row.version)
        return AppliedCommand(key, epoch, version, None, result.output)
    if is_given_up or (changes.claimed and slots is not None and owner != slots.worker_key):
        owner = slots.worker_key if changes.claimed and slots is not None else None
        epoch += 1
    row = _store(connection, state, kernel.flow, flow_id, row, changes, now, owner, epoch)
    key = row.key
    hot = state.put(flow_id, row, None if author is None else changes.known, author)
    for stream_name, events in changes.events.items():
        streams.append(connection, state, hot, kernel.flow.streams[stream_name], events)
    if slots is not None:
        for step_id, attempt in changes.cancelled:
            slots.held.discard((key, step_id, attempt))
        for claim in changes.claimed:
            slots.held.add((key, claim.step_execution_id, claim.attempt))
    return AppliedCommand(key, epoch, row.version, changes, result.output)


def _store(
    connection: sqlite3.Connection,
    state: WriterState,
    flow: Flow,
    flow_id: str,
    row: FlowRow | None,
    changes: Changes,
    now: int,
    owner: int | None,
    epoch: int,
) -> FlowRow:
    """Write one command's changes, except its events, and return the execution's row."""
    if row is None:
        key, version = insert_flow(connection, flow, flow_id, changes, now, owner, epoch), 1
    else:
        key, version = row.key, row.version + 1
        state.pending.put_flow(
            key,
            (
                changes.status,
                owner,
                epoch,
                version,
                changes.active_steps,
                changes.has_ready,
                changes.next_due,
                now,
                changes.header,
            ),
        )
    state.pending.add_changes(key, changes)
    return FlowRow(
        key,
        flow.flow_type,
        flow.fingerprint,
        changes.status,
        owner,
        epoch,
        version,
        changes.active_steps,
        changes.has_ready,
        changes.header,
    )


def append_live_events(
    connection: sqlite3.Connection,
    state: WriterState,
    streams: StreamStore,
    flow_id: str,
    lease: AttemptLease,
    step_id: int,
    attempt: int,
    live: LiveEvents,
) -> bool:
    """Append live events while the attempt still runs; False when they came too late."""
    hot = state.find(connection, flow_id)
    if hot is None:
        return False
    row = hot.row
    if row.owner != lease.worker_key or row.epoch != lease.epoch or row.status != "open":
        return False
    step = decode_header(row.header).steps.get(step_id)
    if step is None or step.status != "running" or step.attempt != attempt:
        return False
    streams.append(connection, state, hot, live.stream, live.events)
    return True


def check_definition(kernel: Kernel, flow_id: str, row: FlowRow) -> None:
    """Raise `FlowDefinitionMismatchError` when the kernel's definition does not fit the stored execution."""
    flow = kernel.flow
    if row.flow_type != flow.flow_type:
        raise FlowDefinitionMismatchError(
            f"flow {flow_id!r} is a {row.flow_type!r}, not a {flow.flow_type!r}; use the definition it was started with"
        )
    if row.fingerprint != flow.fingerprint:
        raise FlowDefinitionMismatchError(
            f"flow {flow_id!r} was started with an incompatible definition of {flow.flow_type!r}; "
            "use a release whose definition has the same compatibility number"
        )
