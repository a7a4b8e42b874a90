"""The tools of an agent: which of them a turn offers, and what a call of each needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from dex_agents import (
    BUILT_IN_TOOL_DEFINITIONS,
    AgentTurnContext,
    DeferredToolCall,
    InteractionMode,
    ResolvedToolPolicy,
    ToolEffect,
    ToolExecutionError,
)
from dex_agents.session.built_in_tools import BUILT_IN_TOOL_POLICY, WRITE_TODOS
from dex_agents.session.policies import resolve_tool_policy
from dex_agents.session.texts import unknown_tool_text
from dex_agents_stepwise.agent_definition import AgentDefinition
from dex_agents_stepwise.function_tools import FunctionTool
from dex_agents_stepwise.model_client import ModelToolCall, ModelToolDefinition
from dex_agents_stepwise.tool_sources import AgentToolSources, ListedSourceTool

__all__ = ["AgentTools"]


class AgentTools:
    """The function tools of a definition, those its sources list, and the built-in ones of the session.

    Args:
        definition: The agent.

    Attributes:
        sources: The agent's tool sources.

    Raises:
        TypeError: A source declares a name that another tool has.
    """

    def __init__(self, definition: AgentDefinition) -> None:
        self._policies = definition.tool_policies
        self._tools = {tool.name: tool for tool in definition.tools}
        self._definitions = tuple(
            ModelToolDefinition(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in definition.tools
        )
        self._schema_texts = {tool.name: _json_text(tool.parameters) for tool in definition.tools}
        self._model_texts = {definition.name: _model_text(definition) for definition in self._definitions}
        taken_names = {name: "an enabled built-in tool" for name in definition.built_in_tools}
        taken_names |= {name: "a function tool" for name in self._tools}
        self.sources = AgentToolSources(
            definition.tool_sources, definition.tool_source_listing_timeout.total_seconds(), taken_names
        )

    def find(self, name: str) -> FunctionTool[..., Any] | None:
        """The function tool with a name, if the agent has it."""
        return self._tools.get(name)

    def get(self, name: str) -> FunctionTool[..., Any]:
        """The function tool with a name.

        Raises:
            ToolExecutionError: The agent has no such tool.
        """
        tool = self.find(name)
        if tool is None:
            raise ToolExecutionError(unknown_tool_text(name))
        return tool

    def offered(
        self, turn: AgentTurnContext, listed: tuple[ModelToolDefinition, ...] = ()
    ) -> tuple[ModelToolDefinition, ...]:
        """What a turn offers: function tools, listed tools, built-in ones; `write_todos` alone while it plans.

        Args:
            turn: The model step.
            listed: The tools of the agent's sources.

        Raises:
            TypeError: A tool of the agent has the name of an enabled built-in tool.
            ValueError: The session has a built-in tool that this release does not know.
        """
        # The definition checks its own built-in tools; a Flow built without it may enable others.
        for name in turn.enabled_built_in_tools:
            if name not in BUILT_IN_TOOL_DEFINITIONS:
                raise ValueError(f"the session enables the built-in tool {name!r}, which this release does not know")
            if name in self._tools:
                raise TypeError(f"tool {name} uses the name of an enabled built-in tool")
        built_in = tuple(_BUILT_IN_DEFINITIONS[name] for name in turn.enabled_built_in_tools)
        if turn.interaction_mode is InteractionMode.PLANNING:
            return tuple(definition for definition in built_in if definition.name == WRITE_TODOS)
        return (*self._definitions, *listed, *built_in)

    def model_text(self, definition: ModelToolDefinition) -> str:
        """About what the model reads of an offered tool."""
        known = self._model_texts.get(definition.name) or _BUILT_IN_TEXTS.get(definition.name)
        return _model_text(definition) if known is None else known

    def deferred_call(
        self, turn: AgentTurnContext, call: ModelToolCall, listed: Mapping[str, ListedSourceTool]
    ) -> DeferredToolCall:
        """A call of the model in the form the session stores; with the schema when a person may change it.

        Args:
            turn: The model step.
            call: The call.
            listed: The tools of sources that the model step offered, by name.
        """
        source_tool = listed.get(call.tool_name)
        if source_tool is not None:
            # A Flow built without the definition's policies must not lose an approval that the definition asks for.
            policies = {**self._policies, **turn.tool_policies}
            return source_tool.deferred_call(dataclasses.replace(turn, tool_policies=policies), call)
        policy = self._policy(turn, call.tool_name)
        return DeferredToolCall(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            arguments=call.arguments,
            policy=policy,
            arguments_schema=self._schema_texts.get(call.tool_name) if policy.requires_approval else None,
        )

    def _policy(self, turn: AgentTurnContext, tool_name: str) -> ResolvedToolPolicy:
        if tool_name in turn.enabled_built_in_tools:
            return BUILT_IN_TOOL_POLICY
        tool = self._tools.get(tool_name)
        if tool is None:
            # It only tells the model that there is no such tool; nobody needs to approve that.
            return ResolvedToolPolicy(effect=ToolEffect.UNCLASSIFIED, requires_approval=False)
        return resolve_tool_policy(
            tool_name,
            tool.effect,
            # A Flow built without the definition's policies must not lose an approval that the definition asks for.
            tool_policies={**self._policies, **turn.tool_policies},
            default_tool_effect=turn.default_tool_effect,
            framework_requires_approval=tool.requires_approval,
        )


def _json_text(schema: Mapping[str, Any]) -> str:
    return json.dumps(dict(schema), ensure_ascii=False, separators=(",", ":"))


def _model_text(definition: ModelToolDefinition) -> str:
    return f"{definition.name}\n{definition.description}\n{_json_text(definition.parameters)}"


_BUILT_IN_DEFINITIONS = {
    name: ModelToolDefinition(name=name, description=definition.description, parameters=definition.parameters)
    for name, definition in BUILT_IN_TOOL_DEFINITIONS.items()
}
_BUILT_IN_TEXTS = {name: _model_text(definition) for name, definition in _BUILT_IN_DEFINITIONS.items()}
