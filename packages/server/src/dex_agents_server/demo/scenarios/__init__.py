"""The demo's scenarios, one module each."""

from __future__ import annotations

from dex_agents_server.demo.scenario import Scenario
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.scenarios.cancel import CANCEL
from dex_agents_server.demo.scenarios.question import QUESTION
from dex_agents_server.demo.scenarios.refund import REFUND
from dex_agents_server.demo.scenarios.steer import STEER
from dex_agents_server.demo.scenarios.wait import WAIT

__all__ = ["SCENARIOS", "ScenarioName"]

#: In the order in which they are worth watching.
SCENARIOS: dict[ScenarioName, Scenario] = {
    scenario.name: scenario for scenario in (REFUND, STEER, CANCEL, QUESTION, WAIT)
}
