"""Runs claimed attempts in this process and reports their ends."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from dex_flow.codec import decode, encode
from dex_flow.embedded.attempt import RunningAttempt
from dex_flow.embedded.attempt_clocks import AttemptClocks
from dex_flow.embedded.command_transaction import (
    AppliedCommand,
    AttemptKey,
    AttemptLease,
    LiveEvents,
    WorkerSlots,
    append_live_events,
)
from dex_flow.embedded.group_writer import GroupWriter, WriteRequest
from dex_flow.embedded.stream_store import StreamStore
from dex_flow.embedded.writer_state import WriterState
from dex_flow.errors import DexFlowError, EngineClosedError, FlowDefinitionMismatchError, FlowNotFoundError
from dex_flow.exception_text import describe_exception, unstorable_traceback
from dex_flow.kernel import (
    AttemptDiscardedError,
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    ClaimedAttempt,
    Command,
    Kernel,
    decode_header,
)
from dex_flow.steps import ActivityStep, AttemptFailure

__all__ = ["CommandPort", "Worker"]

logger = logging.getLogger("dex_flow.embedded")

#: No later try can succeed; what else goes wrong while an outcome is recorded may pass.
_FINAL_ERRORS = (AttemptDiscardedError, EngineClosedError, FlowDefinitionMismatchError, FlowNotFoundError)

SnapshotLoader = Callable[[Kernel, str, ClaimedAttempt], Awaitable[Any]]


class CommandPort(Protocol):
    """How a worker applies commands."""

    def __call__(
        self,
        kernel: Kernel,
        flow_id: str,
        command: Command,
        *,
        lease: AttemptLease | None = None,
        live_events: list[LiveEvents] | None = None,
    ) -> asyncio.Future[AppliedCommand]:
        """Submit a command."""
        ...


class Worker:
    """The attempts of one engine.

    Args:
        worker_key: The worker's row.
        max_concurrent_steps: Most attempts at once.
        writer: For live events.
        state: The writer's.
        streams: Appends them.
        load_snapshot: Reads what an attempt's `run` needs.
        command: Applies commands.
        on_changed: Told the flow IDs whose streams got live events (on the writer thread).
    """

    def __init__(
        self,
        worker_key: int,
        max_concurrent_steps: int,
        writer: GroupWriter,
        state: WriterState,
        streams: StreamStore,
        load_snapshot: SnapshotLoader,
        command: CommandPort,
        on_changed: Callable[[str], None],
    ) -> None:
        self.slots = WorkerSlots(worker_key, max_concurrent_steps)
        self.command = command
        self.loop = asyncio.get_running_loop()
        self.clocks = AttemptClocks(self.loop, self._on_timeout)
        self._writer = writer
        self._state = state
        self._streams = streams
        self._load_snapshot = load_snapshot
        self._on_changed = on_changed
        self._attempts: dict[AttemptKey, RunningAttempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_stopping = False
        self._is_stopped = False

    @property
    def running(self) -> dict[AttemptKey, RunningAttempt]:
        """Attempts that count, by key."""
        return self._attempts

    def start(self, kernel: Kernel, flow_id: str, applied: AppliedCommand, claim: ClaimedAttempt) -> None:
        """Run a claimed attempt, in place of an earlier claim of it that was given up and is not forgotten yet."""
        key = (applied.flow_key, claim.step_execution_id, claim.attempt)
        if self._is_stopped:
            return  # its lease ends with this worker
        earlier = self._attempts.get(key)
        if earlier is not None:
            self._end(earlier)
        lease = AttemptLease(self.slots.worker_key, applied.epoch, key)
        attempt = RunningAttempt(self, kernel, flow_id, claim, lease)
        self._attempts[key] = attempt
        self._idle.clear()
        attempt.task = self._spawn(self._run(attempt))

    def cancel(self, key: AttemptKey) -> None:
        """The attempt no longer counts: stop its task now, drop whatever comes of it."""
        attempt = self._attempts.get(key)
        if attempt is None:
            self.slots.held.discard(key)
        else:
            self._end(attempt)
            self._forget(attempt)

    def hold_running(self) -> None:
        """A command was undone that may have freed slots of attempts which run on: they hold them again."""
        self.slots.held.update([key for key, attempt in self._attempts.items() if not attempt.is_over])

    def note_started(self, key: AttemptKey) -> None:
        """The start marker of an attempt is committed; one that was cancelled meanwhile holds no slot for it."""
        if key not in self._attempts:
            self.slots.held.discard(key)

    def append_live_events(self, attempt: RunningAttempt, events: list[LiveEvents], then: Callable[[], None]) -> None:
        """Store live events without a flush to disk, then call `then` on the event loop."""

        def apply(connection: sqlite3.Connection) -> None:
            for live in events:
                if not append_live_events(
                    connection,
                    self._state,
                    self._streams,
                    attempt.flow_id,
                    attempt.lease,
                    attempt.step_execution_id,
                    attempt.attempt,
                    live,
                ):
                    return
            self._on_changed(attempt.flow_id)

        def done(_: None, error: Exception | None) -> None:
            if error is not None:
                logger.warning("live events of flow %r were dropped: %s", attempt.flow_id, error)
            then()

        request = WriteRequest(apply=apply, on_done=done, loop=self.loop, durable="never", raises_before_writing=True)
        try:
            self._writer.submit(request)
        except EngineClosedError:
            logger.debug("live events came after the engine was closed")

    async def stop(self, grace: float) -> list[tuple[Kernel, str]]:
        """Wait up to `grace` seconds for running attempts, then cancel the rest and return their executions."""
        self._is_stopping = True
        self.slots.limit = 0
        try:
            if self._attempts and grace > 0:
                async with asyncio.timeout(grace):
                    await self._idle.wait()
        except TimeoutError:
            logger.warning("%d attempts still run after %g s and are cancelled", len(self._attempts), grace)
        finally:
            # Also when the wait itself is cancelled: others take over as soon as this worker's lock is free.
            self._is_stopped = True
            left = list(
                {attempt.flow_id: (attempt.kernel, attempt.flow_id) for attempt in self._attempts.values()}.values()
            )
            for key in list(self._attempts):
                self.cancel(key)
            self.clocks.close()
        if self._tasks:
            _, stuck = await asyncio.wait(self._tasks, timeout=1.0)
            for task in stuck:
                logger.warning("a step ignores its cancellation and is left behind: %r", task)
        return left

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, attempt: RunningAttempt) -> None:
        # One that is over is being reported already; whether that still counts is decided where it is committed.
        if not attempt.is_over:
            attempt.end()
            if attempt.task is not None:
                attempt.task.cancel()

    def _forget(self, attempt: RunningAttempt) -> None:
        attempt.end()
        key = attempt.lease.slot
        # A later claim of the same attempt may have taken its place.
        if self._attempts.get(key) is attempt:
            del self._attempts[key]
            self.slots.held.discard(key)
        if not self._attempts:
            self._idle.set()

    async def _run(self, attempt: RunningAttempt) -> None:
        command: Command
        try:
            if not attempt.claim.is_started and not await self._mark_started(attempt):
                self._forget(attempt)
                return
            attempt.begin()
            command = await self._outcome(attempt)
        except asyncio.CancelledError as error:
            if attempt.is_over:
                return
            # Somebody else cancelled the task, such as a cancel scope that was left open in it. While this worker
            # lives nobody else would end the attempt.
            command = _failed(attempt, error)
        if not attempt.is_over:
            await self._report(attempt, command)

    async def _mark_started(self, attempt: RunningAttempt) -> bool:
        claim = attempt.claim
        command = AttemptStarted(claim.step_execution_id, claim.attempt)
        try:
            applied = await self._persist(attempt, command)
        except DexFlowError as error:
            logger.info("an attempt of %s in flow %r may not start: %s", claim.step_type, attempt.flow_id, error)
            return False
        changes = applied.changes
        for started in changes.claimed if changes is not None else ():
            if started.step_execution_id == claim.step_execution_id and started.is_started:
                attempt.claim = started
                return not attempt.is_over
        return False

    async def _outcome(self, attempt: RunningAttempt) -> Command:
        claim = attempt.claim
        step = attempt.kernel.flow.step(claim.step_type)
        assert isinstance(step, ActivityStep)
        try:
            snapshot = await self._load_snapshot(attempt.kernel, attempt.flow_id, claim)
            outcome = await step.run(attempt, snapshot)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling() > 0:
                raise
            # Nobody cancelled this task: the step let the cancellation of something else escape.
            return _failed(attempt, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return _failed(attempt, error)
        try:
            outcome = decode(step.outcome_type, encode(outcome))
        except Exception as error:
            error_type, message = describe_exception(error)
            text = f"the outcome of {claim.step_type} cannot be stored: {message}"
            failure = AttemptFailure(error_type=error_type, message=text, is_retryable=False)
            attempt.error = error
            return AttemptFailed(claim.step_execution_id, claim.attempt, failure)
        return AttemptSucceeded(claim.step_execution_id, claim.attempt, outcome)

    def _on_timeout(self, attempt: RunningAttempt, error: Exception) -> None:
        if attempt.is_over:
            return
        command = _failed(attempt, error)
        self._spawn(self._report(attempt, command))

    async def _report(self, attempt: RunningAttempt, command: Command) -> None:
        """Commit the end of an attempt; its task, if it still runs, is cancelled and counts no more."""
        attempt.end()
        if attempt.task is not None and attempt.task is not asyncio.current_task():
            attempt.task.cancel()
        try:
            applied = await self._persist(attempt, command, attempt.take_buffer())
            if isinstance(command, AttemptFailed):
                _log_last_failure(attempt, command.failure, applied)
        except AttemptDiscardedError as error:
            logger.info("the outcome of an attempt in flow %r was refused: %s", attempt.flow_id, error)
        except EngineClosedError:
            logger.info("the engine closed before an attempt of flow %r was recorded", attempt.flow_id)
        except Exception:
            logger.exception("an attempt of flow %r could not be recorded", attempt.flow_id)
        finally:
            self._forget(attempt)

    async def _persist(
        self, attempt: RunningAttempt, command: Command, live_events: list[LiveEvents] | None = None
    ) -> AppliedCommand:
        """Apply a command of the attempt; one that the storage refuses is tried again until it is recorded."""
        delay = 0.1
        while True:
            try:
                return await self.command(
                    attempt.kernel, attempt.flow_id, command, lease=attempt.lease, live_events=live_events
                )
            except _FINAL_ERRORS:
                raise
            except Exception:
                if self._is_stopping:
                    raise
                logger.exception("an attempt of flow %r is not recorded yet; trying again", attempt.flow_id)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5.0)


def _log_last_failure(attempt: RunningAttempt, failure: AttemptFailure, applied: AppliedCommand) -> None:
    """Say once that a Step failed for good; a failed attempt that another follows is in the history only."""
    changes = applied.changes
    if changes is None or attempt.step_execution_id in decode_header(changes.header).steps:
        return
    traceback = unstorable_traceback(attempt.error)
    logger.warning(
        "step %s (execution %d) of flow %r failed in attempt %d, its last one: %s: %s%s",
        attempt.claim.step_type,
        attempt.step_execution_id,
        attempt.flow_id,
        attempt.attempt,
        failure.error_type,
        failure.message,
        "" if traceback is None else f"\n{traceback}",
        exc_info=attempt.error if traceback is None else None,
    )


def _failed(attempt: RunningAttempt, error: BaseException) -> AttemptFailed:
    attempt.error = error
    return AttemptFailed(attempt.step_execution_id, attempt.attempt, _failure(error))


def _failure(error: BaseException) -> AttemptFailure:
    error_type, message = describe_exception(error)
    retry_after = getattr(error, "retry_after_seconds", None)
    return AttemptFailure(
        error_type=error_type,
        message=message,
        is_retryable=bool(getattr(error, "is_retryable", True)),
        retry_after_seconds=retry_after if isinstance(retry_after, (int, float)) else None,
    )
