"""Collects the results of one adapter's cases, also from parallel test processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.conformance_case import is_case
from dex_agents_conformance.report import CaseResult, CaseStatus, ConformanceReport, framework_version, write_report

__all__ = ["ConformanceReportPlugin"]

_PROPERTY = "conformance"
_MAX_REASON_CHARACTERS = 4_000


class ConformanceReportPlugin:
    """Writes the file of `--conformance-report` at the end of the run.

    Args:
        config: The run's configuration.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._file = Path(config.getoption("--conformance-report"))
        self._name: str | None = config.getoption("--conformance-name")
        self._is_worker = hasattr(config, "workerinput")
        self._descriptions: dict[str, dict[str, Any]] = {}
        self._results: dict[str, CaseResult] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note the case's ID and its adapter on each test, so that they travel with its report."""
        for item in items:
            adapter = getattr(item, "cls", None)
            function = getattr(item, "function", None)
            if function is None or not is_case(function):
                continue
            if not isinstance(adapter, type) or not issubclass(adapter, AdapterDescription):
                continue
            group = function.__module__.rpartition(".")[2]
            case_id = f"{group}.{item.name.removeprefix('test_')}"
            item.user_properties.append((_PROPERTY, {"id": case_id, **self._about(adapter)}))

    def _about(self, adapter: type[AdapterDescription]) -> dict[str, Any]:
        return {
            "adapter": self._name or f"{adapter.__module__}:{adapter.__qualname__}",
            "framework": adapter.framework or "",
            "framework_version": framework_version(adapter),
            "capabilities": sorted(capability.value for capability in adapter.capabilities),
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a case."""
        found = dict(report.user_properties).get(_PROPERTY)
        if self._is_worker or not isinstance(found, dict):
            return
        description = dict(found)
        case_id = str(description.pop("id"))
        self._descriptions[str(description["adapter"])] = description
        status = _status(report)
        if status is None:
            return
        earlier = self._results.get(case_id)
        if earlier is not None and earlier.status == "failed":
            return
        reason = "" if status == "passed" else _reason(report)
        self._results[case_id] = CaseResult(id=case_id, status=status, reason=reason, seconds=round(report.duration, 3))

    def pytest_sessionfinish(self) -> None:
        """Write the file.

        Raises:
            pytest.UsageError: No case ran, or the cases of several adapters.
        """
        if self._is_worker:
            return
        if len(self._descriptions) != 1:
            names = ", ".join(sorted(self._descriptions)) or "none"
            raise pytest.UsageError(f"--conformance-report is for one adapter at a time; cases ran of: {names}")
        (description,) = self._descriptions.values()
        cases = tuple(result for _, result in sorted(self._results.items()))
        write_report(ConformanceReport(engine="embedded", cases=cases, **description), self._file)


def _status(report: pytest.TestReport) -> CaseStatus | None:
    """How the case ended; None for a phase that says nothing about it."""
    if report.failed:
        return "failed"
    if report.skipped:
        return "unsupported"
    return "passed" if report.when == "call" else None


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail).removeprefix("reason: ")
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext[-_MAX_REASON_CHARACTERS:]
