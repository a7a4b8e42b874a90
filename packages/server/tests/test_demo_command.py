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
from typing import Any

import pytest

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.scenarios import SCENARIOS, ScenarioName

pytestmark = pytest.mark.processes

TIMEOUT = 90
COMMAND = [sys.executable, "-W", "error", "-m", "dex_agents_server"]


def environment(folder: Path, columns: int = 200) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "COLUMNS": str(columns), "PYTHONUNBUFFERED": "1"}


def run_command(folder: Path, *arguments: str, columns: int = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(folder, columns),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
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
def running_demo(folder: Path, scenario: str = "refund") -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, "demo", "--scenario", scenario],
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


def run_scenario_as_json(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """The sessions of a run that ends well and leaves no process and no folder of its own."""
    finished = run_command(folder, "demo", "--json", *arguments)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stderr == ""
    report = json.loads(finished.stdout)
    assert report.keys() == {"sessions", "ok"}
    assert report["ok"] is True
    sessions: list[dict[str, Any]] = report["sessions"]
    for session in sessions:
        assert session.keys() == {
            "session_id",
            "final_text",
            "tool_runs",
            "tool_statuses",
            "worker_kills",
            "recovery_ms",
        }
        assert session["worker_kills"] == len(session["recovery_ms"]) == 1
        assert 0 <= session["recovery_ms"][0] < 1_000
    assert demo_folders(folder) == []
    assert processes_that_mention(str(folder)) == []
    return sessions


def test_json_of_the_refund_whose_databases_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    first, second = run_scenario_as_json(tmp_path, "--keep", str(kept))

    assert first["tool_runs"] == second["tool_runs"] == {"lookup_order": 1, "refund_order": 1}
    assert first["tool_statuses"] == ["succeeded", "succeeded"]
    assert "$129.00" in first["final_text"]
    assert second["tool_statuses"] == ["succeeded", "outcome_unknown"]
    assert "did not try it again" in second["final_text"]
    with closing(sqlite3.connect(kept / "orders.db")) as connection:
        assert connection.execute("SELECT order_id, COUNT(*) FROM refund GROUP BY order_id").fetchall() == [
            (7, 1),
            (12, 1),
        ]
    with closing(sqlite3.connect(kept / "sessions.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert [(kept / f"worker-{number}.log").read_text() for number in (1, 2, 3)] == ["", "", ""]


def test_json_of_the_steered_turn(tmp_path: Path) -> None:
    [session] = run_scenario_as_json(tmp_path, "--scenario", "steer")

    assert session["tool_runs"] == {"lookup_order": 1}
    assert session["tool_statuses"] == ["succeeded", "rejected"]
    assert session["final_text"] == "Nothing was refunded. You paid $129.00 for order 7."


def test_json_of_the_cancelled_turns(tmp_path: Path) -> None:
    answer, refund = run_scenario_as_json(tmp_path, "--scenario", "cancel")

    assert answer["tool_runs"] == {}
    assert answer["tool_statuses"] == []
    assert answer["final_text"] == "Brush them, let them dry slowly, and wax them twice a year."
    assert refund["tool_runs"] == {"lookup_order": 1, "refund_order": 1}
    assert refund["tool_statuses"] == ["succeeded", "succeeded"]
    assert refund["final_text"] == "Yes. Refunded $89.50 for order 12."


def test_json_of_the_question(tmp_path: Path) -> None:
    [session] = run_scenario_as_json(tmp_path, "--scenario", "question")

    assert session["tool_runs"] == {"lookup_order": 1, "refund_order": 1}
    assert session["tool_statuses"] == ["succeeded", "succeeded", "succeeded"]
    assert session["final_text"] == "As you chose: Refunded $129.00 for order 7."


def test_json_of_the_wait(tmp_path: Path) -> None:
    [session] = run_scenario_as_json(tmp_path, "--scenario", "wait")

    assert session["tool_runs"] == {"lookup_order": 1}
    assert session["tool_statuses"] == ["succeeded", "succeeded"]
    assert session["final_text"] == "You are welcome."


def assert_in_order(printed: str, texts: list[str]) -> None:
    rest = printed
    for text in texts:
        assert text in rest, f"{text!r} is missing, or not in its place, in:\n{printed}"
        rest = rest[rest.index(text) + len(text) :]


def test_timeline_tells_the_story(tmp_path: Path) -> None:
    finished = run_command(tmp_path, "demo")

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert_in_order(
        finished.stdout,
        [
            "Watch: ",
            "worker 1 runs in process",
            "Refund order 7",
            "step       StartAgentSession",
            "turn_started",
            "step       RunModel",
            "model says Let me look at order 7.",
            "may refund_order run?",
            "SIGKILL to worker 1",
            "worker 2 runs in process",
            "approved: refund_order of order 7",
            "CallSingleAttemptTool",
            "refund_order: succeeded",
            "Done. Refunded $129.00 for order 7.",
            "Refund order 12",
            "approved: refund_order of order 12",
            "worker 2 has paid order 12 back",
            "SIGKILL to worker 2",
            "worker 3 runs in process",
            "CallSingleAttemptTool    attempt 1 lost",
            "RecordToolOutcomeUnknown",
            "refund_order: outcome_unknown",
            f"model told {OUTCOME_UNKNOWN_TOOL_RESULT}"[:60],
            "OK: 2 workers killed",
            "Next",
            "dex-agents demo --scenario steer",
        ],
    )
    assert "\x1b" not in finished.stdout
    assert demo_folders(tmp_path) == []
    assert processes_that_mention(str(tmp_path)) == []


def test_a_narrow_timeline_stays_readable(tmp_path: Path) -> None:
    finished = run_command(tmp_path, "demo", "--scenario", "cancel", columns=60)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert max(len(line) for line in finished.stdout.splitlines()) <= 60
    assert_in_order(
        finished.stdout,
        [
            "model      streams 'The history ",
            "user       stops the turn",
            "step       RunModel attempt 1 cancelled",
            "the coroutine of the model call",
            "event      turn_cancelled the user stopped it",
            "SIGKILL to worker 1",
            "user       'Shorter, please'",
            "turn takes 'Shorter, please'",
            "worker 2 runs",
            "has paid order 12 back",
            "user       stops the turn",
            "event      tool_call_finished refund_order:",
            "about to end the stopped",
            "SIGKILL to worker 2",
            "step       ApplyTurnControl attempt 1 lost",
            "step       ApplyTurnControl attempt 2",
            "turn_cancelled",
            "Did I get my money?",
            "lookup_order  ran 1 x  succeeded",
            "refund_order  ran 1 x  succeeded",
            "Order 12 was paid back 1 x.",
            "OK: 2 workers killed",
            "dex-agents demo --scenario question",
        ],
    )


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine")
    finished = run_command(tmp_path, "demo", "--json", "--keep", str(tmp_path))

    assert finished.returncode == 2
    assert f"--keep: {tmp_path} is not empty" in finished.stderr
    report = json.loads(finished.stdout)
    assert report["ok"] is False
    assert "is not empty" in report["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_a_file_is_no_folder_to_keep(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    finished = run_command(tmp_path, "demo", "--keep", str(file))

    assert finished.returncode == 2
    assert "'--keep'" in finished.stderr
    assert file.read_text() == "mine"


def test_an_unknown_scenario_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    finished = run_command(tmp_path, "demo", "--scenario", "sleep")

    assert finished.returncode == 2
    assert finished.stdout == ""
    for name in ("'sleep'", *(repr(name.value) for name in ScenarioName)):
        assert name in finished.stderr


@pytest.mark.parametrize("columns", [60, 120])
def test_help_lists_the_scenarios(tmp_path: Path, columns: int) -> None:
    finished = run_command(tmp_path, "demo", "--help", columns=columns)

    assert finished.returncode == 0
    assert "<bool>" not in finished.stdout
    assert max(len(line) for line in finished.stdout.splitlines()) <= columns
    for scenario in SCENARIOS.values():
        assert f"  {scenario.name:<8}  {scenario.summary}\n" in finished.stdout
    assert "[default: refund]" in finished.stdout


@pytest.mark.parametrize(
    ("scenario", "number", "exit_code", "moment"),
    [
        pytest.param("refund", signal.SIGINT, 130, "[1/6]", id="ctrl-c-while-a-worker-starts"),
        pytest.param("refund", signal.SIGINT, 130, "worker 1 runs", id="ctrl-c-while-a-worker-runs"),
        pytest.param("refund", signal.SIGTERM, 143, "has paid order 12 back", id="terminated-around-the-refund"),
        pytest.param("wait", signal.SIGINT, 130, "SIGKILL", id="ctrl-c-while-no-worker-runs"),
        pytest.param("steer", signal.SIGTERM, 143, "about to end", id="terminated-around-the-end-of-a-steered-turn"),
    ],
)
def test_an_interrupted_demo_leaves_nothing_behind(
    tmp_path: Path, scenario: str, number: signal.Signals, exit_code: int, moment: str
) -> None:
    with running_demo(tmp_path, scenario) as process:
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
