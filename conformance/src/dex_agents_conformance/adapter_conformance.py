"""The whole suite as one base class."""

from __future__ import annotations

from typing import Any

from dex_agents_conformance.cases.approvals import ApprovalCases
from dex_agents_conformance.cases.builds import BuildCases
from dex_agents_conformance.cases.built_in_tools import BuiltInToolCases
from dex_agents_conformance.cases.changed_arguments import ChangedArgumentCases
from dex_agents_conformance.cases.compaction import CompactionCases
from dex_agents_conformance.cases.crashes import CrashCases
from dex_agents_conformance.cases.determinism import DeterminismCases
from dex_agents_conformance.cases.mcp_tools import McpToolCases
from dex_agents_conformance.cases.model_output import ModelOutputCases
from dex_agents_conformance.cases.plans import PlanCases
from dex_agents_conformance.cases.questions import QuestionCases
from dex_agents_conformance.cases.settings import SettingsCases
from dex_agents_conformance.cases.streaming import StreamingCases
from dex_agents_conformance.cases.tasks import TaskCases
from dex_agents_conformance.cases.tool_results import ToolResultCases
from dex_agents_conformance.cases.turn_control import TurnControlCases
from dex_agents_conformance.cases.turn_limits import TurnLimitCases
from dex_agents_conformance.cases.turns import TurnCases
from dex_agents_conformance.cases.usage import UsageCases
from dex_agents_conformance.conformance_case import refuse_overridden_cases

__all__ = ["AdapterConformance"]


class AdapterConformance(
    TurnCases,
    ToolResultCases,
    ModelOutputCases,
    ApprovalCases,
    TurnControlCases,
    StreamingCases,
    UsageCases,
    DeterminismCases,
    QuestionCases,
    BuiltInToolCases,
    TaskCases,
    McpToolCases,
    PlanCases,
    SettingsCases,
    CompactionCases,
    ChangedArgumentCases,
    TurnLimitCases,
    CrashCases,
    BuildCases,
):
    """Subclass it, override `make_flow` or `make_runner`, declare what the adapter can do, and run pytest.

    A class whose name begins with `Test` is collected: one test for every case.

    Raises:
        TypeError: A subclass overrides a case without `@unsupported(reason)`.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        refuse_overridden_cases(cls)
