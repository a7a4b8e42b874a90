from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dex_flow.embedded.wake_up import WakeUpReceiver, WakeUpSender, locate_wake_up_folder
from dex_flow.errors import StorageError

SENDER = """
import sys
from pathlib import Path
from dex_flow.embedded.wake_up import WakeUpSender
sender = WakeUpSender(Path(sys.argv[1]))
for _ in sys.stdin:
    sender.notify()
    print("sent", flush=True)
"""

RECEIVER = """
import asyncio, sys
from pathlib import Path
from dex_flow.embedded.wake_up import WakeUpReceiver
async def main():
    woken = asyncio.Event()
    receiver = WakeUpReceiver(Path(sys.argv[1]), woken.set)
    print(receiver.path, flush=True)
    if sys.argv[2] == "once":
        await woken.wait()
        receiver.close()
        print("woken", flush=True)
    else:
        import time
        time.sleep(1000)
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    return directory


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send_line(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.mark.processes
def test_a_receiver_is_woken_by_another_process_each_time(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    process = start(SENDER, database)

    async def receive() -> None:
        woken = asyncio.Event()
        receiver = WakeUpReceiver(database, woken.set)
        try:
            for _ in range(5):
                send_line(process)
                await asyncio.wait_for(woken.wait(), 30)
                woken.clear()
        finally:
            receiver.close()
        assert not receiver.path.parent.exists()

    try:
        asyncio.run(receive())
    finally:
        end(process)


@pytest.mark.processes
def test_a_sender_finds_receivers_that_start_later_and_wakes_all(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    sender = WakeUpSender(database)
    sender.notify()
    receivers = [start(RECEIVER, database, "once") for _ in range(2)]
    try:
        for process in receivers:
            assert read_line(process).endswith(".sock")
        sender.notify()
        assert [read_line(process) for process in receivers] == ["woken", "woken"]
    finally:
        for process in receivers:
            end(process)
        sender.close()


@pytest.mark.processes
def test_a_receiver_is_found_although_the_time_stamp_of_the_folder_did_not_move(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    folder = locate_wake_up_folder(database)
    just_now = time.time_ns() + 3_600_000_000_000  # far enough ahead to stay fresh however slow this test is
    os.utime(folder, ns=(just_now, just_now))
    sender = WakeUpSender(database)
    sender.notify()
    process = start(RECEIVER, database, "once")
    try:
        assert read_line(process).endswith(".sock")
        os.utime(folder, ns=(just_now, just_now))
        sender.notify()
        assert read_line(process) == "woken"
    finally:
        end(process)
        sender.close()


@pytest.mark.processes
def test_the_socket_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    process = start(RECEIVER, database, "never")
    path = Path(read_line(process))
    end(process)
    assert path.exists()
    sender = WakeUpSender(database)
    sender.notify()
    sender.close()
    assert not path.exists()


@pytest.mark.processes
def test_a_starting_receiver_removes_the_sockets_of_killed_processes_also_of_other_databases(tmp_path: Path) -> None:
    dead, living, young = (start(RECEIVER, tmp_path / f"{name}.db", "for ever") for name in ("dead", "living", "young"))
    try:
        dead_path, living_path, young_path = (Path(read_line(process)) for process in (dead, living, young))
        end(dead)
        end(young)
        an_hour_ago = time.time() - 3_600
        for path in (dead_path, living_path):
            os.utime(path, (an_hour_ago, an_hour_ago))

        async def scenario() -> None:
            WakeUpReceiver(tmp_path / "other.db", lambda: None).close()

        asyncio.run(scenario())
        assert not dead_path.parent.exists()
        assert living_path.exists()
        assert young_path.exists(), "it might be one that is just being made"
    finally:
        end(living)


def test_a_starting_receiver_removes_old_empty_folders(tmp_path: Path) -> None:
    old, young = (locate_wake_up_folder(tmp_path / f"{name}.db") for name in ("old", "young"))
    an_hour_ago = time.time() - 3_600
    os.utime(old, (an_hour_ago, an_hour_ago))

    async def scenario() -> None:
        WakeUpReceiver(tmp_path / "other.db", lambda: None).close()

    asyncio.run(scenario())
    assert not old.exists()
    assert young.exists(), "somebody may be about to make a socket in it"
    young.rmdir()


def test_a_receiver_that_does_not_read_never_blocks_the_sender(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    process = start(RECEIVER, database, "never")
    sender = WakeUpSender(database)
    try:
        assert read_line(process).endswith(".sock")
        for _ in range(2_000):
            sender.notify()
    finally:
        end(process)
        sender.close()


def test_a_process_does_not_wake_itself(tmp_path: Path) -> None:
    database = tmp_path / "a.db"

    async def receive() -> int:
        calls: list[None] = []
        receiver = WakeUpReceiver(database, lambda: calls.append(None))
        sender = WakeUpSender(database)
        sender.notify()
        await asyncio.sleep(0)  # one round of the loop reads every socket that is ready
        await asyncio.sleep(0)
        sender.close()
        receiver.close()
        receiver.close()
        return len(calls)

    assert asyncio.run(receive()) == 0


@pytest.mark.processes
def test_several_wake_ups_may_come_as_one_call(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    process = start(SENDER, database)

    async def receive() -> int:
        calls: list[None] = []
        woken = asyncio.Event()

        def count() -> None:
            calls.append(None)
            woken.set()

        receiver = WakeUpReceiver(database, count)
        for _ in range(3):
            send_line(process)
            assert read_line(process) == "sent"  # the loop does not run meanwhile
        await woken.wait()
        receiver.close()
        return len(calls)

    try:
        assert asyncio.run(receive()) == 1
    finally:
        end(process)


def test_paths_of_one_file_share_a_folder_that_only_the_user_may_enter(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    folder = locate_wake_up_folder(tmp_path / "real" / "a.db")
    assert folder == locate_wake_up_folder(tmp_path / "link" / "a.db")
    assert folder != locate_wake_up_folder(tmp_path / "real" / "b.db")
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]


def test_a_folder_that_the_last_receiver_removed_comes_back_with_the_next_one(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    sender = WakeUpSender(database)

    async def receive() -> Path:
        receiver = WakeUpReceiver(database, lambda: None)
        receiver.close()
        return receiver.path.parent

    for _ in range(2):
        folder = asyncio.run(receive())
        assert not folder.exists()
        sender.notify()
    sender.close()


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = locate_wake_up_folder(tmp_path / "a.db")
    folder.chmod(0o755)
    with pytest.raises(StorageError, match="only this user may enter"):
        locate_wake_up_folder(tmp_path / "a.db")


def test_a_long_temporary_directory_does_not_break_the_socket_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / ("x" * 120)
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)

    async def receive() -> None:
        receiver = WakeUpReceiver(tmp_path / "a.db", lambda: None)
        assert len(os.fsencode(receiver.path)) <= 103
        receiver.close()

    asyncio.run(receive())
