from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dex_flow.embedded.worker_liveness import WorkerLock, is_worker_alive, remove_dead_worker
from dex_flow.errors import StorageError

WORKER = """
import sys
from pathlib import Path
from dex_flow.embedded.worker_liveness import WorkerLock
lock = WorkerLock.acquire(Path(sys.argv[1]), int(sys.argv[2]))
print("alive", flush=True)
sys.stdin.read()
"""

FORKING_WORKER = """
import os, sys
from pathlib import Path
from dex_flow.embedded.worker_liveness import WorkerLock, is_worker_alive
lock = WorkerLock.acquire(Path(sys.argv[1]), 7)
child = os.fork()
if child == 0:
    lock.close()
    os.write(1, b"%r\\n" % is_worker_alive(Path(sys.argv[1]), 7))  # in one piece, because both write
    sys.stdin.read()
    os._exit(0)
os.write(1, b"%d\\n" % child)
sys.stdin.read()
"""

PROBE = """
import sys
from pathlib import Path
from dex_flow.embedded.worker_liveness import is_worker_alive
print(is_worker_alive(Path(sys.argv[1]), int(sys.argv[2])))
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


def ask_another_process(directory: Path, key: int) -> bool:
    output = subprocess.run(
        [sys.executable, "-c", PROBE, str(directory), str(key)], check=True, capture_output=True, text=True
    ).stdout
    return {"True": True, "False": False}[output.strip()]


def wait_for_death(directory: Path, key: int) -> float:
    since = time.monotonic()
    while is_worker_alive(directory, key):
        assert time.monotonic() - since < 30
        time.sleep(0.005)
    return time.monotonic() - since


@pytest.mark.processes
def test_asking_about_the_own_worker_does_not_drop_its_lock(tmp_path: Path) -> None:
    lock = WorkerLock.acquire(tmp_path, 1)
    assert is_worker_alive(tmp_path, 1)
    assert not remove_dead_worker(tmp_path, 1)
    with pytest.raises(StorageError, match="in this process already"):
        WorkerLock.acquire(tmp_path, 1)
    assert ask_another_process(tmp_path, 1)
    lock.close()
    assert not is_worker_alive(tmp_path, 1)
    assert not ask_another_process(tmp_path, 1)


def test_a_closed_worker_leaves_no_file_and_its_key_can_be_used_again(tmp_path: Path) -> None:
    directory = tmp_path / "a.db.workers"
    for _ in range(2):
        lock = WorkerLock.acquire(directory, 3)
        assert [path.name for path in directory.iterdir()] == ["3"]
        lock.close()
        lock.close()
        assert list(directory.iterdir()) == []


def test_a_worker_that_never_was_is_not_alive(tmp_path: Path) -> None:
    assert not is_worker_alive(tmp_path, 5)
    assert not is_worker_alive(tmp_path / "missing", 5)
    assert not remove_dead_worker(tmp_path, 5)


def test_a_directory_that_cannot_be_created_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        WorkerLock.acquire(tmp_path / "missing" / "workers", 1)


@pytest.mark.processes
def test_a_key_belongs_to_one_living_process(tmp_path: Path) -> None:
    process = start(WORKER, tmp_path, 2)
    try:
        assert read_line(process) == "alive"
        assert is_worker_alive(tmp_path, 2)
        assert not remove_dead_worker(tmp_path, 2)
        with pytest.raises(StorageError, match="in another process already"):
            WorkerLock.acquire(tmp_path, 2)
    finally:
        end(process)
    assert not is_worker_alive(tmp_path, 2)
    assert (tmp_path / "2").exists()
    assert remove_dead_worker(tmp_path, 2)
    assert not (tmp_path / "2").exists()


@pytest.mark.processes
def test_a_killed_worker_is_dead_although_its_forked_child_lives(tmp_path: Path) -> None:
    process = start(FORKING_WORKER, tmp_path)
    lines = {read_line(process), read_line(process)}
    assert "True" in lines  # the child sees its parent alive and cannot give its lock away
    (child,) = (int(line) for line in lines - {"True"})
    try:
        assert is_worker_alive(tmp_path, 7)
        os.kill(process.pid, signal.SIGKILL)
        assert wait_for_death(tmp_path, 7) < 10
        os.kill(child, 0)
        assert remove_dead_worker(tmp_path, 7)
    finally:
        os.kill(child, signal.SIGKILL)
        end(process)


@pytest.mark.processes
def test_many_askers_never_mistake_each_other_for_the_worker(tmp_path: Path) -> None:
    end_of_worker = start(WORKER, tmp_path, 9)
    assert read_line(end_of_worker) == "alive"
    end(end_of_worker)
    script = PROBE.replace("print(", "print(any(").replace("[2])))", "[2])) for _ in range(3000)))")
    askers = [start(script, tmp_path, 9) for _ in range(3)]
    assert [asker.communicate(timeout=60)[0].strip() for asker in askers] == ["False"] * 3
