"""Read-only answers about executions, for the engine's reader thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from dex_flow.codec import decode
from dex_flow.declarations import Stream
from dex_flow.embedded.flow_store import FlowRow, SqliteStateReader, find_flow
from dex_flow.embedded.stream_store import read_events
from dex_flow.engine import FlowDescription, FlowStatus, OpenStepDescription, StepHistoryEntry, StreamEvent
from dex_flow.errors import FlowNotFoundError
from dex_flow.kernel import decode_header, timestamp

__all__ = ["describe", "existing_flow", "list_flows", "read_attribute", "read_history", "read_stream", "read_versions"]


def existing_flow(connection: sqlite3.Connection, flow_id: str) -> FlowRow:
    """The execution's row; `FlowNotFoundError` when there is none."""
    row = find_flow(connection, flow_id)
    if row is None:
        raise FlowNotFoundError(flow_id)
    return row


def read_versions(connection: sqlite3.Connection, flow_ids: Iterable[str]) -> dict[str, int]:
    """The versions of those executions that exist."""
    versions = {}
    for flow_id in flow_ids:
        row = connection.execute("SELECT version FROM flow WHERE flow_id = ?", (flow_id,)).fetchone()
        if row is not None:
            versions[flow_id] = row[0]
    return versions


def read_attribute(connection: sqlite3.Connection, flow_id: str, name: str, key: str, value_type: Any) -> Any:
    """One committed value or None."""
    data = SqliteStateReader(connection, existing_flow(connection, flow_id)).attribute(name, key)
    return None if data is None else decode(value_type, data)


def read_stream(
    connection: sqlite3.Connection, flow_id: str, stream: Stream[Any], after: int, limit: int
) -> tuple[list[StreamEvent], str]:
    """Retained events above `after`, and the execution's status at the same moment."""
    row = existing_flow(connection, flow_id)
    found = read_events(connection, row.key, row.flow_type, stream.name, after, limit)
    events = [StreamEvent(position=position, value=decode(stream.value_type, data)) for position, data in found]
    return events, row.status


def read_history(connection: sqlite3.Connection, flow_id: str, after: int, limit: int) -> list[StepHistoryEntry]:
    """Finished Step methods above number `after`."""
    row = existing_flow(connection, flow_id)
    rows = connection.execute(
        "SELECT number, step, step_type, method, attempt, outcome, started_at, finished_at, detail FROM history"
        " WHERE flow = ? AND number > ? ORDER BY number LIMIT ?",
        (row.key, after, limit),
    )
    return [
        StepHistoryEntry(
            number=number,
            step_execution_id=step,
            step_type=step_type,
            method=method,
            attempt=attempt,
            outcome=outcome,
            started_at=timestamp(started_at),
            finished_at=timestamp(finished_at),
            detail=detail,
        )
        for number, step, step_type, method, attempt, outcome, started_at, finished_at, detail in rows
    ]


def describe(connection: sqlite3.Connection, flow_id: str) -> FlowDescription:
    """The execution with its open Steps."""
    row = existing_flow(connection, flow_id)
    (updated_at,) = connection.execute("SELECT updated_at FROM flow WHERE key = ?", (row.key,)).fetchone()
    return _description(flow_id, row.flow_type, row.header, updated_at, with_steps=True)


def list_flows(
    connection: sqlite3.Connection, flow_type: str | None, status: FlowStatus | None, limit: int, after: str
) -> list[FlowDescription]:
    """Executions in order of their IDs."""
    rows = connection.execute(
        "SELECT flow_id, flow_type, header, updated_at FROM flow WHERE flow_id > ?"
        " AND (?2 IS NULL OR flow_type = ?2) AND (?3 IS NULL OR status = ?3) ORDER BY flow_id LIMIT ?4",
        (after, flow_type, status, limit),
    )
    return [_description(flow_id, kind, header, updated, with_steps=False) for flow_id, kind, header, updated in rows]


def _description(flow_id: str, flow_type: str, data: bytes, updated_at: int, *, with_steps: bool) -> FlowDescription:
    header = decode_header(data)
    steps = []
    for step in header.steps.values() if with_steps else ():
        dues = [condition.due for condition in step.wait if condition.due] if step.status == "waiting" else [step.due]
        due = min((moment for moment in dues if moment), default=None)
        steps.append(
            OpenStepDescription(
                step_execution_id=step.id,
                step_type=step.type,
                status=step.status,
                attempt=step.attempt,
                due=None if due is None else timestamp(due),
                last_error=step.error,
            )
        )
    return FlowDescription(
        flow_id=flow_id,
        flow_type=flow_type,
        status=header.status,
        started_at=timestamp(header.started_at),
        updated_at=timestamp(updated_at),
        result=None if header.result is None else decode(Any, header.result),
        failure=header.failure,
        open_steps=tuple(steps),
    )
