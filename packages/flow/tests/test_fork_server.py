"""A forked program is a process of its own: its streams, exit code, locks and death are those of a cold start."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dex_flow.testing import ProcessFailedError, ProgramProcess, ProgramProcesses
from dex_flow.testing.fork_server import ForkServer

pytestmark = pytest.mark.processes

PROGRAM = """
import atexit, fcntl, os, signal, subprocess, sys, threading
print("imported", "decimal" in sys.modules, "as", __name__, "with", sys.argv[1:])
print("session", os.getsid(0) == os.getpid(), "threads", threading.active_count())
open_descriptors = []
for descriptor in range(64):
    try:
        os.fstat(descriptor)
    except OSError:
        continue
    open_descriptors.append(descriptor)
print("descriptors", open_descriptors)
if "lock" in sys.argv:
    file = open(sys.argv[-1], "w")
    fcntl.lockf(file, fcntl.LOCK_EX)
print("ready")
atexit.register(print, "orderly end")
word = sys.stdin.readline().strip()
if word == "fail":
    raise ValueError("no such word")
if word == "child":
    print("child returned", subprocess.run([sys.executable, "-c", "raise SystemExit(5)"]).returncode)
sys.exit(int(word or 9))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(["decimal"]) as started:
        yield started


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "forked_program.py"
    path.write_text(PROGRAM)
    return path


def say(process: ProgramProcess, word: str) -> None:
    standard_input = process._process.stdin
    assert standard_input is not None
    standard_input.write(f"{word}\n".encode())


def test_it_has_the_modules_its_arguments_and_nothing_else(server: ForkServer, program: Path) -> None:
    with ProgramProcesses() as processes:
        process = processes.start(program, "one", "two words", fork_server=server)
        assert process.output.splitlines() == [
            "imported True as __main__ with ['one', 'two words']",
            "session True threads 1",
            "descriptors [0, 1, 2]",
            "ready",
        ]


@pytest.mark.parametrize("code", [0, 3])
def test_its_exit_code_is_told_after_an_orderly_end(server: ForkServer, program: Path, code: int) -> None:
    with ProgramProcesses() as processes:
        process = processes.start(program, fork_server=server)
        assert process.is_running
        say(process, str(code))
        assert process.wait_for_end() == code
        assert not process.is_running
        assert process.output.endswith("orderly end")


def test_an_exception_is_printed_and_ends_it(server: ForkServer, program: Path) -> None:
    with ProgramProcesses() as processes:
        process = processes.start(program, fork_server=server)
        say(process, "fail")
        assert process.wait_for_end() == 1
        assert "ValueError: no such word" in process.output
        with pytest.raises(ProcessFailedError, match="no such word"):
            process.wait_for_line("never printed")


def test_a_kill_ends_it_at_once_and_frees_its_locks(server: ForkServer, program: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    with ProgramProcesses() as processes, locked.open("w") as file:
        process = processes.start(program, "lock", str(locked), fork_server=server)
        with pytest.raises(OSError) as refused:  # noqa: PT011 -- the number is checked
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert refused.value.errno in (errno.EACCES, errno.EAGAIN)
        process.kill()
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert process.wait_for_end() == -signal.SIGKILL
        assert "orderly end" not in process.output


def test_a_signal_after_the_end_reaches_nobody(server: ForkServer, program: Path) -> None:
    with ProgramProcesses() as processes:
        process = processes.start(program, fork_server=server)
        os.kill(process.process_id, signal.SIGTERM)
        assert process.stop() == -signal.SIGTERM
        assert process.stop() == -signal.SIGTERM


def test_it_can_wait_for_children_of_its_own(server: ForkServer, program: Path) -> None:
    with ProgramProcesses() as processes:
        process = processes.start(program, fork_server=server)
        say(process, "child")
        process.wait_for_line("child returned 5")


def test_it_learns_when_the_test_is_gone(server: ForkServer, program: Path) -> None:
    with ProgramProcesses() as processes:
        process = processes.start(program, fork_server=server)
        standard_input = process._process.stdin
        assert standard_input is not None
        standard_input.close()
        assert process.wait_for_end() == 9


def test_several_threads_start_wait_and_look_at_the_same_time(server: ForkServer, program: Path) -> None:
    with ProgramProcesses() as processes:
        started: list[ProgramProcess] = []

        def start() -> None:
            started.append(processes.start(program, fork_server=server))

        starting = [threading.Thread(target=start) for _ in range(8)]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        assert len({process.process_id for process in started}) == 8

        codes: list[int] = []
        waiting = [
            threading.Thread(target=lambda process=process: codes.append(process.wait_for_end()))
            for process in started
            for _ in range(2)
        ]
        for thread in waiting:
            thread.start()
        assert all(process.is_running for process in started)
        for number, process in enumerate(started):
            say(process, str(number))
        for thread in waiting:
            thread.join()
        assert sorted(codes) == sorted([*range(8), *range(8)])


def test_waiting_ends_with_its_time(server: ForkServer, program: Path) -> None:
    with ProgramProcesses() as processes:
        process = processes.start(program, fork_server=server)
        with pytest.raises(subprocess.TimeoutExpired):
            process._process.wait(0.01)
        with pytest.raises(ProcessFailedError, match="did not end within"):
            process.wait_for_end(timeout=0.01)


def test_a_server_that_cannot_import_says_so(program: Path) -> None:
    with (
        ForkServer(["no_such_module"]) as broken,
        pytest.raises(RuntimeError, match="No module named 'no_such_module'"),
    ):
        broken.start_program(program)


def test_a_server_refuses_modules_that_start_threads(program: Path, tmp_path: Path) -> None:
    (tmp_path / "threads_at_import.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    with (
        ForkServer(["threads_at_import"], {"PYTHONPATH": str(tmp_path)}) as broken,
        pytest.raises(RuntimeError, match="a fork needs a process without threads; threads_at_import"),
    ):
        broken.start_program(program)


def test_programs_go_on_without_their_server(program: Path) -> None:
    with ProgramProcesses() as processes:
        with ForkServer(["decimal"]) as server:
            process = processes.start(program, fork_server=server)
        assert process.is_running
        say(process, "3")
        assert process.wait_for_end() == 3
