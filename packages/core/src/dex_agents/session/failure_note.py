"""The note that tells the model what a failed turn's tool calls did."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents.session.texts import TURN_FAILURE_NOTE_FOOTER, TURN_FAILURE_NOTE_HEADER
from dex_agents.session.tool_values import AgentToolCallRecord

__all__ = ["build_turn_failure_note"]

_MAX_ARGUMENTS_CHARACTERS = 200


def build_turn_failure_note(records: Sequence[AgentToolCallRecord]) -> str:
    """One line per call with its arguments and status, in call order, and the request not to repeat them."""
    lines = [TURN_FAILURE_NOTE_HEADER]
    for record in records:
        arguments = record.arguments if record.executed_arguments is None else record.executed_arguments
        if len(arguments) > _MAX_ARGUMENTS_CHARACTERS:
            arguments = f"{arguments[:_MAX_ARGUMENTS_CHARACTERS]}..."
        lines.append(f"- {record.tool_name} {arguments}: {record.status.value}")
    lines.append(TURN_FAILURE_NOTE_FOOTER)
    return "\n".join(lines)
