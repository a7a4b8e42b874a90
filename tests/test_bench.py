"""The benchmark runs, and what it counts (not what it times) keeps its targets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.compacted_session import UnequalTurnsError, compare_turns

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 90


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def check_every_kind_is_measured_for_one_session_and_for_several(report: dict[str, Any]) -> None:
    for kind in ("power", "process", "floor"):
        assert set(report[kind]) == {"sessions_1", "sessions_3"}
        for summary in report[kind].values():
            assert 0 < summary["median_ms"] <= summary["p95_ms"]
            assert summary["turns_per_s"] > 0
    assert report["processes_2"]["sessions_3"]["turns_per_s"] > 0


def check_a_turn_costs_at_most_five_flushed_commits_and_four_when_its_tool_may_repeat(report: dict[str, Any]) -> None:
    assert 0 < report["commits_per_turn"] <= 5
    assert 0 < report["repeatable_tool_commits_per_turn"] <= 4
    # A flush beyond the commits' own would be one that live events or a checkpoint cost.
    assert 0 < report["syncs_per_turn"] <= report["commits_per_turn"] + 0.5


def check_a_short_run_says_nothing_about_turn_1000(report: dict[str, Any]) -> None:
    assert report["turn_10_ms"] > 0
    assert report["turn_1000_ms"] is None
    assert report["compacted_turn_1000_ms"] is None


@pytest.mark.processes
def test_a_quick_run_measures_everything_and_what_it_counts_keeps_its_targets() -> None:
    """One test, so that parallel test processes do not each run the benchmark."""
    done = run_bench("turn", "--json", "--quick", "--turns", "5", "--sessions", "3")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check_every_kind_is_measured_for_one_session_and_for_several(report)
    check_a_turn_costs_at_most_five_flushed_commits_and_four_when_its_tool_may_repeat(report)
    check_a_short_run_says_nothing_about_turn_1000(report)


def test_turns_of_a_session_with_compaction_are_compared(tmp_path: Path) -> None:
    early_ms, late_ms = asyncio.run(compare_turns(tmp_path / "turns.db", 50, 80))
    assert min(early_ms, late_ms) > 0


def test_turns_before_the_message_window_is_full_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(UnequalTurnsError, match="the message window of turn-30 is not full"):
        asyncio.run(compare_turns(tmp_path / "turns.db", 30, 35))


@pytest.mark.processes
def test_a_wrong_number_of_sessions_is_refused_with_its_reason() -> None:
    done = run_bench("turn", "--sessions", "1")
    assert done.returncode == 2
    assert "must be at least 2" in done.stderr
