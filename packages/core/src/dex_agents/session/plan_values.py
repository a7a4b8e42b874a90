"""Values of plans, of settings and of context compaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

__all__ = [
    "AgentPlan",
    "AgentPlanStatus",
    "AgentPlanTask",
    "AgentPlanTaskStatus",
    "CompactContextInput",
    "ContextSummary",
    "PlanExecutionRequest",
    "TurnSessionSettings",
]

AgentPlanStatus = Literal["draft", "active", "completed", "cleared"]
AgentPlanTaskStatus = Literal["pending", "in_progress", "completed"]


class AgentPlanTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a plan."""

    content: str
    status: AgentPlanTaskStatus = "pending"


class AgentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The session's plan, replaced as a whole.

    Attributes:
        revision: From 1, one more for every replacement.
        status: `draft` until approved, `active`, `completed`, or `cleared` without tasks.
        tasks: What is to be done, in order.
        updated_at: When this revision was stored.
    """

    revision: int
    status: AgentPlanStatus
    updated_at: datetime
    tasks: tuple[AgentPlanTask, ...] = ()


class PlanExecutionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The user approved this revision of the plan."""

    revision: int


class TurnSessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings a turn started with; a copy of another turn reads as no settings."""

    turn_id: str
    settings: dict[str, Any]


class CompactContextInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of `CompactContext`: the last message to summarise."""

    through_sequence: int


class ContextSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary that stands for the oldest messages in model input.

    Attributes:
        generation: From 1, one more for every compaction.
        text: The summary.
        last_sequence: The last message it covers.
        created_at: When it was stored.
    """

    generation: int
    text: str
    last_sequence: int
    created_at: datetime
