"""Building a case's agent again in a worker process, from what the case left in its directory."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dex_agents.testing.kill_points import create_kill_point_flow
from dex_flow import Flow
from dex_flow.testing import Gates

__all__ = ["CASE_FLOW_FACTORY", "CaseLocation", "create_flow", "write_case_location"]

CASE_FLOW_FACTORY = "dex_agents_conformance.case_flow:create_flow"
_FILE = "case.json"


class CaseLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Which case of which adapter, in which build.

    Attributes:
        adapter: `path/to/file.py:Class`.
        case: The case's method.
        parameter: Its parameter; blank without.
        build: Which build of the agent the next worker runs.
    """

    adapter: str
    case: str
    parameter: str
    build: str


def write_case_location(directory: Path, location: CaseLocation) -> None:
    """Tell the next worker process what to build."""
    (directory / _FILE).write_bytes(msgspec.json.encode(location))


def create_flow(directory: Path) -> Flow:
    """The Flow of the case's agent, with kill points: gates `<session>.<Step>.<method>` in the case's directory."""
    # The suite imports this module, and pytest: a worker needs neither before it knows its case.
    from dex_agents_conformance.adapter_loading import load_adapter
    from dex_agents_conformance.case_setup import CaseSetup
    from dex_agents_conformance.conformance_case import script_of_case

    location = msgspec.json.decode((directory / _FILE).read_bytes(), type=CaseLocation)
    adapter = load_adapter(location.adapter)
    setup = CaseSetup(directory=directory, parameter=location.parameter, build=location.build)
    flow = adapter().make_flow(script_of_case(adapter, location.case)(setup))
    return create_kill_point_flow(flow, Gates(directory))
