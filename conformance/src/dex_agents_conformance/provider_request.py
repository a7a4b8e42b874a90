"""One request as a provider sees it, in no framework's words. An adapter's fake model translates into it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS, NOTE_PREFIX
from dex_agents_conformance.conversation_script import ReplyPart, TextPart, ToolCallPart

__all__ = ["ProviderRequest", "RequestItem", "RequestOutput", "RequestToolResult", "RequestUserText"]


class RequestUserText(msgspec.Struct, frozen=True, kw_only=True, tag="user"):
    """What the user said, or a note to the model in the user's place.

    Attributes:
        text: The text.
        is_framework_note: Whether the framework wrote it, such as a demand to try again; the session's own notes are
            known by their beginning.
    """

    text: str
    is_framework_note: bool = False

    @property
    def is_note(self) -> bool:
        """Whether no user said it."""
        return self.is_framework_note or self.text.startswith(NOTE_PREFIX)


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True, tag="output"):
    """An earlier reply of the model, with every part that the request carries of it, in the request's order."""

    parts: tuple[ReplyPart, ...]

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    @property
    def text(self) -> str:
        """All visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


class RequestToolResult(msgspec.Struct, frozen=True, kw_only=True, tag="tool_result"):
    """The result of one call, as the model reads it."""

    tool_call_id: str
    output: str


RequestItem: TypeAlias = RequestUserText | RequestOutput | RequestToolResult


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One model call.

    Attributes:
        instructions: The system prompt; several system messages are joined by a line break.
        items: The conversation, oldest first.
        tool_names: Names of the offered tools, in order.
        model: Name of the model that was asked; blank where the adapter has one only.
    """

    instructions: str
    items: tuple[RequestItem, ...]
    tool_names: tuple[str, ...] = ()
    model: str = ""

    @property
    def is_summary_request(self) -> bool:
        """Whether the session asks for a summary of earlier messages."""
        if CONTEXT_SUMMARY_INSTRUCTIONS in self.instructions:
            return True
        last = self.items[-1] if self.items else None
        return isinstance(last, RequestUserText) and CONTEXT_SUMMARY_INSTRUCTIONS in last.text

    @property
    def user_texts(self) -> list[str]:
        """What the user said, without notes."""
        return [item.text for item in self.items if isinstance(item, RequestUserText) and not item.is_note]

    @property
    def notes(self) -> list[str]:
        """The session's notes."""
        return [item.text for item in self.items if isinstance(item, RequestUserText) and item.is_note]

    @property
    def told(self) -> str:
        """Notes and system prompt: a plan and a summary may stand in either."""
        return "\n".join((self.instructions, *self.notes))

    @property
    def outputs(self) -> list[RequestOutput]:
        """The model's earlier replies."""
        return [item for item in self.items if isinstance(item, RequestOutput)]

    @property
    def results_of_turn(self) -> list[str]:
        """Outputs of the tool results since the user's latest text."""
        results: list[str] = []
        for item in self.items:
            if isinstance(item, RequestUserText) and not item.is_note:
                results.clear()
            elif isinstance(item, RequestToolResult):
                results.append(item.output)
        return results
