"""The report: what counts as a problem, and how recoveries are measured."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.report import DemoReport, SessionReport, measure_recovery_ms
from dex_agents_server.demo.timeline import Timeline
from dex_flow import StepHistoryEntry

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GOOD = SessionReport(
    session_id="refund-order-12",
    order_id=12,
    final_text="I cannot tell.",
    tool_runs={"lookup_order": 1, "refund_order": 1},
    tool_statuses=("succeeded", "outcome_unknown"),
    expected_statuses=("succeeded", "outcome_unknown"),
    told=("{}", OUTCOME_UNKNOWN_TOOL_RESULT),
    payments=1,
    worker_kills=1,
    recovery_ms=(12.5,),
)


def entry(started_ms: int, finished_ms: int, *, method: str = "run", outcome: str = "succeeded") -> StepHistoryEntry:
    return StepHistoryEntry(
        number=1,
        step_execution_id=1,
        step_type="CallTool",
        method=method,
        attempt=1,
        outcome=outcome,
        started_at=NOON + timedelta(milliseconds=started_ms),
        finished_at=NOON + timedelta(milliseconds=finished_ms),
    )


def test_a_good_session_has_no_problems() -> None:
    report = DemoReport(sessions=(GOOD,))
    assert report.problems() == []
    assert report.to_json() == {
        "sessions": [
            {
                "session_id": "refund-order-12",
                "final_text": "I cannot tell.",
                "tool_runs": {"lookup_order": 1, "refund_order": 1},
                "tool_statuses": ["succeeded", "outcome_unknown"],
                "worker_kills": 1,
                "recovery_ms": [12.5],
            }
        ],
        "ok": True,
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tool_runs": {"lookup_order": 1, "refund_order": 2}}, "refund_order ran 2 times"),
        ({"tool_runs": {"lookup_order": 1}}, "these tools ran: lookup_order"),
        ({"payments": 2}, "order 12 was paid back 2 times"),
        ({"payments": 0}, "order 12 was paid back 0 times"),
        ({"tool_statuses": ("succeeded", "succeeded")}, "instead of succeeded, outcome_unknown"),
        ({"told": ("{}", "Refunded $89.50 for order 12.")}, "the model was told"),
        ({"final_text": " "}, "no answer"),
        ({"recovery_ms": ()}, "1 kills, but 0 recoveries"),
        ({"recovery_ms": (1_000.0,)}, "the recovery took 1000 ms"),
    ],
)
def test_everything_that_is_not_as_promised_is_a_problem(change: dict[str, Any], problem: str) -> None:
    report = DemoReport(sessions=(replace(GOOD, **change),))
    assert any(problem in found for found in report.problems())
    assert report.to_json()["ok"] is False
    assert problem in report.to_json()["error"]

    output = StringIO()
    Timeline(Console(file=output, width=200), NOON).show_report(report, 1.0)
    assert "NOT OK" in output.getvalue()
    assert problem in output.getvalue()
    assert "OK: 1 workers" not in output.getvalue()


def test_recovery_ends_with_the_first_attempt_that_starts() -> None:
    history = [entry(-50, 5), entry(10, 10, method="execute"), entry(70, 90), entry(30, 60)]
    assert measure_recovery_ms(history, NOON) == 30.0


def test_recovery_ends_with_the_record_of_a_lost_attempt() -> None:
    assert measure_recovery_ms([entry(-900, 4, outcome="lost"), entry(8, 9)], NOON) == 4.0


def test_a_session_that_nobody_went_on_with_is_an_error() -> None:
    with pytest.raises(DemoError, match="no worker went on"):
        measure_recovery_ms([entry(-50, 5)], NOON)
