"""What happens in the demo, as facts: the scenario reports them, the timeline shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from dex_agents import AgentMessage, StreamedAgentEvent
from dex_flow import StepHistoryEntry

__all__ = ["EventWritten", "Fact", "FactSink", "Happened", "MessageStored", "PhaseStarted", "StepFinished", "Who"]

#: Who did it, or whom it happened to.
Who = Literal["user", "worker", "model", "kill", "decision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    """The story's next phase: `number` of `total`."""

    at: datetime
    number: int
    total: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something outside the session's own records."""

    at: datetime
    who: Who
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """A row of the session's Step history."""

    at: datetime
    entry: StepHistoryEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStored:
    """A message of the session, such as the result of a tool call as the model reads it."""

    at: datetime
    message: AgentMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWritten:
    """An event of the session."""

    at: datetime
    event: StreamedAgentEvent


Fact: TypeAlias = PhaseStarted | Happened | MessageStored | EventWritten | StepFinished
FactSink: TypeAlias = Callable[[Fact], None]
