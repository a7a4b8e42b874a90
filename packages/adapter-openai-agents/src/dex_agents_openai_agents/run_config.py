"""The application's `RunConfig` in a session: what is taken over, what is set, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from agents import Agent, Handoff, RunConfig

__all__ = ["check_run_config", "session_run_config"]

_DEFAULT_WORKFLOW_NAME = RunConfig().workflow_name


def check_run_config(run_config: object, agents: Iterable[Agent[Any]]) -> None:
    """Refuse what a session could only ignore.

    Raises:
        TypeError: It is no `RunConfig`.
        ValueError: It holds something a session cannot use; names it.
    """
    if not isinstance(run_config, RunConfig):
        raise TypeError(f"run_config must be an agents.RunConfig, not {type(run_config).__name__}")
    if run_config.sandbox is not None:
        raise ValueError("run_config.sandbox is for SandboxAgent, which a session does not support")
    if run_config.session_input_callback is not None or run_config.session_settings is not None:
        raise ValueError(
            "run_config.session_input_callback and session_settings are for the SDK's own Session; the durable session "
            "is the memory, so use call_model_input_filter or compaction"
        )
    nesting = [
        f"{agent.name}.{handoff.tool_name}"
        for agent in agents
        for handoff in agent.handoffs
        if isinstance(handoff, Handoff) and handoff.nest_handoff_history
    ]
    if run_config.nest_handoff_history or nesting:
        raise ValueError(
            f"nest_handoff_history ({', '.join(nesting) or 'run_config'}) is not supported: the SDK nests run items, "
            "of which a session keeps the input form only; give the handoff an input_filter"
        )


def session_run_config(base: RunConfig, *, flow_id: str, turn_id: str, workflow_name: str) -> RunConfig:
    """The application's run config for one session: its traces, and its prompt cache key, belong together."""
    return dataclasses.replace(
        base,
        group_id=base.group_id or flow_id,
        workflow_name=workflow_name if base.workflow_name == _DEFAULT_WORKFLOW_NAME else base.workflow_name,
        trace_metadata={**(base.trace_metadata or {}), "session_id": flow_id, "turn_id": turn_id},
    )
