"""What the model of a case says, in no framework's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from dex_agents import AgentUsage, CompactionPolicy, ToolPolicy
from dex_agents_conformance.scripted_mcp_server import ScriptedMcpServer
from dex_agents_conformance.scripted_tools import ScriptedTool

__all__ = [
    "ConversationScript",
    "FinishReason",
    "ReasoningPart",
    "ReplyPart",
    "ScriptedReply",
    "TextPart",
    "ToolCallPart",
    "calls",
    "say",
]

FinishReason: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter"]


class ReasoningPart(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    """A piece of the model's reasoning.

    Attributes:
        text: What people may read of it.
        signature: The provider's opaque proof; a request must carry it back with the same text, at the same place.
    """

    text: str
    signature: str


class TextPart(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """A piece of visible text."""

    text: str


class ToolCallPart(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A call the model asks for.

    Attributes:
        tool_call_id: The provider's ID; some providers repeat it or leave it blank.
        tool_name: The tool.
        arguments: The arguments as the model writes them: text that should be a JSON object.
    """

    tool_call_id: str
    tool_name: str
    arguments: str = "{}"


ReplyPart: TypeAlias = ReasoningPart | TextPart | ToolCallPart


@dataclass(frozen=True, kw_only=True)
class ScriptedReply:
    """One reply of the model.

    Attributes:
        parts: What it says, in order; empty for a reply with nothing in it.
        usage: The tokens it reports; None for a provider that reports none.
        finish_reason: Why it ended; None derives it from the parts.
        failures: How many invocations fail with a broken connection before one gets this reply.
        failure_text: What such a failure says.
        gate: Name of a `FileGate` in the case's directory at which the reply waits.
        parts_before_gate: How many parts it streams before it waits there.
        fails_behind_gate: Whether a failure happens after the streamed parts instead of before.
        delta_characters: Texts stream in pieces of this many characters.
    """

    parts: tuple[ReplyPart, ...] = ()
    usage: AgentUsage | None = None
    finish_reason: FinishReason | None = None
    failures: int = 0
    failure_text: str = "the connection to the model broke"
    gate: str | None = None
    parts_before_gate: int = 0
    fails_behind_gate: bool = False
    delta_characters: int = 7

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        """All reasoning text."""
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def resolved_finish_reason(self) -> FinishReason:
        """Why the reply ended."""
        if self.finish_reason is not None:
            return self.finish_reason
        return "tool_calls" if self.tool_calls else "stop"

    def pieces(self) -> Iterator[tuple[int, Literal["text", "reasoning"], str]]:
        """What a streaming provider sends of the texts: number of the part, its kind, and a piece of it."""
        for number, part in enumerate(self.parts):
            if isinstance(part, ToolCallPart):
                continue
            kind: Literal["text", "reasoning"] = "text" if isinstance(part, TextPart) else "reasoning"
            size = self.delta_characters
            for start in range(0, len(part.text), size):
                yield number, kind, part.text[start : start + size]


def say(text: str, **options: Any) -> ScriptedReply:
    """A reply of text alone."""
    return ScriptedReply(parts=(TextPart(text=text),), **options)


def calls(*tool_calls: ToolCallPart | tuple[str, str] | tuple[str, str, str], **options: Any) -> ScriptedReply:
    """A reply of calls alone; a tuple is `(tool_call_id, tool_name)` or `(tool_call_id, tool_name, arguments)`."""
    parts = tuple(
        call
        if isinstance(call, ToolCallPart)
        else ToolCallPart(tool_call_id=call[0], tool_name=call[1], arguments=call[2] if len(call) == 3 else "{}")
        for call in tool_calls
    )
    return ScriptedReply(parts=parts, **options)


@dataclass(frozen=True, kw_only=True)
class ConversationScript:
    """One case's model, tools and options: all an adapter needs to build its agent.

    Attributes:
        directory: The case's directory, for gates and logs.
        replies: The model's replies by the user text that they answer, in order. The position is read from the request,
            so a crash repeats it; a text said twice repeats its replies.
        tools: The agent's tools.
        mcp_servers: MCP servers whose tools the agent has too (`Capability.MCP_TOOLS`).
        instructions: The agent's system prompt; every model call must carry it.
        flow_type: Durable name of the Flow type.
        built_in_tools: The session's own tools to offer.
        plan_mode_enabled: Whether messages may ask for a planning turn.
        compaction: When earlier messages are summarised.
        summaries: What the model says when it is asked for a summary: the first one, then the one behind each earlier
            summary that the request carries; the last one from there on.
        interrupt_deadline: How long an approval waits.
        session_options: More options of the session Flow, by name.
    """

    directory: Path
    replies: Mapping[str, Sequence[ScriptedReply]]
    tools: Sequence[ScriptedTool] = ()
    mcp_servers: Sequence[ScriptedMcpServer] = ()
    instructions: str = "You are tested."
    flow_type: str = "ConformanceAgent"
    built_in_tools: Sequence[str] = ()
    plan_mode_enabled: bool = False
    compaction: CompactionPolicy | None = None
    summaries: Sequence[ScriptedReply] = (ScriptedReply(parts=(TextPart(text="They talked."),)),)
    interrupt_deadline: timedelta | None = None
    session_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def repeats_tool_call_ids(self) -> bool:
        """Whether the model itself repeats IDs or leaves them blank, so that only their position tells calls apart."""
        ids = [call.tool_call_id for replies in self.replies.values() for reply in replies for call in reply.tool_calls]
        return len(set(ids)) < len(ids) or any(not tool_call_id.strip() for tool_call_id in ids)

    @property
    def flow_options(self) -> dict[str, Any]:
        """The options for the adapter's session factory; failed attempts are repeated at once."""
        policies = {
            tool.name: ToolPolicy(effect=tool.effect, requires_approval=tool.requires_approval)
            for tool in self.tools
            if tool.has_session_policy
        }
        return {
            "tool_policies": policies,
            "built_in_tools": tuple(self.built_in_tools),
            "plan_mode_enabled": self.plan_mode_enabled,
            "compaction": self.compaction,
            "interrupt_deadline": self.interrupt_deadline,
            "attempt_backoff": timedelta(0),
            **self.session_options,
        }
