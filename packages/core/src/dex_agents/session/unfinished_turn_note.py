"""The notes that tell the model what the tool calls of a turn without an answer did."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents.session.texts import (
    TURN_CANCELLED_NOTE_HEADER,
    TURN_FAILURE_NOTE_FOOTER,
    TURN_FAILURE_NOTE_HEADER,
    TURN_STEERED_NOTE_HEADER,
)
from dex_agents.session.tool_values import AgentToolCallRecord, AgentToolCallRecordStatus, CancellationReason

__all__ = ["build_turn_control_note", "build_turn_failure_note"]

_MAX_ARGUMENTS_CHARACTERS = 200
_HEADERS: dict[CancellationReason, str] = {
    "steered": TURN_STEERED_NOTE_HEADER,
    "turn_cancelled": TURN_CANCELLED_NOTE_HEADER,
}


def build_turn_failure_note(records: Sequence[AgentToolCallRecord]) -> str:
    """One line per call with its arguments and status, in call order, and the request not to repeat them."""
    return _note(TURN_FAILURE_NOTE_HEADER, records)


def build_turn_control_note(reason: CancellationReason, records: Sequence[AgentToolCallRecord]) -> str | None:
    """The same for a steered or cancelled turn, of the calls that ran; None when none did.

    Args:
        reason: Why the turn ended.
        records: The turn's records, all final, in call order.
    """
    ran = [record for record in records if record.status is not AgentToolCallRecordStatus.REJECTED]
    return _note(_HEADERS[reason], ran) if ran else None


def _note(header: str, records: Sequence[AgentToolCallRecord]) -> str:
    lines = [header]
    for record in records:
        arguments = record.arguments if record.executed_arguments is None else record.executed_arguments
        if len(arguments) > _MAX_ARGUMENTS_CHARACTERS:
            arguments = f"{arguments[:_MAX_ARGUMENTS_CHARACTERS]}..."
        lines.append(f"- {record.tool_name} {arguments}: {record.status.value}")
    lines.append(TURN_FAILURE_NOTE_FOOTER)
    return "\n".join(lines)
