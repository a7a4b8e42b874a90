"""The commit gate: at most one process at a time commits to, or checkpoints, a database.

Waiting for a file lock is fair and its delays are bounded, which SQLite's own busy polling is not. It also keeps a
commit and a checkpoint from overlapping, which some SQLite releases answer with a corrupt file ("WAL-reset bug").
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
import sys
import threading
import time
from types import TracebackType

__all__ = ["CommitGate"]

logger = logging.getLogger("dex_flow.embedded")


class CommitGate:
    """An exclusive POSIX lock on a file beside the database.

    The operating system frees it when its holder dies, and a forked child does not inherit it. It excludes processes,
    not threads, and every descriptor of the file that a process closes frees it: so one gate per process and file,
    used by one thread at a time.

    Args:
        path: The lock file; created when missing, never removed.
        report_after: Seconds of waiting after which a warning names the process that holds the gate.

    Raises:
        OSError: The file cannot be created or opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, report_after: float = 5.0) -> None:
        self.path = os.fspath(path)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._hold = _Hold(self._descriptor, self)
        self._report_after = report_after
        self._closed = threading.Event()
        self._watch_lock = threading.Lock()
        self._watcher: threading.Thread | None = None
        self._waiting_since: float | None = None
        self._waits = 0

    def hold(self) -> _Hold:
        """A context manager that waits for the gate and holds it; not reentrant.

        Raises:
            OSError: The file system refuses locks.
        """
        return self._hold

    def close(self) -> None:
        """Give the gate up for good; nobody may hold it any more."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._watcher is not None:
            self._watcher.join()
        os.close(self._descriptor)

    def wait(self) -> None:
        """Wait for the gate after a first attempt found it held, and take it."""
        with self._watch_lock:
            self._waits += 1
            self._waiting_since = time.monotonic()
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="dex-flow-gate-watch", daemon=True)
                self._watcher.start()
        try:
            while not self._lock_unless_deadlock():
                # The kernel looks for deadlocks per process: with two databases and two processes, threads that wait
                # for each other's process look like one although every holder goes on. It cannot wait for us then.
                time.sleep(0.001)
        finally:
            self._waiting_since = None

    def _lock_unless_deadlock(self) -> bool:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno != errno.EDEADLK:
                raise
            return False
        return True

    def _watch(self) -> None:
        seen_waits = 0
        reported: float | None = None
        while not self._closed.wait(self._report_after / 5):
            with self._watch_lock:
                since = self._waiting_since
                if since is None and self._waits == seen_waits:
                    self._watcher = None
                    return
                seen_waits = self._waits
            if since is not None and since != reported and time.monotonic() - since >= self._report_after:
                reported = since
                self._report(time.monotonic() - since)

    def _report(self, waited: float) -> None:
        holder = _find_lock_holder(self._descriptor)
        logger.warning(
            "waited %.1f s for the commit gate %s, held by %s; if that process is stopped or hangs, "
            "resume or end it: until then nothing commits",
            waited,
            self.path,
            "another process" if holder is None else f"process {holder}",
        )


class _Hold:
    """Context manager of a gate; one object for all uses keeps the uncontended case at two system calls."""

    __slots__ = ("_descriptor", "_gate")

    def __init__(self, descriptor: int, gate: CommitGate) -> None:
        self._descriptor = descriptor
        self._gate = gate

    def __enter__(self) -> None:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            self._gate.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


def _find_lock_holder(descriptor: int) -> int | None:
    """The PID that keeps us from locking the file, or None when the system does not tell."""
    if sys.platform == "linux" and struct.calcsize("P") == 8:
        layout, query = "@hhqqi0q", (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind_index, pid_index = 0, 4
    elif sys.platform == "darwin":
        layout, query = "@qqihh", (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        kind_index, pid_index = 3, 2
    else:
        return None
    answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *query)))
    if answer[kind_index] == fcntl.F_UNLCK or answer[pid_index] <= 0:
        return None
    return int(answer[pid_index])
