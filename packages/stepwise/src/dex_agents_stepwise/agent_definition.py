"""What an agent is: its instructions, model, tools and limits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from dex_agents import (
    BUILT_IN_TOOL_DEFINITIONS,
    AgentPlan,
    CompactionPolicy,
    InteractionMode,
    ToolEffect,
    ToolPolicy,
    TurnRefusedError,
)
from dex_agents.session.built_in_tools import WRITE_TODOS
from dex_agents_stepwise.function_tools import FunctionTool
from dex_agents_stepwise.model_client import ModelClient, ModelSettings
from dex_agents_stepwise.tool_sources import ToolSource, could_offer

__all__ = [
    "DEFAULT_MAX_MODEL_CALLS_PER_TURN",
    "DEFAULT_TOOL_SOURCE_LISTING_TIMEOUT",
    "AgentDefinition",
    "InstructionContext",
    "Instructions",
    "ModelResolutionError",
    "PlanningToolChoice",
    "ResolveModel",
]

DEFAULT_MAX_MODEL_CALLS_PER_TURN = 100
DEFAULT_TOOL_SOURCE_LISTING_TIMEOUT = timedelta(seconds=10)

PlanningToolChoice: TypeAlias = Literal["auto", "required"]
ResolveModel: TypeAlias = Callable[[Mapping[str, Any]], ModelClient]


class ModelResolutionError(Exception):
    """`AgentDefinition.resolve_model` gave no model client; the cause, which may quote the settings, is in the log.

    Args:
        problem: What it did instead.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"AgentDefinition.resolve_model {problem}")


@dataclass(frozen=True, kw_only=True)
class InstructionContext:
    """What an instruction function may look at.

    Attributes:
        flow_id: The session's ID.
        turn_id: The turn.
        attempt: The attempt of this model call, from 1.
        interaction_mode: Kind of turn.
        plan: The session's plan.
        session_settings: The turn's settings; read-only.
    """

    flow_id: str
    turn_id: str
    attempt: int
    interaction_mode: InteractionMode
    plan: AgentPlan | None
    session_settings: Mapping[str, Any] = field(default_factory=dict)


Instructions: TypeAlias = str | Callable[[InstructionContext], str | Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    """An agent of the built-in loop.

    Attributes:
        name: The agent's name.
        instructions: The system prompt, or a function of an `InstructionContext` that returns it (sync or async) and
            is evaluated in every model call, so that a deploy changes the next one.
        model: The model client.
        resolve_model: Function of the turn's session settings that returns the model client in place of `model`, for
            model calls, summaries and token estimates. It must be quick: choose from clients that exist. Only of a
            `TurnRefusedError` that it raises does the text reach the turn's error.
        model_settings: Settings of every model call.
        tools: Tools made by `function_tool`, offered in this order.
        tool_sources: Sources of tools that are listed in every model call, such as `dex_agents_mcp.McpToolSource`;
            their tools are offered behind `tools`.
        tool_source_listing_timeout: How long a model call waits for a source's listing; one that takes longer offers
            no tools in it.
        tool_policies: Policies by tool name; they beat what a tool says about itself.
        default_tool_effect: Effect of a tool that declares none.
        built_in_tools: Names of the session's built-in tools that the model is offered, behind all others:
            `ask_user`, `durable_wait`, `write_todos`.
        plan_mode_enabled: Accept messages with `plan_mode`; needs `write_todos` in `built_in_tools`.
        planning_tool_choice: What a planning turn asks of the model: `auto` lets it answer in text instead of writing
            the plan; `required` makes it call `write_todos` first while there is no draft, with a provider and a model
            that can be made to.
        compaction: When older messages are summarised; None never does.
        max_durable_wait: The longest `durable_wait`, a positive multiple of one second; None for the session's
            default.
        max_model_calls_per_turn: After this many model calls in a turn, the next one offers no tools.
        interrupt_deadline: How long an approval or a question waits before it is decided; None waits for ever.
        event_stream_capacity_bytes: Bytes of live events kept for all sessions together; None for the session's
            default.

    Raises:
        TypeError: A field has the wrong type; names it.
        ValueError: A field has a value it cannot have; names it.
    """

    name: str
    instructions: Instructions
    model: ModelClient
    resolve_model: ResolveModel | None = None
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    tools: Sequence[FunctionTool[..., Any]] = ()
    tool_sources: Sequence[ToolSource[Any]] = ()
    tool_source_listing_timeout: timedelta = DEFAULT_TOOL_SOURCE_LISTING_TIMEOUT
    tool_policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    default_tool_effect: ToolEffect = ToolEffect.UNCLASSIFIED
    built_in_tools: Sequence[str] = ()
    plan_mode_enabled: bool = False
    planning_tool_choice: PlanningToolChoice = "auto"
    compaction: CompactionPolicy | None = None
    max_durable_wait: timedelta | None = None
    max_model_calls_per_turn: int = DEFAULT_MAX_MODEL_CALLS_PER_TURN
    interrupt_deadline: timedelta | None = None
    event_stream_capacity_bytes: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ValueError(f"AgentDefinition.name must be non-blank text, not {self.name!r}")
        if not isinstance(self.instructions, str) and not callable(self.instructions):
            raise TypeError(f"AgentDefinition.instructions must be text or a function, not {self.instructions!r}")
        if not isinstance(self.model, ModelClient) or isinstance(self.model, type):
            raise TypeError(
                "AgentDefinition.model must be a ModelClient with provider, api and generate, "
                f"not {type(self.model).__name__ if not isinstance(self.model, type) else self.model!r}"
            )
        if self.resolve_model is not None and not callable(self.resolve_model):
            raise TypeError(f"AgentDefinition.resolve_model must be a function or None, not {self.resolve_model!r}")
        if inspect.iscoroutinefunction(self.resolve_model):
            raise TypeError("AgentDefinition.resolve_model must not be async: it only chooses a client that exists")
        if not isinstance(self.model_settings, ModelSettings):
            raise TypeError(f"AgentDefinition.model_settings must be ModelSettings, not {self.model_settings!r}")
        self._check_tools()
        self._check_tool_sources()
        self._check_built_in_tools()
        self._check_planning()
        self._check_policies()
        if self.compaction is not None and not isinstance(self.compaction, CompactionPolicy):
            raise TypeError(f"AgentDefinition.compaction must be a CompactionPolicy or None, not {self.compaction!r}")
        _check_positive("max_model_calls_per_turn", self.max_model_calls_per_turn)
        if self.event_stream_capacity_bytes is not None:
            _check_positive("event_stream_capacity_bytes", self.event_stream_capacity_bytes)
        if self.interrupt_deadline is not None:
            _check_positive_duration("interrupt_deadline", self.interrupt_deadline)
        if self.max_durable_wait is not None:
            _check_positive_duration("max_durable_wait", self.max_durable_wait)
            if self.max_durable_wait % timedelta(seconds=1):
                raise ValueError(
                    f"AgentDefinition.max_durable_wait must be a multiple of one second, not {self.max_durable_wait}"
                )

    def model_for(self, session_settings: Mapping[str, Any]) -> ModelClient:
        """The model client of a turn with these settings.

        Raises:
            ModelResolutionError: `resolve_model` raised, or returned no client.
            TurnRefusedError: `resolve_model` raised it.
        """
        if self.resolve_model is None:
            return self.model
        try:
            model = self.resolve_model(MappingProxyType(dict(session_settings)))
        except TurnRefusedError:
            raise
        except Exception as error:  # its text often quotes what it was given, and snapshots show a turn's error
            raise ModelResolutionError(f"raised {type(error).__name__}") from error
        if isinstance(model, type) or not isinstance(model, ModelClient):
            raise ModelResolutionError(f"must return a ModelClient, not a {type(model).__name__}")
        return model

    def _check_tools(self) -> None:
        object.__setattr__(self, "tools", tuple(self.tools))
        names = set()
        for tool in self.tools:
            if not isinstance(tool, FunctionTool):
                raise TypeError(f"AgentDefinition.tools: {tool!r} is not a tool; wrap the function in function_tool")
            if tool.name in names:
                raise ValueError(f"AgentDefinition.tools: two tools are named {tool.name!r}")
            names.add(tool.name)

    def _check_tool_sources(self) -> None:
        object.__setattr__(self, "tool_sources", tuple(self.tool_sources))
        _check_positive_duration("tool_source_listing_timeout", self.tool_source_listing_timeout)
        names = set()
        for source in self.tool_sources:
            if isinstance(source, type) or not isinstance(source, ToolSource):
                raise TypeError(
                    f"AgentDefinition.tool_sources: {source!r} is not a ToolSource with source_name, list_tools, "
                    "deferred_tool_call, execute_deferred_tool_call and poll_tool_task"
                )
            if source.source_name in names:
                raise ValueError(
                    f"AgentDefinition.tool_sources: two sources are named {source.source_name!r}; "
                    "give one another source_name"
                )
            names.add(source.source_name)

    def _check_built_in_tools(self) -> None:
        if isinstance(self.built_in_tools, str):
            raise TypeError(
                f"AgentDefinition.built_in_tools must be a sequence of names, not the text {self.built_in_tools!r}"
            )
        object.__setattr__(self, "built_in_tools", tuple(self.built_in_tools))
        for name in self.built_in_tools:
            if not isinstance(name, str) or name not in BUILT_IN_TOOL_DEFINITIONS:
                known = ", ".join(BUILT_IN_TOOL_DEFINITIONS)
                raise ValueError(
                    f"AgentDefinition.built_in_tools has {name!r}; the built-in tools of this release are {known}"
                )
            if self.built_in_tools.count(name) > 1:
                raise ValueError(f"AgentDefinition.built_in_tools names {name!r} twice")
            if any(tool.name == name for tool in self.tools):
                raise ValueError(f"AgentDefinition.tools: tool {name!r} uses the name of an enabled built-in tool")

    def _check_planning(self) -> None:
        if not isinstance(self.plan_mode_enabled, bool):
            raise TypeError(f"AgentDefinition.plan_mode_enabled must be a bool, not {self.plan_mode_enabled!r}")
        if self.plan_mode_enabled and WRITE_TODOS not in self.built_in_tools:
            raise ValueError(f"AgentDefinition.plan_mode_enabled needs {WRITE_TODOS!r} in built_in_tools")
        if self.planning_tool_choice not in get_args(PlanningToolChoice):
            raise ValueError(
                f"AgentDefinition.planning_tool_choice must be 'auto' or 'required', not {self.planning_tool_choice!r}"
            )

    def _check_policies(self) -> None:
        object.__setattr__(self, "tool_policies", dict(self.tool_policies))
        for name, policy in self.tool_policies.items():
            if not isinstance(policy, ToolPolicy):
                raise TypeError(f"AgentDefinition.tool_policies[{name!r}] must be a ToolPolicy, not {policy!r}")
            if name in self.built_in_tools:
                raise ValueError(
                    f"AgentDefinition.tool_policies[{name!r}] is for a built-in tool, whose policy is fixed; remove it"
                )
            if all(tool.name != name for tool in self.tools) and not any(
                could_offer(source, name) for source in self.tool_sources
            ):
                raise ValueError(f"AgentDefinition.tool_policies: the agent has no tool named {name!r}")
        try:
            object.__setattr__(self, "default_tool_effect", ToolEffect(self.default_tool_effect))
        except ValueError:
            effects = ", ".join(repr(effect.value) for effect in ToolEffect)
            raise ValueError(
                f"AgentDefinition.default_tool_effect must be one of {effects}, not {self.default_tool_effect!r}"
            ) from None


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"AgentDefinition.{name} must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"AgentDefinition.{name} must be at least 1, not {value}")


def _check_positive_duration(name: str, value: object) -> None:
    if not isinstance(value, timedelta):
        raise TypeError(f"AgentDefinition.{name} must be a timedelta or None, not {value!r}")
    if value <= timedelta(0):
        raise ValueError(f"AgentDefinition.{name} must be positive, not {value}")
