"""One case of one adapter, and how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents_conformance import AdapterConformance

__all__ = ["case_failure"]


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
