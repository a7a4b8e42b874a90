from datetime import timedelta
from typing import Any

import pytest

from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.policies import resolve_tool_policy
from dex_agents.session.step_options import repeatable_options, single_attempt_options
from dex_agents.session.tool_calls import tool_step_type
from dex_agents.session.tool_values import ToolEffect, ToolPolicy

READ = ToolEffect.READ
WRITE = ToolEffect.NON_IDEMPOTENT_WRITE


@pytest.mark.parametrize(
    ("effect", "step", "requires_approval"),
    [
        (ToolEffect.READ, "CallTool", False),
        (ToolEffect.IDEMPOTENT_WRITE, "CallTool", False),
        (ToolEffect.NON_IDEMPOTENT_WRITE, "CallSingleAttemptTool", True),
        (ToolEffect.UNCLASSIFIED, "CallSingleAttemptTool", True),
    ],
)
def test_an_effect_decides_the_step_and_the_default_approval(
    effect: ToolEffect, step: str, requires_approval: bool
) -> None:
    policy = resolve_tool_policy("tool", effect, tool_policies={}, default_tool_effect=READ)
    assert (policy.effect, policy.requires_approval) == (effect, requires_approval)
    assert tool_step_type(effect) == step


@pytest.mark.parametrize(
    ("policy", "framework_effect", "framework_approval", "effect", "requires_approval"),
    [
        (None, None, None, ToolEffect.UNCLASSIFIED, True),
        (None, READ, None, READ, False),
        (None, READ, True, READ, True),
        (None, WRITE, False, WRITE, False),
        (ToolPolicy(effect=WRITE), READ, None, WRITE, True),
        (ToolPolicy(effect=READ), WRITE, True, READ, False),
        (ToolPolicy(effect=WRITE, requires_approval=False), READ, True, WRITE, False),
        (ToolPolicy(requires_approval=True), READ, False, READ, True),
        (ToolPolicy(requires_approval=False), None, None, ToolEffect.UNCLASSIFIED, False),
        (ToolPolicy(), READ, True, READ, False),
    ],
)
def test_the_session_policy_beats_the_framework_which_beats_the_default(
    policy: ToolPolicy | None,
    framework_effect: ToolEffect | None,
    framework_approval: bool | None,
    effect: ToolEffect,
    requires_approval: bool,
) -> None:
    resolved = resolve_tool_policy(
        "tool",
        framework_effect,
        tool_policies={} if policy is None else {"tool": policy, "other": ToolPolicy(effect=READ)},
        default_tool_effect=ToolEffect.UNCLASSIFIED,
        framework_requires_approval=framework_approval,
    )
    assert (resolved.effect, resolved.requires_approval) == (effect, requires_approval)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("tool_policies", ["refund"], TypeError),
        ("tool_policies", {"refund": "read"}, TypeError),
        ("tool_policies", {"refund": ToolPolicy(effect="reed")}, ValueError),  # type: ignore[arg-type]
        ("tool_policies", {"refund": ToolPolicy(requires_approval="yes")}, TypeError),  # type: ignore[arg-type]
        ("default_tool_effect", "writes", ValueError),
        ("event_stream_capacity_bytes", 0, ValueError),
        ("event_stream_capacity_bytes", 1.5, TypeError),
        ("interrupt_deadline", 30, TypeError),
        ("interrupt_deadline", timedelta(0), ValueError),
        ("max_tool_result_bytes", 10, ValueError),
        ("max_tool_result_bytes", True, TypeError),
        ("tool_result_overflow", "cut", ValueError),
        ("max_message_bytes", 1, ValueError),
        ("max_model_step_continuations", -1, ValueError),
        ("tool_calls_read_messages", 1, TypeError),
        ("attempt_backoff", timedelta(seconds=-1), ValueError),
    ],
)
def test_a_wrong_option_is_refused_by_name(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        AgentSessionOptions(**{name: value})


def test_effects_may_be_given_as_plain_text() -> None:
    options = AgentSessionOptions(
        default_tool_effect="read",  # type: ignore[arg-type]
        tool_policies={"refund": ToolPolicy(effect="non_idempotent_write")},  # type: ignore[arg-type]
    )
    policy = resolve_tool_policy(
        "refund", tool_policies=options.tool_policies, default_tool_effect=options.default_tool_effect
    )
    assert policy.effect is ToolEffect.NON_IDEMPOTENT_WRITE
    assert policy.requires_approval


def test_attempt_rules_are_those_of_the_contract() -> None:
    repeatable = repeatable_options("Route", timedelta(seconds=1))
    assert repeatable.attempt_timeout == timedelta(minutes=15)
    assert repeatable.heartbeat_timeout == timedelta(minutes=2)
    assert (repeatable.retry.attempts, repeatable.retry.window) == (3, timedelta(minutes=30))
    assert single_attempt_options("Route").retry.attempts == 1
