"""Finds work that no command of this process brought along: due timers, unclaimed Steps, executions of dead workers."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dex_flow.embedded.worker_liveness import is_worker_alive
from dex_flow.errors import EngineClosedError
from dex_flow.kernel import AttemptsLost, ClaimReady, Command, FireTimers, decode_header

__all__ = ["Scheduler", "SchedulerPorts"]

logger = logging.getLogger("dex_flow.embedded")

_FALLBACK_SECONDS = 0.5
_LIVENESS_SECONDS = 0.1
_BATCH = 200
# Looked at beyond the free slots, so that executions that cannot be advanced do not keep the others waiting.
_SPARE = 16

AttemptKey = tuple[int, int, int]


class _Candidate(NamedTuple):
    flow_id: str
    flow_type: str
    fingerprint: str
    owner: int | None
    active_steps: int


@dataclass(slots=True)
class _Findings:
    due: list[_Candidate] = field(default_factory=list)
    ready: list[_Candidate] = field(default_factory=list)
    lost: list[_Candidate] = field(default_factory=list)
    stale_attempts: list[AttemptKey] = field(default_factory=list)
    next_due: int | None = None
    has_other_workers: bool = False
    has_backlog: bool = False


@dataclass(frozen=True, slots=True)
class SchedulerPorts:
    """What the scheduler needs of its engine.

    Attributes:
        read: Runs a read-only function.
        command: Applies a command; the last argument is the owner that is given up.
        fingerprints: Definition fingerprints by Flow type.
        free_slots: How many more attempts fit.
        running_attempts: Keys of this process's attempts with the epoch they began under.
        cancel_attempt: Stops one that no longer counts.
        remove_dead_workers: Removes what workers left that died.
        clock: Microseconds since the epoch.
    """

    read: Callable[[Callable[[sqlite3.Connection], _Findings]], Awaitable[_Findings]]
    command: Callable[[str, str, Command, int | None], Awaitable[object]]
    fingerprints: dict[str, str]
    free_slots: Callable[[], int]
    running_attempts: Callable[[], Sequence[tuple[AttemptKey, int]]]
    cancel_attempt: Callable[[AttemptKey], None]
    remove_dead_workers: Callable[[], Awaitable[None]]
    clock: Callable[[], int]


class Scheduler:
    """One task per engine that runs a worker.

    Args:
        ports: The engine.
        worker_key: This worker.
        workers_directory: Lock files of all workers.
        worker_timeout: Seconds without a new heartbeat row after which a worker that still holds its lock is given up.
    """

    def __init__(self, ports: SchedulerPorts, worker_key: int, workers_directory: Path, worker_timeout: float) -> None:
        self._ports = ports
        self._worker_key = worker_key
        self._workers_directory = workers_directory
        self._worker_timeout = worker_timeout
        self._wake = asyncio.Event()
        self._next_due: int | None = None
        self._has_other_workers = False
        self._has_backlog = False
        self._has_freed = False
        self._beats: dict[int, tuple[int, float]] = {}

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    def note_backlog(self) -> None:
        """A commit left a ready Step unclaimed."""
        self._has_backlog = True
        self._wake.set()

    def note_free_slot(self) -> None:
        """An attempt ended; what could not be claimed before may fit now."""
        self._has_freed = True
        if self._has_backlog:
            self._wake.set()

    def due_at(self, due: int) -> None:
        """A commit scheduled `FireTimers` for this time."""
        if self._next_due is None or due < self._next_due:
            self._next_due = due
            self._wake.set()

    async def run(self) -> None:
        """Look, act, wait; until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._look()
            except EngineClosedError:
                return
            except Exception:
                logger.exception("looking for work failed; trying again")
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _pause(self) -> float:
        seconds = _LIVENESS_SECONDS if self._has_other_workers else _FALLBACK_SECONDS
        if self._next_due is not None:
            seconds = min(seconds, max(0.0, (self._next_due - self._ports.clock()) / 1_000_000))
        return seconds

    async def _look(self) -> None:
        now = self._ports.clock()
        self._has_freed = False
        free = self._ports.free_slots()
        running = dict(self._ports.running_attempts())
        # What a commit notes from here on may be missing in what is read now, so it is added and not replaced.
        self._next_due = None
        self._has_backlog = False
        findings = await self._ports.read(lambda connection: self._find(connection, now, free, running))
        self._has_other_workers = findings.has_other_workers
        self._has_backlog = self._has_backlog or findings.has_backlog
        for key in findings.stale_attempts:
            self._ports.cancel_attempt(key)
            self.note_free_slot()
        if self._has_backlog and self._has_freed:
            self._wake.set()  # a slot got free that was not counted when the backlog was looked for
        # Not by `due_at`: this look's own finding needs no further one, and a wake-up that came meanwhile must stay.
        if findings.next_due is not None and (self._next_due is None or findings.next_due < self._next_due):
            self._next_due = findings.next_due
        work = [self._apply(candidate, AttemptsLost(), candidate.owner) for candidate in findings.lost]
        work += [self._apply(candidate, FireTimers(), None) for candidate in findings.due]
        work += [self._apply(candidate, ClaimReady(), None) for candidate in findings.ready]
        if work:
            await asyncio.gather(*work)
            if findings.lost:
                await self._ports.remove_dead_workers()
            if len(findings.due) == _BATCH or len(findings.lost) == _BATCH:
                self._wake.set()

    async def _apply(self, candidate: _Candidate, command: Command, lost_owner: int | None) -> None:
        try:
            await self._ports.command(candidate.flow_type, candidate.flow_id, command, lost_owner)
        except EngineClosedError:
            raise
        except Exception:
            logger.exception("flow %r could not be advanced; trying again", candidate.flow_id)

    def _find(self, connection: sqlite3.Connection, now: int, free: int, running: dict[AttemptKey, int]) -> _Findings:
        findings = _Findings()
        # In the query, not after it: what others work on must not fill the batch.
        ours = [value for definition in self._ports.fingerprints.items() for value in definition]
        marks = ", ".join(["(?, ?)"] * len(self._ports.fingerprints))
        is_ours = f"(flow_type, fingerprint) IN (VALUES {marks})"
        columns = "SELECT flow_id, flow_type, fingerprint, owner, active_steps FROM flow"
        findings.due = self._select(
            connection, f"{columns} WHERE next_due <= ? AND {is_ours} LIMIT {_BATCH}", (now, *ours)
        )
        ready = self._select(
            connection,
            f"{columns} WHERE has_ready = 1 AND (active_steps = 0 OR owner = ?) AND {is_ours} LIMIT ?",
            (self._worker_key, *ours, min(free + _SPARE, _BATCH)),
        )
        findings.has_backlog = len(ready) > free
        if free > 0:
            findings.ready = ready
        owners = [
            owner
            for (owner,) in connection.execute("SELECT DISTINCT owner FROM flow WHERE active_steps > 0")
            if owner != self._worker_key
        ]
        findings.has_other_workers = bool(owners)
        for owner in owners:
            if not self._is_alive(connection, owner):
                findings.lost += self._select(
                    connection,
                    f"{columns} WHERE owner = ? AND active_steps > 0 AND {is_ours} LIMIT {_BATCH}",
                    (owner, *ours),
                )
        findings.stale_attempts = self._find_stale(connection, running)
        (findings.next_due,) = connection.execute(
            "SELECT MIN(next_due) FROM flow WHERE next_due > ?", (now,)
        ).fetchone()
        return findings

    def _select(self, connection: sqlite3.Connection, query: str, parameters: tuple[object, ...]) -> list[_Candidate]:
        return [_Candidate(*row) for row in connection.execute(query, parameters)]

    def _is_alive(self, connection: sqlite3.Connection, owner: int) -> bool:
        if not is_worker_alive(self._workers_directory, owner):
            self._beats.pop(owner, None)
            return False
        row = connection.execute("SELECT beat FROM worker WHERE key = ?", (owner,)).fetchone()
        beat = -1 if row is None else row[0]
        known = self._beats.get(owner)
        if known is None or known[0] != beat:
            self._beats[owner] = (beat, time.monotonic())
            return True
        if time.monotonic() - known[1] < self._worker_timeout:
            return True
        logger.warning("worker %d has sent no heartbeat for %g s and is given up", owner, self._worker_timeout)
        return False

    def _find_stale(self, connection: sqlite3.Connection, running: dict[AttemptKey, int]) -> list[AttemptKey]:
        """Attempts of this process that another process has cancelled or taken over."""
        stale = []
        for flow_key in {key[0] for key in running}:
            row = connection.execute("SELECT owner, epoch, header FROM flow WHERE key = ?", (flow_key,)).fetchone()
            header = decode_header(row[2])
            for key, epoch in running.items():
                if key[0] != flow_key:
                    continue
                step = header.steps.get(key[1])
                is_current = step is not None and (
                    (step.status == "running" and step.attempt == key[2])
                    or (step.status == "claimed" and step.attempt + 1 == key[2])
                )
                if row[0] != self._worker_key or row[1] != epoch or not is_current:
                    stale.append(key)
        return stale
