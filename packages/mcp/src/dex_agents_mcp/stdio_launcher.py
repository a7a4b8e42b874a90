"""Runs an MCP server so that it dies with the worker. Started as a program of its own, with the standard library alone.

    python -I -S stdio_launcher.py <process ID of the worker> <command> [argument ...]

The SDK starts it in a process group of its own. The server inherits its streams; the launcher waits for it and ends as
it ends. When the worker is gone, whatever killed it, the launcher kills the whole group.
"""

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.1


def _kill_group(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


def _is_watched_by_the_kernel() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGUSR1), 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _start_server(command: list[str]) -> int:
    server = os.fork()
    if server:
        return server
    # Python ignores SIGPIPE, and an ignored signal stays ignored in the server.
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]!r}: {error.strerror}\n".encode())
    os._exit(127)


def _main() -> None:
    worker = int(sys.argv[1])
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    signal.signal(signal.SIGUSR1, _kill_group)
    # The server decides what a SIGTERM of the group does; the launcher ends when the server has.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    is_watched = _is_watched_by_the_kernel()
    if os.getppid() != worker:
        return
    server = _start_server(sys.argv[2:])
    # The worker must see the server close its streams.
    os.close(0)
    os.close(1)
    while True:
        ended, status = os.waitpid(server, 0 if is_watched else os.WNOHANG)
        if ended:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
        if os.getppid() != worker:
            _kill_group()
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    _main()
