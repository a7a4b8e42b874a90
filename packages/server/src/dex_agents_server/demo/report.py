"""What the demo found out, and whether that is what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dex_agents import AgentToolCallRecordStatus
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.demo_error import DemoError
from dex_flow import StepHistoryEntry

__all__ = [
    "MAX_RECOVERY_MS",
    "Check",
    "DemoReport",
    "ExpectedSession",
    "SessionReport",
    "ToolCallFound",
    "measure_recovery_ms",
]

MAX_RECOVERY_MS = 1_000.0
_OUTCOME_UNKNOWN = AgentToolCallRecordStatus.OUTCOME_UNKNOWN.value


@dataclass(frozen=True, slots=True)
class Check:
    """Something a scenario promises beyond the rest, and whether it was so.

    Attributes:
        promise: What should be so, as a sentence without its full stop.
        holds: Whether it is.
    """

    promise: str
    holds: bool


@dataclass(frozen=True, slots=True)
class ToolCallFound:
    """A call as the session recorded it, a built-in one too."""

    tool_name: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSession:
    """What a session should have come to.

    Attributes:
        calls: Its tool calls, in call order.
        tool_runs: How often each tool of the shop should have begun.
        payments: How often each order should have been paid back.
        told: Results the model must have read.
        final_text: What the agent's last answer must contain.
        worker_kills: How many workers should have been killed.
    """

    calls: tuple[ToolCallFound, ...] = ()
    tool_runs: Mapping[str, int]
    payments: Mapping[int, int]
    told: tuple[str, ...] = ()
    final_text: str
    worker_kills: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """One session after its last turn.

    Attributes:
        session_id: The session.
        final_text: The agent's last answer.
        calls: What the session recorded for each call, in call order.
        tool_runs: How often each tool really began, from the shop's ledger.
        payments: How often the shop really paid each order back.
        told: The result of each call as the model read it.
        worker_kills: How many workers were killed under the session.
        recovery_ms: For each kill, how long the next worker took.
        checks: What else was promised.
        expected: What all this should be.
    """

    session_id: str
    final_text: str
    calls: tuple[ToolCallFound, ...]
    tool_runs: Mapping[str, int]
    payments: Mapping[int, int]
    told: tuple[str, ...]
    worker_kills: int
    recovery_ms: tuple[float, ...]
    checks: tuple[Check, ...] = ()
    expected: ExpectedSession

    @property
    def tool_statuses(self) -> tuple[str, ...]:
        """The status of each call, in call order."""
        return tuple(call.status for call in self.calls)

    def problems(self) -> list[str]:
        """What is not as promised, in sentences; empty when all is well."""
        found = [*self._tool_problems(), *self._text_problems(), *self._recovery_problems()]
        found += [f"this does not hold: {check.promise}" for check in self.checks if not check.holds]
        return [f"{self.session_id}: {problem}" for problem in found]

    def _tool_problems(self) -> list[str]:
        found = []
        for name in dict.fromkeys([*self.expected.tool_runs, *self.tool_runs]):
            runs, expected_runs = self.tool_runs.get(name, 0), self.expected.tool_runs.get(name, 0)
            if runs != expected_runs:
                found.append(f"the tool {name} ran {_times(runs)} instead of {_times(expected_runs)}")
        for order_id, expected_payments in self.expected.payments.items():
            payments = self.payments.get(order_id, 0)
            if payments != expected_payments:
                found.append(
                    f"order {order_id} was paid back {_times(payments)} instead of {_times(expected_payments)}"
                )
        if self.calls != self.expected.calls:
            found.append(
                f"the calls are recorded as {_list_calls(self.calls)} instead of {_list_calls(self.expected.calls)}"
            )
        return found

    def _text_problems(self) -> list[str]:
        found = [f"the model was not told: {text}" for text in self.expected.told if text not in self.told]
        if _OUTCOME_UNKNOWN not in self.tool_statuses and OUTCOME_UNKNOWN_TOOL_RESULT in self.told:
            found.append("the model was told that an outcome is unknown which is known")
        if not self.final_text.strip():
            found.append("there is no answer")
        elif self.expected.final_text not in self.final_text:
            found.append(f"the answer is {self.final_text!r} and has no {self.expected.final_text!r}")
        return found

    def _recovery_problems(self) -> list[str]:
        found = [
            f"the recovery took {milliseconds:g} ms, not less than {MAX_RECOVERY_MS:g} ms"
            for milliseconds in self.recovery_ms
            if not 0 <= milliseconds < MAX_RECOVERY_MS
        ]
        if self.worker_kills != self.expected.worker_kills:
            found.append(f"{self.worker_kills} workers were killed instead of {self.expected.worker_kills}")
        if len(self.recovery_ms) != self.worker_kills:
            found.append(f"there were {self.worker_kills} kills, but {len(self.recovery_ms)} recoveries")
        return found

    def to_json(self) -> dict[str, Any]:
        """The session's part of the JSON object."""
        return {
            "session_id": self.session_id,
            "final_text": self.final_text,
            "tool_runs": dict(self.tool_runs),
            "tool_statuses": list(self.tool_statuses),
            "worker_kills": self.worker_kills,
            "recovery_ms": list(self.recovery_ms),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """All sessions of a run that came to its end."""

    sessions: tuple[SessionReport, ...]

    @property
    def worker_kills(self) -> int:
        """How many workers were killed."""
        return sum(session.worker_kills for session in self.sessions)

    def problems(self) -> list[str]:
        """What is not as promised, in sentences; empty when all is well."""
        found = [problem for session in self.sessions for problem in session.problems()]
        if not self.worker_kills:
            found.append("no worker was killed")
        return found

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


def _times(count: int) -> str:
    match count:
        case 0:
            return "never"
        case 1:
            return "once"
        case _:
            return f"{count} times"


def _list_calls(calls: tuple[ToolCallFound, ...]) -> str:
    return ", ".join(f"{call.tool_name} {call.status}" for call in calls) or "nothing"
