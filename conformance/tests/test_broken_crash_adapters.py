"""The crash and deploy cases are tested too: each faulty adapter fails the case meant for it, and the rule is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents_conformance.cases.crash_matrix import SCENARIOS, crash_parameters, crash_plan

from .broken_crash_adapters import BROKEN_CRASH_ADAPTERS, BrokenCrashAdapter
from .run_case import case_failure


@pytest.mark.processes
@pytest.mark.parametrize("broken", BROKEN_CRASH_ADAPTERS, ids=lambda broken: broken.adapter.__name__)
def test_the_suite_finds_an_adapter_that_breaks_at_a_crash_or_deploy(
    broken: BrokenCrashAdapter, tmp_path: Path
) -> None:
    failure = case_failure(broken.adapter, broken.case, tmp_path / "meant")
    assert failure is not None, f"{broken.case} passes"
    assert broken.rule in failure


def test_the_chosen_pairs_have_every_scenario_twice_and_every_point() -> None:
    chosen = [
        crash_plan(parameter)
        for capability in {scenario.capability for scenario in SCENARIOS}
        for parameter in crash_parameters(capability)
    ]
    assert len(set(chosen)) == len(chosen)
    for scenario in SCENARIOS:
        assert sum(plan.scenario is scenario for plan in chosen) >= 2, scenario.name
    assert {plan.point for plan in chosen} == {point for scenario in SCENARIOS for point in scenario.points}
