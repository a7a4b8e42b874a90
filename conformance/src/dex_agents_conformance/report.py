"""The report of one adapter's conformance: JSON for machines."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from dex_agents_conformance.adapter import AdapterDescription

__all__ = ["CaseResult", "CaseStatus", "ConformanceReport", "framework_version", "read_report", "write_report"]

CaseStatus: TypeAlias = Literal["passed", "failed", "unsupported"]


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one case ended.

    Attributes:
        id: `<group>.<case>`, with `[<parameter>]` where it has one.
        status: `unsupported` when the adapter says so, or does not declare the capability.
        reason: Why it is unsupported, or the failure's text; blank for a passed case.
        seconds: How long it took.
    """

    id: str
    status: CaseStatus
    reason: str = ""
    seconds: float = 0.0


class ConformanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter on one engine.

    Attributes:
        adapter: Where its class is.
        framework: The framework's distribution; blank for a loop of one's own.
        framework_version: Its installed version; blank without.
        engine: The engine.
        capabilities: What the adapter declares, sorted.
        cases: Every case, sorted by ID.
    """

    adapter: str
    framework: str
    framework_version: str
    engine: str
    capabilities: tuple[str, ...]
    cases: tuple[CaseResult, ...]

    def count(self, status: CaseStatus) -> int:
        """How many cases ended so."""
        return sum(result.status == status for result in self.cases)


def framework_version(adapter: type[AdapterDescription]) -> str:
    """The installed version of the adapter's framework; blank without one."""
    return "" if adapter.framework is None else importlib.metadata.version(adapter.framework)


def write_report(report: ConformanceReport, file: Path) -> None:
    """Write the report as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def read_report(file: Path) -> ConformanceReport:
    """Read a report.

    Raises:
        OSError: There is no such file.
        msgspec.ValidationError: It is no report.
    """
    return msgspec.json.decode(file.read_bytes(), type=ConformanceReport)
