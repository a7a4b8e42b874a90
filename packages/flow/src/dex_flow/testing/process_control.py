"""Starts Python programs as processes of a test, waits for what they print, and stops them in every rude way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dex_flow.testing.fork_server import ForkedProgram, ForkServer

__all__ = ["ProcessFailedError", "ProgramProcess", "ProgramProcesses"]

DEFAULT_TIMEOUT = 30.0


class ProcessFailedError(AssertionError):
    """A program did not do what the test waits for; the message carries everything that it printed."""


class ProgramProcess:
    """One running program. Its standard input is a pipe that closes when the test's process ends.

    Args:
        program: A Python file.
        arguments: Its command line.
        environment: Variables added to this process's own; with a fork server, that has its own instead.
        fork_server: Forks the program instead of a cold start. Such a program cannot be frozen.
    """

    def __init__(
        self,
        program: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        *,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.name = program.name
        self._process: subprocess.Popen[bytes] | ForkedProgram = (
            _start_cold(program, arguments, environment)
            if fork_server is None
            else fork_server.start_program(program, arguments)
        )
        self._lines: list[str] = []
        self._is_output_closed = False
        self._news = threading.Condition()
        self._output_reader = threading.Thread(target=self._read_output, name=f"output of {self.name}", daemon=True)
        self._output_reader.start()

    @property
    def process_id(self) -> int:
        """The operating system's ID."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; a frozen process runs."""
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """Everything it printed so far, standard error included."""
        with self._news:
            return "\n".join(self._lines)

    def count_lines(self, text: str) -> int:
        """How many printed lines contain `text`."""
        with self._news:
            return sum(text in line for line in self._lines)

    def wait_for_line(self, text: str, *, timeout: float = DEFAULT_TIMEOUT) -> str:
        """The first printed line that contains `text`.

        Raises:
            ProcessFailedError: The program ended without it, or `timeout` seconds passed.
        """
        deadline = time.monotonic() + timeout
        seen = 0
        with self._news:
            while True:
                for line in self._lines[seen:]:
                    if text in line:
                        return line
                seen = len(self._lines)
                if self._is_output_closed:
                    raise ProcessFailedError(self._explain(f"ended without printing {text!r}"))
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise ProcessFailedError(self._explain(f"did not print {text!r} within {timeout:g} s"))
                self._news.wait(remaining)

    def wait_for_end(self, *, timeout: float = DEFAULT_TIMEOUT) -> int:
        """The exit code (negative: the signal that ended it).

        Raises:
            ProcessFailedError: It still runs after `timeout` seconds.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProcessFailedError(self._explain(f"did not end within {timeout:g} s")) from None
        self._output_reader.join(timeout)
        return code

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self.wait_for_end()

    def stop(self, *, timeout: float = DEFAULT_TIMEOUT) -> int:
        """SIGTERM, and wait for the orderly end; returns the exit code."""
        self._process.terminate()
        return self.wait_for_end(timeout=timeout)

    def freeze(self, *, timeout: float = DEFAULT_TIMEOUT) -> None:
        """SIGSTOP, and wait until it has stopped.

        Raises:
            ProcessFailedError: It did not stop within `timeout` seconds, or has ended.
        """
        self._process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + timeout
        while os.waitid(os.P_PID, self.process_id, os.WSTOPPED | os.WNOHANG) is None:
            if time.monotonic() > deadline or not self.is_running:
                raise ProcessFailedError(self._explain("could not be frozen"))
            time.sleep(0.001)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def clean_up(self) -> None:
        """End it in whatever state it is, and free what it holds in this process."""
        if self.is_running:
            self.thaw()
            self._process.kill()
        self._process.wait()
        self._output_reader.join(DEFAULT_TIMEOUT)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._lines.append(line.decode(errors="replace").rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._is_output_closed = True
            self._news.notify_all()

    def _explain(self, what: str) -> str:
        printed = "\n".join(self._lines) or "(nothing)"
        return f"{self.name} (process {self.process_id}) {what}; it printed:\n{printed}"


def _start_cold(
    program: Path, arguments: Sequence[str], environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-u", os.fspath(program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        start_new_session=True,  # an interrupt at the terminal reaches the test alone, which then cleans up
    )


class ProgramProcesses:
    """The processes of one test: a context manager that leaves none behind, however the test ends."""

    def __init__(self) -> None:
        self._processes: list[ProgramProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.clean_up()

    def start(
        self,
        program: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        fork_server: ForkServer | None = None,
        ready_line: str | None = "ready",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> ProgramProcess:
        """Start `program`, and wait until it prints `ready_line` (None does not wait)."""
        process = ProgramProcess(program, arguments, environment, fork_server=fork_server)
        self._processes.append(process)
        if ready_line is not None:
            process.wait_for_line(ready_line, timeout=timeout)
        return process
