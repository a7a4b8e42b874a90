"""The report: what counts as a problem, how it is shown, and how recoveries are measured."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.closing import show_next, show_report
from dex_agents_server.demo.demo_error import DemoError
from dex_agents_server.demo.report import (
    Check,
    DemoReport,
    ExpectedSession,
    SessionReport,
    ToolCallFound,
    measure_recovery_ms,
)
from dex_agents_server.demo.scenarios import SCENARIOS, ScenarioName
from dex_flow import StepHistoryEntry

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CALLS = (ToolCallFound("lookup_order", "succeeded"), ToolCallFound("refund_order", "outcome_unknown"))
GOOD = SessionReport(
    session_id="refund-order-12",
    final_text="I cannot tell.",
    calls=CALLS,
    tool_runs={"lookup_order": 1, "refund_order": 1},
    payments={12: 1},
    told=("{}", OUTCOME_UNKNOWN_TOOL_RESULT),
    worker_kills=1,
    recovery_ms=(12.5,),
    checks=(Check("the worker was killed", True),),
    expected=ExpectedSession(
        calls=CALLS,
        tool_runs={"lookup_order": 1, "refund_order": 1},
        payments={12: 1},
        told=(OUTCOME_UNKNOWN_TOOL_RESULT,),
        final_text="cannot tell",
    ),
)


def printed_report(report: DemoReport, width: int = 200) -> str:
    output = StringIO()
    show_report(Console(file=output, width=width), report, 1.0)
    return output.getvalue()


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


@pytest.mark.parametrize("width", [60, 200])
def test_a_good_report_is_shown(width: int) -> None:
    printed = printed_report(DemoReport(sessions=(GOOD,)), width)
    for text in (
        "refund_order  ran 1 x  outcome_unknown",
        "Order 12 was paid back 1 x.",
        "went on 12.5 ms after",
        "ok: the worker was killed.",
        "Last answer: I cannot tell.",
        "OK: 1 worker killed",
    ):
        assert text in printed
    assert "NOT" not in printed
    assert max(len(line) for line in printed.splitlines()) <= width


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tool_runs": {"lookup_order": 1, "refund_order": 2}}, "refund_order ran 2 times instead of once"),
        ({"tool_runs": {"lookup_order": 1}}, "refund_order ran never instead of once"),
        (
            {"tool_runs": {"lookup_order": 1, "refund_order": 1, "drop_table": 1}},
            "drop_table ran once instead of never",
        ),
        ({"payments": {12: 2}}, "order 12 was paid back 2 times instead of once"),
        ({"payments": {}}, "order 12 was paid back never instead of once"),
        (
            {"calls": (CALLS[0], ToolCallFound("refund_order", "succeeded"))},
            "recorded as lookup_order succeeded, refund_order succeeded instead of",
        ),
        ({"calls": ()}, "recorded as nothing instead of"),
        ({"told": ("{}", "Refunded $89.50 for order 12.")}, "the model was not told"),
        ({"final_text": " "}, "no answer"),
        ({"final_text": "Done."}, "has no 'cannot tell'"),
        ({"recovery_ms": ()}, "1 kills, but 0 recoveries"),
        ({"recovery_ms": (1_000.0,)}, "the recovery took 1000 ms"),
        ({"worker_kills": 0, "recovery_ms": ()}, "0 workers were killed instead of 1"),
        ({"checks": (Check("the sky is blue", False),)}, "does not hold: the sky is blue"),
    ],
)
def test_everything_that_is_not_as_promised_is_a_problem(change: dict[str, Any], problem: str) -> None:
    report = DemoReport(sessions=(replace(GOOD, **change),))
    assert any(problem in found for found in report.problems())
    assert report.to_json()["ok"] is False
    assert problem in report.to_json()["error"]

    printed = printed_report(report)
    assert "NOT OK" in printed
    assert problem in printed
    assert "OK: 1 worker" not in printed


def test_a_known_outcome_told_as_unknown_is_a_problem() -> None:
    calls = (ToolCallFound("refund_order", "succeeded"),)
    session = replace(GOOD, calls=calls, expected=replace(GOOD.expected, calls=calls))
    assert session.problems() == [
        "refund-order-12: the model was told that an outcome is unknown which is known",
    ]


def test_a_run_without_a_kill_proves_nothing() -> None:
    session = replace(GOOD, worker_kills=0, recovery_ms=(), expected=replace(GOOD.expected, worker_kills=0))
    assert DemoReport(sessions=(session,)).problems() == ["no worker was killed"]


def test_the_end_says_what_to_do_next() -> None:
    output = StringIO()
    show_next(Console(file=output, width=60), SCENARIOS[ScenarioName.REFUND], SCENARIOS[ScenarioName.STEER])
    assert "dex-agents demo --scenario steer" in output.getvalue()
    assert "dex-agents demo --scenario refund --keep FOLDER" in output.getvalue()


def test_recovery_ends_with_the_first_attempt_that_starts() -> None:
    history = [entry(-50, 5), entry(10, 10, method="execute"), entry(70, 90), entry(30, 60)]
    assert measure_recovery_ms(history, NOON) == 30.0


def test_recovery_ends_with_the_record_of_a_lost_attempt() -> None:
    assert measure_recovery_ms([entry(-900, 4, outcome="lost"), entry(8, 9)], NOON) == 4.0


def test_a_session_that_nobody_went_on_with_is_an_error() -> None:
    with pytest.raises(DemoError, match="no worker went on"):
        measure_recovery_ms([entry(-50, 5)], NOON)
