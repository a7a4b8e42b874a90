"""What the demo found out, and whether that is what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dex_agents import AgentToolCallRecordStatus
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.demo_error import DemoError
from dex_flow import StepHistoryEntry

__all__ = ["MAX_RECOVERY_MS", "DemoReport", "SessionReport", "measure_recovery_ms"]

MAX_RECOVERY_MS = 1_000.0
_OUTCOME_UNKNOWN = AgentToolCallRecordStatus.OUTCOME_UNKNOWN.value


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """One session after its turn.

    Attributes:
        session_id: The session.
        order_id: The order it was about.
        final_text: The agent's answer.
        tool_runs: How often each tool really began, from the shop's ledger.
        tool_statuses: What the session recorded for each call, in call order.
        expected_statuses: What it should have recorded.
        told: The result of each call as the model read it, in call order.
        payments: How many refunds of the order the shop really paid.
        worker_kills: How many workers were killed under the session.
        recovery_ms: For each kill, how long the next worker took.
    """

    session_id: str
    order_id: int
    final_text: str
    tool_runs: dict[str, int]
    tool_statuses: tuple[str, ...]
    expected_statuses: tuple[str, ...]
    told: tuple[str, ...]
    payments: int
    worker_kills: int
    recovery_ms: tuple[float, ...]

    def problems(self) -> list[str]:
        """What is not as promised, in sentences; empty when all is well."""
        found = [
            f"{self.session_id}: the tool {name} ran {count} times instead of once"
            for name, count in self.tool_runs.items()
            if count != 1
        ]
        if len(self.tool_runs) != len(self.expected_statuses):
            found.append(f"{self.session_id}: these tools ran: {', '.join(self.tool_runs) or 'none'}")
        if self.payments != 1:
            found.append(f"{self.session_id}: order {self.order_id} was paid back {self.payments} times")
        if self.tool_statuses != self.expected_statuses:
            found.append(
                f"{self.session_id}: the calls are recorded as {', '.join(self.tool_statuses) or 'nothing'} "
                f"instead of {', '.join(self.expected_statuses)}"
            )
        if (OUTCOME_UNKNOWN_TOOL_RESULT in self.told) != (_OUTCOME_UNKNOWN in self.expected_statuses):
            found.append(f"{self.session_id}: the model was told {list(self.told)!r}")
        if not self.final_text.strip():
            found.append(f"{self.session_id}: the agent gave no answer")
        if len(self.recovery_ms) != self.worker_kills:
            found.append(f"{self.session_id}: {self.worker_kills} kills, but {len(self.recovery_ms)} recoveries")
        found += [
            f"{self.session_id}: the recovery took {recovery:g} ms, more than {MAX_RECOVERY_MS:g} ms"
            for recovery in self.recovery_ms
            if recovery >= MAX_RECOVERY_MS
        ]
        return found

    def to_json(self) -> dict[str, Any]:
        """The session's part of the JSON object."""
        return {
            "session_id": self.session_id,
            "final_text": self.final_text,
            "tool_runs": self.tool_runs,
            "tool_statuses": list(self.tool_statuses),
            "worker_kills": self.worker_kills,
            "recovery_ms": list(self.recovery_ms),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """All sessions of a run that came to its end."""

    sessions: tuple[SessionReport, ...]

    def problems(self) -> list[str]:
        """What is not as promised, in sentences; empty when all is well."""
        return [problem for session in self.sessions for problem in session.problems()]

    def to_json(self) -> dict[str, Any]:
        """The JSON object of `--json`; with an `error` only when something is not as promised."""
        problems = self.problems()
        report: dict[str, Any] = {"sessions": [session.to_json() for session in self.sessions], "ok": not problems}
        if problems:
            report["error"] = "; ".join(problems)
        return report


def measure_recovery_ms(history: list[StepHistoryEntry], since: datetime) -> float:
    """Milliseconds from `since` until an attempt starts, or one that was lost with its worker is recorded.

    Args:
        history: The session's finished Step methods.
        since: When a worker was up and everything the session waited for was there.

    Raises:
        DemoError: No attempt came after `since`.
    """
    moments = [
        entry.finished_at if entry.outcome == "lost" else entry.started_at for entry in history if entry.method == "run"
    ]
    later = [moment for moment in moments if moment >= since]
    if not later:
        raise DemoError("no worker went on with the session after the kill")
    return round((min(later) - since).total_seconds() * 1_000, 1)
