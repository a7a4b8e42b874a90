"""What a turn's model steps leave for each other, and what a call needs to be run in any process."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from dex_agents import AgentToolCall, TurnRefusedError

__all__ = [
    "CallKind",
    "CallReference",
    "HandoffTaken",
    "RunState",
    "decode_call_reference",
    "decode_run_state",
    "encode_call_reference",
    "encode_run_state",
]

#: How the SDK names the kinds of calls in the model's output; a handoff is a function call of its own kind.
CallKind: TypeAlias = Literal[
    "function_call",
    "handoff",
    "unknown_tool",
    "built_in",
    "mcp_approval_request",
    "shell_call",
    "apply_patch_call",
    "custom_tool_call",
]


class HandoffTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff of the turn whose filter changes what later model calls read.

    Attributes:
        source_agent: The agent that handed over.
        tool_name: Name of the handoff's tool.
        through_sequence: The last stored message that the filter applies to.
    """

    source_agent: str
    tool_name: str
    through_sequence: int


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The turn's `framework_run_state`. A newer release may add fields; reading ignores them.

    Attributes:
        agent: The agent whose model was called last.
        has_used_tools: Whether that agent has used tools since it took over.
        handoffs: Handoffs with a filter, oldest first.
        version: Version of the shape.
    """

    agent: str
    has_used_tools: bool = True
    handoffs: tuple[HandoffTaken, ...] = ()
    version: int = 1


class CallReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call's `tool_source_reference`.

    Attributes:
        agent: The agent that was offered the tool.
        kind: What kind of call it is.
        call_id: The ID under which the model expects the result.
        namespace: The tool's namespace.
        raw: The model's own item, for kinds that are no function call, and for calls that a program makes.
        error: What the model reads of a call of a tool that the agent has not.
        version: Version of the shape.
    """

    agent: str
    kind: CallKind
    call_id: str
    error: str | None = None
    namespace: str | None = None
    raw: dict[str, Any] | None = None
    version: int = 1


_run_state_decoder = msgspec.json.Decoder(RunState)
_reference_decoder = msgspec.json.Decoder(CallReference)


def encode_run_state(state: RunState) -> str:
    """JSON text of a run state."""
    return msgspec.json.encode(state).decode()


def decode_run_state(text: str | None) -> RunState | None:
    """Read a turn's run state; None at its first model step.

    Raises:
        TurnRefusedError: It was written by another runner.
    """
    if text is None:
        return None
    try:
        return _run_state_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise TurnRefusedError(f"the turn was begun by another runner ({error})") from error


def encode_call_reference(reference: CallReference) -> str:
    """JSON text of a call's reference."""
    return msgspec.json.encode(reference).decode()


def decode_call_reference(call: AgentToolCall) -> CallReference:
    """The reference of a call that this adapter asked for.

    Raises:
        TurnRefusedError: Another runner asked for the call.
    """
    try:
        return _reference_decoder.decode(call.tool_source_reference or "")
    except msgspec.DecodeError as error:
        raise TurnRefusedError(
            f"the call {call.tool_call_id} of {call.tool_name} was asked for by another runner ({error})"
        ) from error
