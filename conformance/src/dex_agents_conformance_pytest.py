"""The pytest plugin of the conformance suite: markers and options, nothing else. It stands outside of the package, so
that a pytest run without conformance cases does not import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that writes a report."""
    group = parser.getgroup("conformance", "conformance of an adapter for durable agent sessions")
    group.addoption(
        "--conformance-report", metavar="FILE", default=None, help="write the results of one adapter's cases as JSON"
    )
    group.addoption("--conformance-name", metavar="NAME", default=None, help="the adapter's name in that report")


def pytest_configure(config: pytest.Config) -> None:
    """The suite's markers, for projects with strict markers."""
    config.addinivalue_line("markers", "conformance_processes: a conformance case that starts real worker processes")
    if config.getoption("--conformance-report") is not None:
        from dex_agents_conformance.report_plugin import ConformanceReportPlugin

        config.pluginmanager.register(ConformanceReportPlugin(config), "conformance_report")
