"""What an agent is: its instructions, model, tools and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from dex_agents import BUILT_IN_TOOL_DEFINITIONS, AgentPlan, InteractionMode, ToolEffect, ToolPolicy
from dex_agents_stepwise.function_tools import FunctionTool
from dex_agents_stepwise.model_client import ModelClient, ModelSettings

__all__ = ["DEFAULT_MAX_MODEL_CALLS_PER_TURN", "AgentDefinition", "InstructionContext", "Instructions"]

DEFAULT_MAX_MODEL_CALLS_PER_TURN = 100


@dataclass(frozen=True, kw_only=True)
class InstructionContext:
    """What an instruction function may look at.

    Attributes:
        flow_id: The session's ID.
        turn_id: The turn.
        attempt: The attempt of this model call, from 1.
        interaction_mode: Kind of turn.
        plan: The session's plan.
    """

    flow_id: str
    turn_id: str
    attempt: int
    interaction_mode: InteractionMode
    plan: AgentPlan | None


Instructions: TypeAlias = str | Callable[[InstructionContext], str | Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    """An agent of the built-in loop.

    Attributes:
        name: The agent's name.
        instructions: The system prompt, or a function of an `InstructionContext` that returns it (sync or async) and
            is evaluated in every model call, so that a deploy changes the next one.
        model: The model client.
        model_settings: Settings of every model call.
        tools: Tools made by `function_tool`, offered in this order.
        tool_policies: Policies by tool name; they beat what a tool says about itself.
        default_tool_effect: Effect of a tool that declares none.
        built_in_tools: Names of the session's built-in tools that the model is offered, behind `tools`: `ask_user`,
            `durable_wait`.
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
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    tools: Sequence[FunctionTool[..., Any]] = ()
    tool_policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    default_tool_effect: ToolEffect = ToolEffect.UNCLASSIFIED
    built_in_tools: Sequence[str] = ()
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
        if not isinstance(self.model_settings, ModelSettings):
            raise TypeError(f"AgentDefinition.model_settings must be ModelSettings, not {self.model_settings!r}")
        self._check_tools()
        self._check_built_in_tools()
        self._check_policies()
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

    def _check_tools(self) -> None:
        object.__setattr__(self, "tools", tuple(self.tools))
        names = set()
        for tool in self.tools:
            if not isinstance(tool, FunctionTool):
                raise TypeError(f"AgentDefinition.tools: {tool!r} is not a tool; wrap the function in function_tool")
            if tool.name in names:
                raise ValueError(f"AgentDefinition.tools: two tools are named {tool.name!r}")
            names.add(tool.name)

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

    def _check_policies(self) -> None:
        object.__setattr__(self, "tool_policies", dict(self.tool_policies))
        for name, policy in self.tool_policies.items():
            if not isinstance(policy, ToolPolicy):
                raise TypeError(f"AgentDefinition.tool_policies[{name!r}] must be a ToolPolicy, not {policy!r}")
            if name in self.built_in_tools:
                raise ValueError(
                    f"AgentDefinition.tool_policies[{name!r}] is for a built-in tool, whose policy is fixed; remove it"
                )
            if all(tool.name != name for tool in self.tools):
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
