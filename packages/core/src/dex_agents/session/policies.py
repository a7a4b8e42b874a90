"""Effects and policies: which Step runs a call, how often, whether a person must approve, and what a loss means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dex_agents.session.tool_values import AgentToolCallRecordStatus, ResolvedToolPolicy, ToolEffect, ToolPolicy

__all__ = ["EFFECT_RULES", "EffectRule", "resolve_tool_policy"]


@dataclass(frozen=True, slots=True)
class EffectRule:
    """What follows from an effect.

    Attributes:
        may_repeat: Whether a failed or lost attempt is followed by another one.
        requires_approval: The default when no policy says otherwise.
        status_when_lost: The record's status once no attempt is left.
    """

    may_repeat: bool
    requires_approval: bool
    status_when_lost: AgentToolCallRecordStatus


EFFECT_RULES: Mapping[ToolEffect, EffectRule] = {
    ToolEffect.READ: EffectRule(True, False, AgentToolCallRecordStatus.FAILED),
    ToolEffect.IDEMPOTENT_WRITE: EffectRule(True, False, AgentToolCallRecordStatus.OUTCOME_UNKNOWN),
    ToolEffect.NON_IDEMPOTENT_WRITE: EffectRule(False, True, AgentToolCallRecordStatus.OUTCOME_UNKNOWN),
    ToolEffect.UNCLASSIFIED: EffectRule(False, True, AgentToolCallRecordStatus.OUTCOME_UNKNOWN),
}


def resolve_tool_policy(
    tool_name: str,
    framework_effect: ToolEffect | None = None,
    *,
    tool_policies: Mapping[str, ToolPolicy],
    default_tool_effect: ToolEffect,
    framework_requires_approval: bool | None = None,
) -> ResolvedToolPolicy:
    """The policy in force for a tool: the session's policy, then the framework's or tool's own, then the default.

    Args:
        tool_name: Name of the tool.
        framework_effect: The effect the framework or the tool declares.
        tool_policies: The session's policies by tool name.
        default_tool_effect: The effect when nothing else says one.
        framework_requires_approval: Whether the framework or the tool asks for approval; counts only for a tool
            without a policy of the session.
    """
    policy = tool_policies.get(tool_name)
    effect = framework_effect
    requires_approval = framework_requires_approval
    if policy is not None:
        effect = policy.effect or framework_effect
        requires_approval = policy.requires_approval
    effect = effect or default_tool_effect
    if requires_approval is None:
        requires_approval = EFFECT_RULES[effect].requires_approval
    return ResolvedToolPolicy(effect=ToolEffect(effect), requires_approval=requires_approval)
