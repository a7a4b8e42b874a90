"""Starts programs in milliseconds: forks of a process that has imported already what they need.

A forked program is a process like any other: a child in a session of its own, with its own files, locks, threads and
event loop, none of which exist before the fork, and a kill ends it as it ends any process. What differs from a cold
start: imports are done, and the programs of one server share the seed of `hash(str)`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

__all__ = ["ForkServer", "ForkedProgram"]

_PROGRAM = Path(__file__).with_name("fork_server_program.py")


class ForkedProgram:
    """A forked program, with the part of `subprocess.Popen` that the tests' process control uses."""

    def __init__(self, name: str, connection: int, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self._name = name
        self._exit_code: int | None = None
        self._lock = threading.Lock()
        # Open as long as this object: a thread may wait for the code while another one reads it.
        self._connection = connection
        weakref.finalize(self, os.close, connection)

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        return self._read_exit_code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs after `timeout` seconds.
        """
        ends_at = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            code = self._read_exit_code(remaining)
            if code is not None:
                return code
            if timeout is not None and remaining == 0.0:
                raise subprocess.TimeoutExpired(self._name, timeout)

    def send_signal(self, sig: int) -> None:
        """Send a signal; nothing when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _read_exit_code(self, timeout: float | None) -> int | None:
        if self._exit_code is None:
            poll = select.poll()
            poll.register(self._connection, select.POLLIN)
            if poll.poll(None if timeout is None else timeout * 1_000):
                with self._lock:
                    if self._exit_code is None:
                        self._exit_code = int(_read_line(self._connection))
                        os.write(self._connection, b"\0")  # the process ID may be given to another process now
        return self._exit_code


class ForkServer:
    """A process that has imported modules, and forks programs; a context manager that ends it.

    Programs that run already go on without it. Several threads may start programs.

    Args:
        modules: What it imports. Importing must start no thread and open nothing.
        environment: Variables added to this process's own.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the server
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-u", os.fspath(_PROGRAM), str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # an interrupt at the terminal reaches the test alone, which then cleans up
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start_program(self, program: Path, arguments: Sequence[str] = ()) -> ForkedProgram:
        """Start a program, with pipes as standard input and output; standard error is part of the output.

        Raises:
            RuntimeError: The server has ended; carries what it printed.
        """
        command = json.dumps([os.fspath(program), *arguments]).encode()
        with contextlib.ExitStack() as on_failure, contextlib.ExitStack() as sent:
            connection, theirs = socket.socketpair()
            on_failure.enter_context(connection)
            sent.enter_context(theirs)
            input_end, output_end, stdin, stdout = self._open_pipes(sent, on_failure)
            try:
                with self._lock:
                    socket.send_fds(self._control, [b"\0"], [theirs.fileno()])
                theirs.close()
                socket.send_fds(connection, [command], [input_end, output_end])
                process_id = int(_read_line(connection.fileno()))
            except OSError as error:
                raise RuntimeError(f"the fork server ended; it printed:\n{self._read_printed()}") from error
            on_failure.pop_all()
        return ForkedProgram(program.name, connection.detach(), process_id, stdin, stdout)

    def close(self) -> None:
        """End the server."""
        self._control.close()
        self._process.wait()
        self._printed.close()

    @staticmethod
    def _open_pipes(
        sent: contextlib.ExitStack, on_failure: contextlib.ExitStack
    ) -> tuple[int, int, IO[bytes], IO[bytes]]:
        """What the program reads and writes, and this process's ends of it."""
        input_end, stdin = os.pipe()
        sent.callback(os.close, input_end)
        stdout, output_end = os.pipe()
        sent.callback(os.close, output_end)
        ends = (os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb"))
        for end in ends:
            on_failure.enter_context(end)
        return input_end, output_end, *ends

    def _read_printed(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._printed.seek(0)
        return self._printed.read().decode(errors="replace")


def _read_line(descriptor: int) -> str:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            raise ConnectionError("the fork server's process ended")
        line += byte
    return line.decode()
