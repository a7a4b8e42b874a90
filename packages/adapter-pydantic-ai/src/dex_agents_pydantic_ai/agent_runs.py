"""Runs of the user's agent: opened for one model step or one tool call, and left before the next one."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_ai.agent import AbstractAgent, AgentRun
from pydantic_ai.capabilities import AbstractCapability, ProcessEventStream
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolResults, Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import RunUsage, UsageLimits

from dex_agents import BUILT_IN_TOOL_DEFINITIONS
from dex_agents_pydantic_ai.client_retries import without_client_retries
from dex_agents_pydantic_ai.current_tool_call import CONTEXT_METADATA_KEY, SessionContext
from dex_agents_pydantic_ai.run_capability import SessionCapability

__all__ = ["AgentRuns", "DepsFactory", "ResolveModel", "can_stream"]

DepsFactory: TypeAlias = Callable[[SessionContext], Any]
"""Makes the agent's dependencies for one Step, sync or async."""

ResolveModel: TypeAlias = Callable[[Mapping[str, Any]], Model | str]
"""Chooses a session's model by its settings."""


@dataclass(frozen=True, kw_only=True)
class AgentRuns:
    """Opens runs of one agent.

    Attributes:
        agent: The agent.
        deps: Its dependencies, the same object for every Step.
        deps_factory: Makes them for every Step instead.
        resolve_model: Chooses the model instead of the agent's own.
        usage_limits: Limits of one turn.
        stream: Whether models are asked to stream; one that cannot is not.
    """

    agent: AbstractAgent[Any, Any]
    deps: Any = None
    deps_factory: DepsFactory | None = None
    resolve_model: ResolveModel | None = None
    usage_limits: UsageLimits | None = None
    stream: bool = True

    def model(self, settings: Mapping[str, Any]) -> Model | str | None:
        """The model of a session with these settings; None when the agent has none."""
        return self.agent.model if self.resolve_model is None else self.resolve_model(settings)

    def _model_arguments(self, settings: Mapping[str, Any], asks_model: bool) -> dict[str, Any]:
        """What a run is given in place of the agent's own model and settings."""
        model = chosen = self.model(settings)
        model_settings: dict[str, Any] = {}
        if asks_model:
            model, model_settings = without_client_retries(chosen)
        arguments: dict[str, Any] = {}
        if self.resolve_model is not None or model is not chosen:
            arguments["model"] = model
        if model_settings:
            arguments["model_settings"] = model_settings
        return arguments

    async def step_deps(self, context: SessionContext) -> Any:
        """The dependencies of one Step."""
        if self.deps_factory is None:
            return self.deps
        deps = self.deps_factory(context)
        return await deps if inspect.isawaitable(deps) else deps

    @asynccontextmanager
    async def open(
        self,
        context: SessionContext,
        deps: Any,
        history: Sequence[ModelMessage],
        capability: SessionCapability,
        *,
        usage: RunUsage,
        asks_model: bool = False,
        built_in_tools: Sequence[str] = (),
        deferred_tool_results: DeferredToolResults | None = None,
    ) -> AsyncIterator[AgentRun[Any, Any]]:
        """A run of the agent that continues a conversation without a new prompt.

        Args:
            context: The step.
            deps: The agent's dependencies.
            history: The conversation.
            capability: What the session adds to the run.
            usage: What the turn used so far.
            asks_model: Whether the run makes a request to the model.
            built_in_tools: The session's own tools that the model is offered.
            deferred_tool_results: Approvals of the call that the run is for.

        Raises:
            UserError: The model's name is of no known model, or its provider has no key.
        """
        arguments = self._model_arguments(context.session_settings, asks_model)
        if self.usage_limits is not None:
            arguments["usage_limits"] = self.usage_limits
        if built_in_tools:
            arguments["toolsets"] = [_built_in_toolset(built_in_tools)]
        if _takes_conversation_id(type(self.agent)):
            arguments["conversation_id"] = context.flow_id
        capabilities: list[AbstractCapability[Any]] = [capability]
        if self.agent.event_stream_handler is not None:
            # A run that is left early does not call the agent's own handler.
            capabilities.append(ProcessEventStream(self.agent.event_stream_handler))
        async with self.agent.iter(
            None,
            message_history=list(history),
            deps=deps,
            usage=usage,
            capabilities=capabilities,
            metadata={CONTEXT_METADATA_KEY: context.metadata()},
            deferred_tool_results=deferred_tool_results,
            infer_name=False,
            **arguments,
        ) as run:
            yield run

    async def system_prompts(self, deps: Any, history: Sequence[ModelMessage]) -> list[SystemPromptPart]:
        """The agent's system prompts for a conversation that has none; a run adds them to a new prompt only."""
        requests = (message for message in history if isinstance(message, ModelRequest))
        if any(isinstance(part, SystemPromptPart) for request in requests for part in request.parts):
            return []
        return list(await self.agent.system_prompt_parts(deps=deps, message_history=list(history)))

    def streams(self, settings: Mapping[str, Any]) -> bool:
        """Whether model steps of a session with these settings stream."""
        return self.stream and can_stream(self.model(settings))


def can_stream(model: Model | str | None) -> bool:
    """Whether a model implements streamed requests; the name of one stands for a provider that does."""
    if isinstance(model, FallbackModel):
        return all(can_stream(one) for one in model.models)
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return not isinstance(model, Model) or type(model).request_stream is not Model.request_stream


def _takes_conversation_id(agent_type: type[AbstractAgent[Any, Any]]) -> bool:
    return "conversation_id" in inspect.signature(agent_type.iter).parameters


def _built_in_toolset(names: Sequence[str]) -> AbstractToolset[Any]:
    """The session's own tools as the model reads them; the session runs them."""
    return FunctionToolset[Any](
        [
            Tool.from_schema(_run_by_the_session, name, definition.description, dict(definition.parameters))
            for name, definition in BUILT_IN_TOOL_DEFINITIONS.items()
            if name in names
        ]
    )


async def _run_by_the_session(**arguments: Any) -> str:
    raise AssertionError("the session runs its built-in tools itself")
