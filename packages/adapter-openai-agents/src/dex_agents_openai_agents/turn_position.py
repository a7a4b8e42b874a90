"""Where a turn is before a model call: whose model is asked, with which results, and what has happened before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents import Agent, RunConfig

from dex_agents import (
    AgentMessage,
    AgentToolCall,
    AgentTurnContext,
    ContextSummary,
    FrameworkMessage,
    TurnRefusedError,
)
from dex_agents_openai_agents.call_results import (
    handoff_target_name,
    previous_calls,
    taken_handoff,
    unstored_result_messages,
)
from dex_agents_openai_agents.conversation import last_sequence
from dex_agents_openai_agents.handoff_history import find_handoff, has_input_filter
from dex_agents_openai_agents.run_state import CallReference, HandoffTaken, decode_run_state
from dex_agents_openai_agents.stored_items import read_stored_items
from dex_agents_openai_agents.summary_agent_note import agent_of_summary

__all__ = ["TurnPosition", "TurnPositions"]


@dataclass(frozen=True, kw_only=True)
class TurnPosition:
    """Where a turn is before a model call.

    Attributes:
        agent: The agent whose model is asked.
        calls: The calls of the previous model step.
        results: Their results, not stored yet.
        handoffs: The turn's handoffs with a filter.
        is_first_call: Whether no model call of the turn came before.
        begins: Whether the agent begins to act here.
        has_used_tools: Whether it has used tools since it began.
    """

    agent: Agent[Any]
    calls: Sequence[tuple[AgentToolCall, CallReference]]
    results: tuple[FrameworkMessage, ...]
    handoffs: tuple[HandoffTaken, ...]
    is_first_call: bool
    begins: bool
    has_used_tools: bool


class TurnPositions:
    """Finds where turns are, from their committed state alone.

    Args:
        first_agent: Where a session starts.
        agents: The session's agents by name.
        run_config: The application's run config.
        starts_with_last_agent: Whether a turn starts with the agent that answered last.
    """

    def __init__(
        self,
        first_agent: Agent[Any],
        agents: Mapping[str, Agent[Any]],
        run_config: RunConfig,
        *,
        starts_with_last_agent: bool,
    ) -> None:
        self._first_agent = first_agent
        self._agents = agents
        self._run_config = run_config
        self._starts_with_last_agent = starts_with_last_agent

    def of_turn(self, turn: AgentTurnContext) -> TurnPosition:
        """Where a turn is.

        Raises:
            TurnRefusedError: Another runner began it, or its agent is not in this release.
        """
        state = decode_run_state(turn.framework_run_state)
        if state is None:
            return TurnPosition(
                agent=self._first_agent_of_turn(turn),
                calls=(),
                results=(),
                handoffs=(),
                is_first_call=True,
                begins=True,
                has_used_tools=False,
            )
        calls = previous_calls(turn)
        results = unstored_result_messages(calls)
        source = self._known_agent(state.agent)
        taken = taken_handoff(calls)
        handoffs = state.handoffs
        if taken is not None and has_input_filter(find_handoff(source, taken.tool_name), self._run_config):
            through = last_sequence(turn) + len(results)
            filtered = HandoffTaken(source_agent=source.name, tool_name=taken.tool_name, through_sequence=through)
            handoffs = (*handoffs, filtered)
        return TurnPosition(
            agent=source if taken is None else self._known_agent(handoff_target_name(taken)),
            calls=calls,
            results=results,
            handoffs=handoffs,
            is_first_call=False,
            begins=taken is not None,
            has_used_tools=taken is None and state.has_used_tools,
        )

    def _first_agent_of_turn(self, turn: AgentTurnContext) -> Agent[Any]:
        if self._starts_with_last_agent:
            return self.last_agent(turn.messages, turn.context_summary)
        return self._first_agent

    def last_agent(self, messages: Sequence[AgentMessage], summary: ContextSummary | None) -> Agent[Any]:
        """The agent that answered last, as far as this release has it; the first agent without one.

        Args:
            messages: The messages behind the summary, oldest first.
            summary: What stands for those before them.

        Raises:
            TurnRefusedError: A message was written by another runner.
        """
        for message in reversed(messages):
            agent = self._agents.get(read_stored_items((message,))[0].agent or "")
            if agent is not None:
                return agent
        named = None if summary is None else agent_of_summary(summary.text)
        return self._agents.get(named or "", self._first_agent)

    def name_for_summary(self, agent: Agent[Any]) -> str | None:
        """The name that a summary must keep, so that the next turn starts with the agent; None where it does anyway."""
        return None if agent is self._first_agent or not self._starts_with_last_agent else agent.name

    def _known_agent(self, name: str) -> Agent[Any]:
        agent = self._agents.get(name)
        if agent is None:
            raise TurnRefusedError(f"the turn is with an agent {name!r}, which this release of the application has not")
        return agent
