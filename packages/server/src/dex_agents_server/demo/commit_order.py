"""The order in which the parts of one commit are told: they all have the commit's time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from dex_agents import AgentMessage, StreamedAgentEvent
from dex_agents.session import events, step_types
from dex_agents_server.demo.facts import EventWritten, MessageStored, StepFinished
from dex_flow import StepHistoryEntry

__all__ = ["CommittedFact", "in_order_of_commits"]

CommittedFact: TypeAlias = MessageStored | EventWritten | StepFinished

_MESSAGE_WRITERS = frozenset(
    {
        step_types.START_AGENT_SESSION,
        step_types.AWAIT_USER_MESSAGE,
        step_types.RUN_MODEL,
        step_types.APPLY_TURN_CONTROL,
        step_types.APPLY_TURN_CONTROL_NOTE,
    }
)


def in_order_of_commits(
    messages: Sequence[AgentMessage], written: Sequence[StreamedAgentEvent], history: Sequence[StepHistoryEntry]
) -> list[CommittedFact]:
    """Everything by time; what one commit brought, by cause.

    An RPC's events come first, then each Step with what it wrote: results and answers, its events, a user message
    right before the turn it starts. Last come the starts of attempts that the commit made ready.

    Args:
        messages: By sequence.
        written: Events by position.
        history: Finished Step methods by number.
    """
    times = {message.created_at for message in messages}
    times |= {event.event.created_at for event in written} | {entry.finished_at for entry in history}
    ordered: list[CommittedFact] = []
    for at in sorted(times):
        ordered += _one_commit(
            at,
            [message for message in messages if message.created_at == at],
            [event for event in written if event.event.created_at == at],
            [entry for entry in history if entry.finished_at == at],
        )
    return ordered


def _one_commit(
    at: datetime,
    messages: list[AgentMessage],
    written: list[StreamedAgentEvent],
    history: list[StepHistoryEntry],
) -> list[CommittedFact]:
    replies = [message for message in messages if message.role != "user"]
    user_messages = [message for message in messages if message.role == "user"]
    ordered: list[CommittedFact] = []

    def add_events(chosen: list[StreamedAgentEvent]) -> None:
        for event in chosen:
            written.remove(event)
            if event.type == events.TURN_STARTED:
                add_messages(user_messages)
            ordered.append(EventWritten(at=at, event=event))

    def add_messages(chosen: list[AgentMessage]) -> None:
        ordered.extend(MessageStored(at=at, message=message) for message in chosen)
        chosen.clear()

    add_events([event for event in written if event.event.step_execution_id == 0])
    for entry in history:
        ordered.append(StepFinished(at=at, entry=entry))
        if entry.step_type in _MESSAGE_WRITERS:
            add_messages(replies)
        add_events([event for event in written if event.event.step_execution_id == entry.step_execution_id])
    add_messages(replies)
    add_events(list(written))
    add_messages(user_messages)
    return ordered
