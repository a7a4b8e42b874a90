"""Wake-ups: after a commit, an empty datagram tells the other processes of a database to look for news.

They are hints. One that is lost costs its receiver the delay until its next regular look, never work.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dex_flow.errors import StorageError

__all__ = ["WakeUpReceiver", "WakeUpSender", "locate_wake_up_folder"]

logger = logging.getLogger("dex_flow.embedded")

_SUFFIX = ".sock"
_MAX_SOCKET_PATH_BYTES = 103  # the smallest limit of the systems we run on, without its closing zero byte
_SETTLED_NANOSECONDS = 100_000_000
_MAX_DATAGRAMS_PER_READ = 64
_MAX_BIND_ATTEMPTS = 10
# A socket's file is there a moment before its process can be reached through it.
_YOUNG_SECONDS = 60.0

_own_sockets: set[str] = set()
os.register_at_fork(after_in_child=_own_sockets.clear)


def locate_wake_up_folder(database_path: Path) -> Path:
    """The folder of a database's wake-up sockets, created when missing; only this user may enter it.

    Raises:
        StorageError: It cannot be created, or somebody else owns it.
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(database_path))).hexdigest()[:16]
    base = Path(tempfile.gettempdir())
    if len(os.fsencode(_build_folder(base, name) / f"12345678{_SUFFIX}")) > _MAX_SOCKET_PATH_BYTES:
        base = Path("/tmp")
    folder = _build_folder(base, name)
    for directory in (folder.parent, folder):
        try:
            status = _create_directory(directory)
        except OSError as error:
            raise StorageError(f"cannot create the folder of wake-up sockets {directory}: {error}") from error
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise StorageError(f"{directory} must be a directory that only this user may enter; remove it")
    return folder


class WakeUpReceiver:
    """Calls back in an event loop when another process of the database has committed something.

    Args:
        database_path: The database file.
        callback: Called in `loop` once or more after each wake-up; several wake-ups may come as one call.
        loop: A loop that can watch descriptors; the running one by default.

    Raises:
        StorageError: The socket cannot be created.
    """

    def __init__(
        self,
        database_path: Path,
        callback: Callable[[], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self._process = os.getpid()
        self._closed = False
        name = f"{secrets.token_hex(4)}{_SUFFIX}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        _own_sockets.add(name)
        try:
            self._socket.setblocking(False)
            self.path = _bind(self._socket, database_path, name)
        except BaseException:
            _own_sockets.discard(name)
            self._socket.close()
            raise
        self._loop.add_reader(self._socket.fileno(), self._read)
        _remove_dead_sockets(self.path.parent.parent)

    def close(self) -> None:
        """Stop receiving; call it in the loop, or after that has closed."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:
            self._socket.close()
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self.path.unlink(missing_ok=True)
        self._socket.close()
        _own_sockets.discard(self.path.name)
        _remove_if_empty(self.path.parent)

    def _read(self) -> None:
        for _ in range(_MAX_DATAGRAMS_PER_READ):
            try:
                self._socket.recv(1)
            except BlockingIOError:
                break
        self._callback()


class WakeUpSender:
    """Wakes the receivers in other processes; those of this process learn of its commits without a detour.

    Args:
        database_path: The database file.

    Raises:
        StorageError: The folder of the sockets cannot be created.
    """

    def __init__(self, database_path: Path) -> None:
        self._folder = os.fspath(locate_wake_up_folder(database_path))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._listed_at: int | None = None
        self._paths: tuple[str, ...] = ()

    def notify(self) -> None:
        """Wake every other process; never blocks and never fails."""
        for path in self._list_others():
            try:
                self._socket.sendto(b"", path)
            except (BlockingIOError, FileNotFoundError):
                pass  # it has unread wake-ups, or has just closed
            except ConnectionRefusedError:
                self._remove(path)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    logger.warning("cannot wake the process that listens at %s: %r", path, error)

    def close(self) -> None:
        """Release the sending socket."""
        self._socket.close()
        _remove_if_empty(self._folder)

    def _list_others(self) -> tuple[str, ...]:
        try:
            modified_at = os.stat(self._folder).st_mtime_ns
            if modified_at != self._listed_at:
                names = os.listdir(self._folder)
                self._paths = tuple(
                    os.path.join(self._folder, name)
                    for name in names
                    if name.endswith(_SUFFIX) and name not in _own_sockets
                )
                # A folder's time stamp is coarse: while it is fresh, one more socket may come without changing it.
                settled = time.time_ns() - modified_at > _SETTLED_NANOSECONDS
                self._listed_at = modified_at if settled else None
        except FileNotFoundError:
            self._listed_at, self._paths = None, ()  # the last receiver removed it
        except OSError as error:
            logger.warning("cannot list the wake-up sockets in %s: %r", self._folder, error)
            self._paths = ()
        return self._paths

    def _remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("cannot remove the wake-up socket %s of a dead process: %r", path, error)


def _create_directory(directory: Path) -> os.stat_result:
    while True:
        directory.mkdir(mode=0o700, exist_ok=True)
        try:
            return directory.lstat()
        except FileNotFoundError:
            continue  # another process has just closed and removed the folder


def _bind(receiving_socket: socket.socket, database_path: Path, name: str) -> Path:
    for _ in range(_MAX_BIND_ATTEMPTS):
        path = locate_wake_up_folder(database_path) / name
        try:
            receiving_socket.bind(os.fspath(path))
        except FileNotFoundError:
            continue  # another process has just closed and removed the folder
        except OSError as error:
            raise StorageError(f"cannot create the wake-up socket {path}: {error}") from error
        return path
    raise StorageError(f"cannot create a wake-up socket in {path.parent}: the folder vanishes again and again")


def _remove_dead_sockets(folder_of_databases: Path) -> None:
    """Remove what killed processes left, also for databases that nobody opens any more: sockets and empty folders."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        for path in _list_sockets(folder_of_databases):
            try:
                if path.name in _own_sockets or time.time() - path.lstat().st_mtime < _YOUNG_SECONDS:
                    continue
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                _remove_if_empty(path.parent)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    logger.debug("cannot tell whether anybody listens at %s: %r", path, error)


def _list_sockets(folder_of_databases: Path) -> list[Path]:
    sockets = []
    for name in os.listdir(folder_of_databases):
        folder = folder_of_databases / name
        try:
            entries = os.listdir(folder)
            # The folder of a process that others found dead first, or that was killed before it had a socket.
            if not entries and time.time() - folder.stat().st_mtime > _YOUNG_SECONDS:
                _remove_if_empty(folder)
            sockets += [folder / entry for entry in entries if entry.endswith(_SUFFIX)]
        except (FileNotFoundError, NotADirectoryError):
            continue  # another process has just closed and removed the folder, or it is none
    return sockets


def _remove_if_empty(folder: str | os.PathLike[str]) -> None:
    try:
        os.rmdir(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            logger.warning("cannot remove the empty folder of wake-up sockets %s: %r", folder, error)


def _build_folder(base: Path, name: str) -> Path:
    return base / f"dex-flow-{os.geteuid()}" / name
