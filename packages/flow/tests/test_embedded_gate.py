from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dex_flow.embedded.gate import CommitGate

HOLDER = """
import os, sys
from dex_flow.embedded.gate import CommitGate
gate = CommitGate(sys.argv[1])
with gate.hold():
    print("held", flush=True)
    sys.stdin.read()
"""

FORKING_HOLDER = """
import os, sys
from dex_flow.embedded.gate import CommitGate
gate = CommitGate(sys.argv[1])
with gate.hold():
    child = os.fork()
    if child == 0:
        sys.stdin.read()
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
"""

COUNTER = """
import sys
from dex_flow.embedded.gate import CommitGate
gate = CommitGate(sys.argv[1])
for _ in range(300):
    with gate.hold():
        with open(sys.argv[2]) as file:
            value = int(file.read())
        with open(sys.argv[2], "w") as file:
            file.write(str(value + 1))
"""

TWO_GATES = """
import sys, threading
from dex_flow.embedded.gate import CommitGate
failures = []
def use(path):
    gate = CommitGate(path)
    try:
        for _ in range(2000):
            with gate.hold():
                sum(range(2000))
    except OSError as error:
        failures.append(error)
threads = [threading.Thread(target=use, args=(path,)) for path in sys.argv[1:]]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(f"{failures}" if failures else 0)
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def hold_in_thread(gate: CommitGate) -> tuple[threading.Thread, threading.Event]:
    entered = threading.Event()

    def enter() -> None:
        with gate.hold():
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    return thread, entered


def test_a_gate_can_be_held_again_and_again_and_closed_twice(tmp_path: Path) -> None:
    gate = CommitGate(tmp_path / "a.gate")
    for _ in range(3):
        with gate.hold():
            pass
    gate.close()
    gate.close()


def test_an_exception_frees_the_gate(tmp_path: Path) -> None:
    gate = CommitGate(tmp_path / "a.gate")
    with pytest.raises(KeyError), gate.hold():
        raise KeyError("inside")
    process = start(HOLDER, tmp_path / "a.gate")
    try:
        assert read_line(process) == "held"
    finally:
        end(process)
        gate.close()


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        CommitGate(tmp_path / "missing" / "a.gate")


@pytest.mark.processes
def test_processes_exclude_each_other(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [start(COUNTER, tmp_path / "a.gate", counter) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    for process in processes:
        process.communicate()
    assert counter.read_text() == "900"


@pytest.mark.processes
def test_a_waiter_names_the_holder_and_gets_the_gate_when_the_holder_is_killed(
    tmp_path: Path,
) -> None:
    messages: list[str] = []
    reported = threading.Event()

    class Signal(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            reported.set()

    handler = Signal()
    logging.getLogger("dex_flow.embedded").addHandler(handler)
    process = start(HOLDER, tmp_path / "a.gate")
    gate = CommitGate(tmp_path / "a.gate", report_after=0.1)
    try:
        assert read_line(process) == "held"
        thread, entered = hold_in_thread(gate)
        assert reported.wait(30)
        assert not entered.is_set()
        assert f"process {process.pid}" in messages[0]
        assert str(tmp_path / "a.gate") in messages[0]
        os.kill(process.pid, signal.SIGKILL)
        assert entered.wait(30)
        thread.join()
    finally:
        logging.getLogger("dex_flow.embedded").removeHandler(handler)
        end(process)
        gate.close()


@pytest.mark.processes
def test_a_forked_child_does_not_keep_the_gate_of_its_killed_parent(tmp_path: Path) -> None:
    process = start(FORKING_HOLDER, tmp_path / "a.gate")
    gate = CommitGate(tmp_path / "a.gate")
    child = int(read_line(process))
    try:
        thread, entered = hold_in_thread(gate)
        os.kill(process.pid, signal.SIGKILL)
        assert entered.wait(30)
        os.kill(child, 0)  # it still lives
        thread.join()
    finally:
        os.kill(child, signal.SIGKILL)
        end(process)
        gate.close()


@pytest.mark.processes
def test_two_gates_in_two_processes_are_not_taken_for_a_deadlock(tmp_path: Path) -> None:
    processes = [start(TWO_GATES, tmp_path / "a.gate", tmp_path / "b.gate") for _ in range(2)]
    assert [process.wait(100) for process in processes] == [0, 0]
    for process in processes:
        process.communicate()
