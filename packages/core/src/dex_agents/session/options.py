"""Options of a session Flow, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from dex_agents.session.built_in_tools import BUILT_IN_TOOL_DEFINITIONS, WRITE_TODOS
from dex_agents.session.compaction_policy import CompactionPolicy
from dex_agents.session.message_window import MessageStorageLimits
from dex_agents.session.option_checks import check_bool, check_duration, check_whole_number
from dex_agents.session.tool_values import ToolEffect, ToolPolicy
from dex_agents.session.turn_limits import TurnLimits

__all__ = ["AgentSessionOptions"]

DEFAULT_EVENT_STREAM_CAPACITY_BYTES = 10 * 1024 * 1024
DEFAULT_MAX_TOOL_RESULT_BYTES = 1024 * 1024
DEFAULT_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
DEFAULT_MAX_MODEL_STEP_CONTINUATIONS = 25
DEFAULT_MAX_DURABLE_WAIT = timedelta(days=365)
MAX_MESSAGE_CHUNK_BYTES = 8 * 1024 * 1024
MIN_TOOL_RESULT_BYTES = 1024
MIN_MESSAGE_BYTES = 64 * 1024

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
        built_in_tools: Names of the built-in tools the model is offered: `ask_user`, `durable_wait`, `write_todos`.
        max_durable_wait: The longest `durable_wait`, a positive multiple of one second.
        plan_mode_enabled: Accept messages with `plan_mode`; needs `write_todos` in `built_in_tools` and a runner with
            plan mode.
        compaction: When older messages are summarised; None never does. Needs a runner with the three methods of
            `ContextCompactor`.
        turn_limits: What one turn may use; a session's settings may say otherwise.
        message_window_size: Most messages kept one by one; at least `message_chunk_size`.
        message_chunk_size: Most messages of an archive chunk.
        message_chunk_max_bytes: Most bytes of an archive chunk, 1 to 8 MiB; a larger message has a chunk of its own.
        retained_message_limit: With `compaction`, the messages retention always keeps; None keeps every message.
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
    plan_mode_enabled: bool = False
    compaction: CompactionPolicy | None = None
    turn_limits: TurnLimits = field(default_factory=TurnLimits)
    message_window_size: int = 64
    message_chunk_size: int = 32
    message_chunk_max_bytes: int = 1024 * 1024
    retained_message_limit: int | None = 1_000
    attempt_backoff: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        _check_policies(self.tool_policies)
        if not _is_effect(self.default_tool_effect):
            raise ValueError(f"default_tool_effect must be one of {_EFFECT_NAMES}, not {self.default_tool_effect!r}")
        check_whole_number("event_stream_capacity_bytes", self.event_stream_capacity_bytes, 1)
        check_whole_number("max_tool_result_bytes", self.max_tool_result_bytes, MIN_TOOL_RESULT_BYTES)
        check_whole_number("max_message_bytes", self.max_message_bytes, MIN_MESSAGE_BYTES)
        check_whole_number("max_model_step_continuations", self.max_model_step_continuations, 0)
        if self.tool_result_overflow not in ("fail", "truncate"):
            raise ValueError(f"tool_result_overflow must be 'fail' or 'truncate', not {self.tool_result_overflow!r}")
        check_bool("tool_calls_read_messages", self.tool_calls_read_messages)
        check_bool("plan_mode_enabled", self.plan_mode_enabled)
        _check_built_in_tools(self.built_in_tools, self.tool_policies)
        if self.plan_mode_enabled and WRITE_TODOS not in self.built_in_tools:
            raise ValueError(f"plan_mode_enabled needs {WRITE_TODOS!r} in built_in_tools")
        if self.compaction is not None and not isinstance(self.compaction, CompactionPolicy):
            raise TypeError(f"compaction must be a CompactionPolicy or None, not {self.compaction!r}")
        if not isinstance(self.turn_limits, TurnLimits):
            raise TypeError(f"turn_limits must be a TurnLimits, not {self.turn_limits!r}")
        check_whole_number("message_chunk_size", self.message_chunk_size, 1)
        check_whole_number("message_window_size", self.message_window_size, self.message_chunk_size)
        check_whole_number("message_chunk_max_bytes", self.message_chunk_max_bytes, 1, MAX_MESSAGE_CHUNK_BYTES)
        if self.retained_message_limit is not None:
            check_whole_number("retained_message_limit", self.retained_message_limit, 1)
        check_duration("max_durable_wait", self.max_durable_wait, timedelta(seconds=1))
        if self.max_durable_wait.microseconds:
            raise ValueError(f"max_durable_wait must be a multiple of one second, not {self.max_durable_wait}")
        check_duration("attempt_backoff", self.attempt_backoff, timedelta(0))
        if self.interrupt_deadline is not None:
            check_duration("interrupt_deadline", self.interrupt_deadline, timedelta(milliseconds=1))

    @property
    def message_storage(self) -> MessageStorageLimits:
        """How messages are stored; without compaction nothing covers old messages, so retention keeps them."""
        return MessageStorageLimits(
            window_size=self.message_window_size,
            chunk_size=self.message_chunk_size,
            chunk_max_bytes=self.message_chunk_max_bytes,
            retained_message_limit=None if self.compaction is None else self.retained_message_limit,
        )


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
