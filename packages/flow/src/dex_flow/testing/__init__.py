"""Helpers for tests of Flows and engines.

`dex_flow.testing.engine_suite` is imported on its own, because it needs pytest.
"""

from dex_flow.testing.gated_flow import GatedFlow, GatedPlan
from dex_flow.testing.gates import Gates
from dex_flow.testing.invocation_log import Invocation, InvocationLog
from dex_flow.testing.memory_store import MemoryStore
from dex_flow.testing.process_control import ProcessFailedError, ProgramProcess, ProgramProcesses

__all__ = (
    "GatedFlow",
    "GatedPlan",
    "Gates",
    "Invocation",
    "InvocationLog",
    "MemoryStore",
    "ProcessFailedError",
    "ProgramProcess",
    "ProgramProcesses",
)
