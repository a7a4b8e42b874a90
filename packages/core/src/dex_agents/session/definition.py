"""What the session's pure code needs to know about its agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from dex_agents.session.ingress import repair_message
from dex_agents.session.message_store import MessageStore
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.values import FrameworkMessage

__all__ = ["SessionDefinition", "UserMessageBuilder"]

UserMessageBuilder: TypeAlias = Callable[[str], FrameworkMessage]


@dataclass(frozen=True)
class SessionDefinition:
    """One Flow type's rules, shared by its Steps.

    Args:
        build_user_message: The runner's pure function.
        options: How the sessions behave.
        reads_summaries: Whether the runner can use a summary in place of older messages.

    Attributes:
        messages: Stores messages within the limits of the options.
    """

    build_user_message: UserMessageBuilder
    options: AgentSessionOptions
    reads_summaries: bool = True
    messages: MessageStore = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", MessageStore(self.options.message_storage))

    def user_message(self, text: str) -> FrameworkMessage:
        """The framework's form of a user message, or of a note of the session."""
        return repair_message(self.build_user_message(text), None)
