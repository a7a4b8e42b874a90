"""What the engine did for a session, Step by Step."""

from __future__ import annotations

from collections.abc import Sequence

from dex_flow import Engine, StepHistoryEntry

__all__ = ["describe_step_history", "read_step_history"]

_PAGE = 10_000


async def read_step_history(engine: Engine, session_id: str) -> list[StepHistoryEntry]:
    """Every finished Step method of a session, in commit order.

    Assert the shape of a turn with it: `[(step.step_type, step.outcome) for step in ...]`.

    Args:
        engine: Any engine on the session's file, such as `AgentTestEnvironment.engine`.
        session_id: The session.

    Raises:
        FlowNotFoundError: The session was not started.
    """
    history: list[StepHistoryEntry] = []
    while True:
        page = await engine.read_step_history(session_id, after=history[-1].number if history else 0, limit=_PAGE)
        history += page
        if len(page) < _PAGE:
            return history


def describe_step_history(history: Sequence[StepHistoryEntry]) -> str:
    """One line for each finished Step method: its number, Step type, method, attempt, outcome and error."""
    lines = []
    for entry in history:
        detail = "" if entry.detail is None else f": {entry.detail}"
        lines.append(
            f"{entry.number} {entry.step_type}.{entry.method}, attempt {entry.attempt}: {entry.outcome}{detail}"
        )
    return "\n".join(lines) or "(no Step has finished)"
