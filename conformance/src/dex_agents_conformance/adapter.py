"""What an adapter's author says about the adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from dex_agents import AgentFrameworkRunner, AgentSessionFlow, create_agent_session_flow
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.conversation_script import ConversationScript

__all__ = ["AdapterDescription"]


class AdapterDescription:
    """Override `make_flow`, or `make_runner` alone, and say what the adapter can do.

    Attributes:
        framework: Name of the framework's distribution, for the report's version; None for a loop of one's own.
        capabilities: What the adapter can do beyond the base contract. What it declares is tested.
        result_texts: What the model reads of a tool's result by name of the value, as the framework itself would write
            it without a session; see `RESULT_VALUES`. A value the framework cannot render maps to None: its call fails.
        failure_text: What the model reads of a failure that a tool raises for it; `{failure}` is the tool's text.
        forks_workers: Whether worker processes are forked from one that has imported the adapter, which starts them in
            milliseconds. False for a framework whose import starts threads.
    """

    framework: ClassVar[str | None] = None
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    result_texts: ClassVar[Mapping[str, str | None]] = {}
    failure_text: ClassVar[str] = "{failure}"
    forks_workers: ClassVar[bool] = True

    def require(self, capability: Capability) -> None:
        """Skip a case that needs a second capability, unless it is declared."""
        if capability not in self.capabilities:
            pytest.skip(f"{capability.value} is not declared")

    def make_runner(self, script: ConversationScript) -> AgentFrameworkRunner:
        """The runner of an agent with the script's model, tools and instructions.

        The model is the framework's own fake or a subclass of its model class, and asks a `StrictProvider`.
        """
        raise NotImplementedError(f"{type(self).__name__} must override make_flow or make_runner")

    def make_flow(self, script: ConversationScript) -> AgentSessionFlow:
        """The Flow of the agent's sessions, made as a user of the adapter would make it."""
        return create_agent_session_flow(self.make_runner(script), script.flow_type, **script.flow_options)
