"""What an adapter can do beyond the base contract, and how the suite finds out what a runner implements."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from dex_agents import (
    AgentFrameworkRunner,
    ContextCompactor,
    PlanModeSupport,
    ToolTaskPoller,
)

__all__ = ["Capability", "check_declared_capabilities"]


class Capability(StrEnum):
    """An optional part of the contract. Declared ones are tested; what an undeclared one would test is not."""

    STREAMING = "streaming"  #: text deltas reach the events while the model speaks
    REASONING = "reasoning"  #: reasoning is stored, streamed, and replayed byte for byte
    USAGE = "usage"  #: tokens that the model reports reach the session's totals
    BLOCKING_TOOLS = "blocking_tools"  #: a tool may be a plain function, run off the event loop
    FRAMEWORK_APPROVALS = "framework_approvals"  #: the framework's own "needs approval" becomes the session's
    CHANGED_ARGUMENTS = "changed_arguments"  #: calls carry their schema, so a person may edit the arguments
    TOOL_QUESTIONS = "tool_questions"  #: a tool may ask the user in the middle of its work
    TOOL_TASKS = "tool_tasks"  #: a tool may start remote work that the session polls
    BUILT_IN_TOOLS = "built_in_tools"  #: `ask_user` and `durable_wait` are offered to the model
    PLAN_MODE = "plan_mode"  #: `write_todos`, planning turns and their approval
    SETTINGS = "settings"  #: the session's settings choose the model
    MCP_TOOLS = "mcp_tools"  #: tools of MCP servers are calls of the session, with effects from their annotations
    COMPACTION = "compaction"  #: earlier messages are summarised


def check_declared_capabilities(runner: AgentFrameworkRunner, declared: Iterable[Capability]) -> list[str]:
    """What a runner implements and does not declare, or declares and does not implement; a line for each."""
    visible = {
        Capability.TOOL_TASKS: isinstance(runner, ToolTaskPoller),
        Capability.PLAN_MODE: isinstance(runner, PlanModeSupport),
        Capability.COMPACTION: isinstance(runner, ContextCompactor),
    }
    wanted = set(declared)
    problems = []
    for capability, implemented in visible.items():
        if implemented and capability not in wanted:
            problems.append(f"the runner implements {capability.value}, so declare it: what nobody tests breaks")
        if capability in wanted and not implemented:
            problems.append(f"{capability.value} is declared, but the runner does not implement its protocol")
    return problems
