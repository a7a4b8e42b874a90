"""One case of one adapter, and how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents_conformance import AdapterConformance

__all__ = ["case_failure", "in_process_cases"]


def case_failure(adapter: type[AdapterConformance], case: str, directory: Path) -> str | None:
    """Run a case; None when it passes, else what it says.

    Args:
        adapter: The adapter.
        case: The method without `test_`, with `[<parameter>]` where it has parameters.
        directory: An empty directory.
    """
    name, _, parameter = case.partition("[")
    method = getattr(adapter(), f"test_{name}")
    arguments = [parameter.removesuffix("]")] if parameter else []
    directory.mkdir(parents=True)
    try:
        method(directory, *arguments)
    except (Exception, pytest.fail.Exception) as failure:
        return f"{type(failure).__name__}: {failure}"
    return None


def in_process_cases(adapter: type[AdapterConformance]) -> list[str]:
    """Every case that starts no worker process, by the names that `case_failure` takes."""
    found = []
    for name in dir(adapter):
        declared = getattr(getattr(adapter, name), "_conformance_case", None)
        if declared is None or not declared.runs_worker:
            continue
        parameters = [
            value if isinstance(value, str) else value.values[0]
            for mark in getattr(getattr(adapter, name), "pytestmark", ())
            if mark.name == "parametrize"
            for value in mark.args[1]
        ]
        case = name.removeprefix("test_")
        found += [f"{case}[{parameter}]" for parameter in parameters] or [case]
    return found
