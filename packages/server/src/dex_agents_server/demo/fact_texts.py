"""Facts of the demo in words, and their colours."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from rich.text import Text

from dex_agents import StreamedAgentEvent
from dex_agents.session import events
from dex_flow import StepHistoryEntry

__all__ = ["STATUS_STYLES", "describe_event", "describe_step"]

STATUS_STYLES = {
    "succeeded": "green",
    "failed": "red",
    "rejected": "yellow",
    "outcome_unknown": "bold yellow",
}
_SILENT = frozenset({events.TURN_STARTED, events.TURN_COMPLETED})


def describe_step(entry: StepHistoryEntry) -> Text:
    """How a Step method ended."""
    if entry.method != "run":
        return Text("" if entry.outcome == "succeeded" else f"{entry.method} {_ending(entry)}")
    if entry.outcome == "succeeded":
        milliseconds = (entry.finished_at - entry.started_at).total_seconds() * 1_000
        return Text(f"attempt {entry.attempt}, {milliseconds:.0f} ms", style="dim")
    return Text(f"attempt {entry.attempt} {_ending(entry)}", style="bold yellow")


def describe_event(event: StreamedAgentEvent) -> Text:
    """What an event says beside its type."""
    payload = event.payload
    tool_name = str(payload.get("tool_name", ""))
    match event.type:
        case events.TOOL_CALL_DEFERRED:
            return Text(f"{tool_name} ({payload['effect']})")
        case events.TOOL_CALL_STARTED:
            return Text(tool_name)
        case events.TOOL_CALL_FINISHED:
            status = str(payload["status"])
            return Text.assemble(f"{tool_name}: ", (status, STATUS_STYLES.get(status, "")))
        case events.INTERRUPT_RAISED:
            return Text(_describe_interrupt(payload))
        case events.INTERRUPT_RESOLVED:
            return Text(_describe_resolution(payload))
        case events.TIMER_STARTED:
            due = datetime.fromisoformat(payload["wait_until"]) - event.event.created_at
            return Text(f"for {due.total_seconds():g} s: {payload['reason']}")
        case events.TURN_STEERED:
            return Text("the next turn takes the new message", style="bold yellow")
        case events.TURN_CANCELLED:
            return Text("the user stopped it", style="bold yellow")
        case _ if event.type in _SILENT:
            return Text("")
        case _:
            return Text(json.dumps(payload))


def _ending(entry: StepHistoryEntry) -> str:
    return f"{entry.outcome}: {entry.detail}" if entry.detail else entry.outcome


def _describe_interrupt(payload: dict[str, Any]) -> str:
    if payload["kind"] != "question":
        return f"may {payload['tool_name']} run?"
    choices = ", ".join(payload["choices"])
    return f"{payload['question']} ({choices})" if choices else str(payload["question"])


def _describe_resolution(payload: dict[str, Any]) -> str:
    if payload["cancellation_reason"] is not None:
        return f"withdrawn: {payload['cancellation_reason']}"
    if payload["answered"]:
        return "answered"
    return "approved" if payload["approved"] else "rejected"
