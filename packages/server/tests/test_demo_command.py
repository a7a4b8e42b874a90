"""The demo as a user runs it: a process of its own that starts and kills real workers."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT

pytestmark = pytest.mark.processes

TIMEOUT = 90
COMMAND = [sys.executable, "-W", "error", "-m", "dex_agents_server"]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environment(folder), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def demo_folders(folder: Path) -> list[Path]:
    return list(folder.glob("dex-agents-demo-*"))


def processes_that_mention(text: str) -> list[str]:
    """Command lines of living processes; the demo's workers have its folder in theirs."""
    if Path("/proc/self/cmdline").exists():
        lines = [line for process in Path("/proc").iterdir() if (line := command_line(process))]
    else:
        listing = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True)
        lines = listing.stdout.splitlines()
    return [line for line in lines if text in line]


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:  # no process, or one that ended meanwhile
        return ""


@contextmanager
def running_demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, "demo"],
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return line
    raise AssertionError(f"the demo ended without {text!r}; it printed:\n{seen}")


def test_json_reports_that_every_tool_ran_once(tmp_path: Path) -> None:
    finished = run_command(tmp_path, "demo", "--json")

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stderr == ""
    report = json.loads(finished.stdout)
    assert report.keys() == {"sessions", "ok"}
    assert report["ok"] is True
    first, second = report["sessions"]
    for session in (first, second):
        assert session.keys() == {
            "session_id",
            "final_text",
            "tool_runs",
            "tool_statuses",
            "worker_kills",
            "recovery_ms",
        }
        assert session["tool_runs"] == {"lookup_order": 1, "refund_order": 1}
        assert session["worker_kills"] == 1
        assert len(session["recovery_ms"]) == 1
        assert 0 <= session["recovery_ms"][0] < 1_000
    assert first["tool_statuses"] == ["succeeded", "succeeded"]
    assert "$129.00" in first["final_text"]
    assert second["tool_statuses"] == ["succeeded", "outcome_unknown"]
    assert "did not try it again" in second["final_text"]
    assert demo_folders(tmp_path) == []
    assert processes_that_mention(str(tmp_path)) == []


def test_timeline_tells_the_story(tmp_path: Path) -> None:
    finished = run_command(tmp_path, "demo")

    assert finished.returncode == 0, finished.stdout + finished.stderr
    in_order = [
        "worker 1 runs in process",
        "Refund order 7",
        "may refund_order run?",
        "SIGKILL to worker 1",
        "worker 2 runs in process",
        "approved: refund_order of order 7",
        "refund_order: succeeded",
        "Done. Refunded $129.00 for order 7.",
        "Refund order 12",
        "approved: refund_order of order 12",
        "worker 2 has paid order 12 back",
        "SIGKILL to worker 2",
        "worker 3 runs in process",
        "refund_order: outcome_unknown",
        f"model told {OUTCOME_UNKNOWN_TOOL_RESULT}"[:60],
        "OK: 2 workers killed, every tool ran exactly once",
    ]
    rest = finished.stdout
    for text in in_order:
        assert text in rest, f"{text!r} is missing, or not in its place, in:\n{finished.stdout}"
        rest = rest[rest.index(text) + len(text) :]
    for step_type in ("RunModel", "CallTool", "CallSingleAttemptTool", "RecordToolOutcomeUnknown"):
        assert step_type in finished.stdout
    assert "\x1b" not in finished.stdout


def test_keep_keeps_both_databases(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    finished = run_command(tmp_path, "demo", "--json", "--keep", str(kept))

    assert finished.returncode == 0, finished.stdout + finished.stderr
    with closing(sqlite3.connect(kept / "orders.db")) as connection:
        assert connection.execute("SELECT order_id, COUNT(*) FROM refund GROUP BY order_id").fetchall() == [
            (7, 1),
            (12, 1),
        ]
    with closing(sqlite3.connect(kept / "sessions.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert [(kept / f"worker-{number}.log").read_text() for number in (1, 2, 3)] == ["", "", ""]


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine")
    finished = run_command(tmp_path, "demo", "--json", "--keep", str(tmp_path))

    assert finished.returncode == 1
    assert "is not empty" in finished.stderr
    report = json.loads(finished.stdout)
    assert report["ok"] is False
    assert "is not empty" in report["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


@pytest.mark.parametrize(
    ("number", "exit_code", "moment"),
    [
        pytest.param(signal.SIGINT, 130, "[1/6]", id="ctrl-c-while-a-worker-starts"),
        pytest.param(signal.SIGINT, 130, "worker 1 runs", id="ctrl-c-while-a-worker-runs"),
        pytest.param(signal.SIGTERM, 143, "has paid order 12 back", id="terminated-inside-the-refund"),
    ],
)
def test_an_interrupted_demo_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, exit_code: int, moment: str
) -> None:
    with running_demo(tmp_path) as process:
        read_until(process, moment)
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT)

        assert process.returncode == exit_code, errors
        assert number.name in errors
        assert "Traceback" not in errors
    assert processes_that_mention(str(tmp_path)) == []
    assert demo_folders(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for the end of another process's child")
def test_the_worker_ends_when_the_demo_is_killed(tmp_path: Path) -> None:
    with running_demo(tmp_path) as process:
        worker = int(read_until(process, "worker 1 runs in process").split()[-1])
        descriptor = os.pidfd_open(worker)
        try:
            process.kill()
            ended, _, _ = select.select([descriptor], [], [], TIMEOUT)
            assert ended, f"worker {worker} outlives the demo"
        finally:
            os.close(descriptor)


def test_version(tmp_path: Path) -> None:
    finished = run_command(tmp_path, "--version")
    assert finished.returncode == 0
    assert finished.stdout.startswith("dex-agents ")
