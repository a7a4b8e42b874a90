"""The cancel benchmark runs; what it counts is right, and it says what it timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 90
KINDS = ("in_process", "across_processes")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "cancel", "--json", "--cancels", "9"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
def test_the_call_the_coroutine_and_the_end_of_the_turn_are_timed(report: dict[str, Any], kind: str) -> None:
    summary = report[kind]
    assert summary["cancels"] == 9
    for name in ("cancel_turn", "finally_from_call", "turn_over"):
        assert 0 < summary[name]["median_ms"] <= summary[name]["p95_ms"]
    assert 0 <= summary["coroutine_finally"]["median_ms"] <= summary["coroutine_finally"]["p95_ms"]
    assert summary["is_target_met"] == (summary["coroutine_finally"]["p95_ms"] < summary["target_ms"])


@pytest.mark.processes
def test_within_one_process_the_coroutine_is_cancelled_before_the_call_returns(report: dict[str, Any]) -> None:
    assert report["in_process"]["coroutine_finally"] == {"median_ms": 0.0, "p95_ms": 0.0}


@pytest.mark.processes
@pytest.mark.parametrize("kind", KINDS)
def test_neither_the_call_nor_the_end_of_the_turn_waits_for_the_coroutine(report: dict[str, Any], kind: str) -> None:
    slow = report[kind]["slow_cleanup"]
    # Half a second of cleaning up; a machine that stops for so long proves nothing, but not all of the times.
    assert slow["over_before_cleanup"] > 0
    assert slow["cancels"] == 10
