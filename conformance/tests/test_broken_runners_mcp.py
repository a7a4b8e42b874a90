"""The suite is tested too: faults in the tools of MCP servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .broken_runners import BrokenRunner, adapter_with
from .broken_runners_mcp import BROKEN_MCP_RUNNERS
from .run_case import case_failure


@pytest.mark.parametrize("broken", BROKEN_MCP_RUNNERS, ids=lambda broken: broken.runner.__name__)
def test_the_suite_finds_a_broken_runner(broken: BrokenRunner, tmp_path: Path) -> None:
    failure = case_failure(adapter_with(broken.runner), broken.case, tmp_path / "meant")
    assert failure is not None, f"{broken.case} passes"
    assert broken.rule in failure


@pytest.mark.parametrize("broken", BROKEN_MCP_RUNNERS, ids=lambda broken: broken.runner.__name__)
def test_a_broken_runner_passes_cases_that_its_fault_does_not_touch(broken: BrokenRunner, tmp_path: Path) -> None:
    adapter = adapter_with(broken.runner)
    failures = {case: case_failure(adapter, case, tmp_path / case) for case in broken.untouched}
    assert failures == dict.fromkeys(broken.untouched)
