"""Worker liveness: every worker holds a file lock that the operating system frees the moment its process dies.

POSIX locks, because a forked child must not keep its dead parent alive. Their price: a process that closes any
descriptor of a file loses its lock on it, so this module alone opens these files, and never one that it holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

from dex_flow.errors import StorageError

__all__ = ["WorkerLock", "is_worker_alive", "remove_dead_worker"]

_FileKey = tuple[int, int]

_lock = threading.Lock()
_held: set[_FileKey] = set()


class WorkerLock:
    """The life sign of one worker, from `acquire` until `close` or the end of the process."""

    def __init__(self, path: Path, descriptor: int, file_key: _FileKey) -> None:
        self.path = path
        self._descriptor = descriptor
        self._file_key = file_key
        self._process = os.getpid()
        self._closed = False

    @classmethod
    def acquire(cls, directory: Path, worker_key: int) -> WorkerLock:
        """Hold the lock of `worker_key`, a number that no other worker of the database uses.

        Raises:
            StorageError: A living worker holds this key, or the directory cannot be written.
        """
        path = directory / str(worker_key)
        with _lock:
            try:
                directory.mkdir(exist_ok=True)
                while True:
                    if _find_file_key(path) in _held:
                        raise StorageError(f"worker {worker_key} of {directory} runs in this process already")
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                    locked = _try_lock(descriptor, fcntl.LOCK_EX)
                    status = os.fstat(descriptor)
                    file_key = (status.st_dev, status.st_ino)
                    if _find_file_key(path) == file_key:
                        break
                    os.close(descriptor)  # it was removed as a dead worker's file after we had opened it
                if not locked:
                    os.close(descriptor)
                    raise StorageError(f"worker {worker_key} of {directory} runs in another process already")
            except OSError as error:
                raise StorageError(f"cannot create the worker's lock file {path}: {error}") from error
            _held.add(file_key)
        return cls(path, descriptor, file_key)

    def close(self) -> None:
        """Declare the worker gone and remove its file. In a forked child this does nothing."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        with _lock:
            _held.discard(self._file_key)
            try:
                _unlink_if_same(self.path, self._file_key)
            finally:
                os.close(self._descriptor)


def is_worker_alive(directory: Path, worker_key: int) -> bool:
    """Whether the process of a worker lives; False also when the worker never existed or has closed.

    Raises:
        StorageError: Its lock file cannot be examined.
    """
    path = directory / str(worker_key)
    with _lock:
        if _find_file_key(path) in _held:
            return True
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(f"cannot examine the worker's lock file {path}: {error}") from error
        try:
            # A shared lock: two processes that ask at the same time do not mistake each other for the worker.
            return not _try_lock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)


def remove_dead_worker(directory: Path, worker_key: int) -> bool:
    """Remove a dead worker's file; False when the worker lives or the file is gone. For whoever takes its work over.

    Raises:
        StorageError: Its lock file cannot be opened or removed.
    """
    path = directory / str(worker_key)
    with _lock:
        if _find_file_key(path) in _held:
            return False
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(f"cannot open the worker's lock file {path}: {error}") from error
        try:
            if not _try_lock(descriptor, fcntl.LOCK_EX):
                return False
            # Removed while locked: whoever opened it meanwhile finds that the path no longer leads to its file.
            status = os.fstat(descriptor)
            return _unlink_if_same(path, (status.st_dev, status.st_ino))
        except OSError as error:
            raise StorageError(f"cannot remove the worker's lock file {path}: {error}") from error
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def _find_file_key(path: Path) -> _FileKey | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _unlink_if_same(path: Path, file_key: _FileKey) -> bool:
    if _find_file_key(path) != file_key:
        return False
    os.unlink(path)
    return True


def _forget_locks_of_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks_of_parent)
