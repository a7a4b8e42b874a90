"""Options of a session Flow, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from dex_agents.session.built_in_tools import BUILT_IN_TOOL_DEFINITIONS
from dex_agents.session.tool_values import ToolEffect, ToolPolicy

__all__ = ["AgentSessionOptions"]

DEFAULT_EVENT_STREAM_CAPACITY_BYTES = 10 * 1024 * 1024
DEFAULT_MAX_TOOL_RESULT_BYTES = 1024 * 1024
DEFAULT_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
DEFAULT_MAX_MODEL_STEP_CONTINUATIONS = 25
DEFAULT_MAX_DURABLE_WAIT = timedelta(days=365)
MIN_TOOL_RESULT_BYTES = 1024
MIN_MESSAGE_BYTES = 64 * 1024
# Now and this is still a date of the calendar; beyond it, the commit that adds them could never succeed.
LONGEST_DURATION = timedelta(days=365_000)

_EFFECT_NAMES = ", ".join(effect.value for effect in ToolEffect)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionOptions:
    """How sessions of one Flow type behave.

    Args:
        tool_policies: Policies by tool name; they beat what frameworks and tools say.
        default_tool_effect: Effect of a tool that nothing else classifies.
        event_stream_capacity_bytes: Bytes of live events kept for all sessions of the Flow type together.
        interrupt_deadline: How long an approval waits before the call is rejected; None waits for ever.
        max_tool_result_bytes: Most UTF-8 bytes of one tool result.
        tool_result_overflow: What a larger result does: `fail` the call, or `truncate` the text with a visible mark.
        max_message_bytes: Most UTF-8 bytes of one message; a larger one fails its turn.
        max_model_step_continuations: How many model steps of one turn may end without an answer or tool calls.
        tool_calls_read_messages: Whether tool calls receive the stored messages; costs reading them for each call.
        built_in_tools: Names of the built-in tools the model is offered: `ask_user`, `durable_wait`.
        max_durable_wait: The longest `durable_wait`, a positive multiple of one second.
        attempt_backoff: The wait before a failed model or tool attempt is repeated; doubled up to 30 seconds.

    Raises:
        TypeError: An option has the wrong type; names it.
        ValueError: An option has a value it cannot have; names it.
    """

    tool_policies: Mapping[str, ToolPolicy] = field(default_factory=dict)
    default_tool_effect: ToolEffect = ToolEffect.UNCLASSIFIED
    event_stream_capacity_bytes: int = DEFAULT_EVENT_STREAM_CAPACITY_BYTES
    interrupt_deadline: timedelta | None = None
    max_tool_result_bytes: int = DEFAULT_MAX_TOOL_RESULT_BYTES
    tool_result_overflow: Literal["fail", "truncate"] = "fail"
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_model_step_continuations: int = DEFAULT_MAX_MODEL_STEP_CONTINUATIONS
    tool_calls_read_messages: bool = False
    built_in_tools: Sequence[str] = ()
    max_durable_wait: timedelta = DEFAULT_MAX_DURABLE_WAIT
    attempt_backoff: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check_policies(self.tool_policies)
        if not _is_effect(self.default_tool_effect):
            raise ValueError(f"default_tool_effect must be one of {_EFFECT_NAMES}, not {self.default_tool_effect!r}")
        _check_whole_number("event_stream_capacity_bytes", self.event_stream_capacity_bytes, 1)
        _check_whole_number("max_tool_result_bytes", self.max_tool_result_bytes, MIN_TOOL_RESULT_BYTES)
        _check_whole_number("max_message_bytes", self.max_message_bytes, MIN_MESSAGE_BYTES)
        _check_whole_number("max_model_step_continuations", self.max_model_step_continuations, 0)
        if self.tool_result_overflow not in ("fail", "truncate"):
            raise ValueError(f"tool_result_overflow must be 'fail' or 'truncate', not {self.tool_result_overflow!r}")
        if not isinstance(self.tool_calls_read_messages, bool):
            raise TypeError(f"tool_calls_read_messages must be a bool, not {self.tool_calls_read_messages!r}")
        _check_built_in_tools(self.built_in_tools, self.tool_policies)
        _check_duration("max_durable_wait", self.max_durable_wait, timedelta(seconds=1))
        if self.max_durable_wait.microseconds:
            raise ValueError(f"max_durable_wait must be a multiple of one second, not {self.max_durable_wait}")
        _check_duration("attempt_backoff", self.attempt_backoff, timedelta(0))
        if self.interrupt_deadline is not None:
            _check_duration("interrupt_deadline", self.interrupt_deadline, timedelta(milliseconds=1))


def _is_effect(value: object) -> bool:
    return isinstance(value, str) and value in ToolEffect.__members__.values()


def _check_policies(policies: object) -> None:
    if not isinstance(policies, Mapping):
        raise TypeError(f"tool_policies must map tool names to ToolPolicy values, not {policies!r}")
    for name, policy in policies.items():
        if not isinstance(name, str) or not isinstance(policy, ToolPolicy):
            raise TypeError(f"tool_policies[{name!r}] must be a ToolPolicy under a tool name, not {policy!r}")
        if policy.effect is not None and not _is_effect(policy.effect):
            raise ValueError(f"tool_policies[{name!r}].effect must be one of {_EFFECT_NAMES}, not {policy.effect!r}")
        if policy.requires_approval is not None and not isinstance(policy.requires_approval, bool):
            raise TypeError(f"tool_policies[{name!r}].requires_approval must be a bool or None")


def _check_built_in_tools(names: object, policies: Mapping[str, ToolPolicy]) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"built_in_tools must be a sequence of names, not {names!r}")
    for name in names:
        if name not in BUILT_IN_TOOL_DEFINITIONS:
            known = ", ".join(BUILT_IN_TOOL_DEFINITIONS)
            raise ValueError(f"built_in_tools has {name!r}; the built-in tools are {known}")
        if name in policies:
            raise ValueError(f"tool_policies[{name!r}] is for a built-in tool, whose policy is fixed; remove it")
    if len(set(names)) < len(names):
        raise ValueError(f"built_in_tools names a tool twice: {list(names)!r}")


def _check_whole_number(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def _check_duration(name: str, value: object, least: timedelta) -> None:
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a datetime.timedelta, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value > LONGEST_DURATION:
        raise ValueError(f"{name} must be at most {LONGEST_DURATION}, not {value}")
