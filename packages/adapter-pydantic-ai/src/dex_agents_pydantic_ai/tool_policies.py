"""What the framework says about a tool's effect and approval, and the policy that follows for one call."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pydantic_ai.tools import ToolDefinition

from dex_agents import AgentTurnContext, ResolvedToolPolicy, ToolEffect
from dex_agents.session.built_in_tools import BUILT_IN_TOOL_POLICY
from dex_agents_pydantic_ai.framework_messages import FRAMEWORK_VERSION

__all__ = [
    "EFFECT_METADATA_KEY",
    "InvalidToolEffectError",
    "ToolReference",
    "declared_effect",
    "decode_reference",
    "encode_reference",
    "resolve_policy",
]

#: The key of a tool's metadata that says its effect: `@agent.tool(metadata={"effect": "read"})`.
EFFECT_METADATA_KEY = "effect"


class InvalidToolEffectError(ValueError):
    """A tool's metadata has an `effect` that is none of the four.

    Args:
        tool_name: The tool.
        effect: What its metadata says.
    """

    is_retryable = False

    def __init__(self, tool_name: str, effect: object) -> None:
        known = ", ".join(effect.value for effect in ToolEffect)
        super().__init__(
            f"tool {tool_name!r}: metadata[{EFFECT_METADATA_KEY!r}] must be one of {known}, not {effect!r}"
        )


class ToolReference(msgspec.Struct, frozen=True, kw_only=True):
    """What a call's `tool_source_reference` holds.

    Attributes:
        is_known: Whether the agent had the tool when the model asked for it.
        retry: How often the tool asked for a retry in a row before this call.
        is_approval_waived: Whether the tool asks for approval and the session's policy says that it needs none.
        pydantic_ai: The version of the framework that wrote the evidence.
        evidence: Messages without which the framework would not let the model call the tool.
    """

    pydantic_ai: str = FRAMEWORK_VERSION
    is_known: bool = True
    retry: int = 0
    is_approval_waived: bool = False
    evidence: tuple[str, ...] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ToolReference)


def encode_reference(reference: ToolReference) -> str:
    """The opaque text the session stores with a call."""
    return _encoder.encode(reference).decode()


def decode_reference(text: str | None) -> ToolReference:
    """What `encode_reference` stored."""
    return ToolReference() if text is None else _decoder.decode(text)


def declared_effect(definition: ToolDefinition) -> ToolEffect | None:
    """The effect a tool declares: its metadata's `effect`, else the hints of its MCP server.

    Raises:
        InvalidToolEffectError: Its metadata names an effect that does not exist.
    """
    metadata = definition.metadata or {}
    effect = metadata.get(EFFECT_METADATA_KEY)
    if effect is not None:
        try:
            return ToolEffect(effect)
        except ValueError:
            raise InvalidToolEffectError(definition.name, effect) from None
    return _hinted_effect(metadata.get("annotations"))


def _hinted_effect(annotations: object) -> ToolEffect | None:
    if not isinstance(annotations, Mapping):
        return None
    if annotations.get("readOnlyHint"):
        return ToolEffect.READ
    if annotations.get("idempotentHint"):
        return ToolEffect.IDEMPOTENT_WRITE
    # The protocol's defaults say "may destroy, not idempotent" of a tool that hints nothing: that is no declaration.
    return ToolEffect.NON_IDEMPOTENT_WRITE if annotations.get("destructiveHint") else None


def resolve_policy(
    turn: AgentTurnContext, tool_name: str, definition: ToolDefinition | None
) -> tuple[ResolvedToolPolicy, bool]:
    """The policy of a call, and whether it waives an approval that the tool asks for.

    Raises:
        InvalidToolEffectError: The tool's metadata names an effect that does not exist.
    """
    if tool_name in turn.enabled_built_in_tools:
        return BUILT_IN_TOOL_POLICY, False
    if definition is None:
        # It only tells the model that there is no such tool; nobody needs to approve that.
        return ResolvedToolPolicy(effect=ToolEffect.UNCLASSIFIED, requires_approval=False), False
    asks = definition.kind == "unapproved"
    runs_elsewhere = definition.kind not in ("function", "unapproved", "output")
    policy = turn.resolve_tool_policy(
        tool_name,
        declared_effect(definition),
        # Whoever runs an external call decides about it; running it here only asks for its result.
        framework_requires_approval=True if asks else False if runs_elsewhere else None,
    )
    return policy, asks and not policy.requires_approval
