"""The tables of the embedded engine, versioned with `PRAGMA user_version`."""

from __future__ import annotations

import sqlite3

from dex_flow.errors import StoredFormatError

__all__ = ["SCHEMA_VERSION", "initialize_schema"]

SCHEMA_VERSION = 1

# Bodies that are often larger than 1 KiB stay in rowid tables with a unique index: in a WITHOUT ROWID table every such
# row takes an overflow page of its own.
_VERSION_1 = """
CREATE TABLE flow (
    key INTEGER PRIMARY KEY,
    flow_id TEXT NOT NULL UNIQUE,
    flow_type TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status TEXT NOT NULL,
    owner INTEGER,
    epoch INTEGER NOT NULL,
    version INTEGER NOT NULL,
    active_steps INTEGER NOT NULL,
    has_ready INTEGER NOT NULL,
    next_due INTEGER,
    updated_at INTEGER NOT NULL,
    header BLOB NOT NULL
);
CREATE INDEX flow_due ON flow (next_due) WHERE next_due IS NOT NULL;
CREATE INDEX flow_ready ON flow (key) WHERE has_ready = 1;
CREATE INDEX flow_active ON flow (owner) WHERE active_steps > 0;
CREATE TABLE attribute (flow INTEGER NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL);
CREATE UNIQUE INDEX attribute_slot ON attribute (flow, name, key);
CREATE TABLE message (
    flow INTEGER NOT NULL, channel TEXT NOT NULL, key TEXT NOT NULL, id INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (flow, channel, key, id)
) WITHOUT ROWID;
CREATE TABLE step_body (
    flow INTEGER NOT NULL, step INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (flow, step)
) WITHOUT ROWID;
CREATE TABLE history (
    flow INTEGER NOT NULL, number INTEGER NOT NULL, step INTEGER NOT NULL, step_type TEXT NOT NULL,
    method TEXT NOT NULL, attempt INTEGER NOT NULL, outcome TEXT NOT NULL,
    started_at INTEGER NOT NULL, finished_at INTEGER NOT NULL, detail TEXT,
    PRIMARY KEY (flow, number)
) WITHOUT ROWID;
CREATE TABLE request (
    flow INTEGER NOT NULL, request_id TEXT NOT NULL, number INTEGER NOT NULL, operation TEXT NOT NULL,
    input_digest TEXT NOT NULL, output BLOB NOT NULL, recorded_at INTEGER NOT NULL,
    PRIMARY KEY (flow, request_id)
) WITHOUT ROWID;
CREATE INDEX request_number ON request (flow, number);
CREATE TABLE stream (
    key INTEGER PRIMARY KEY, flow_type TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (flow_type, name)
);
CREATE TABLE stream_position (
    flow INTEGER NOT NULL, stream INTEGER NOT NULL, next_position INTEGER NOT NULL, PRIMARY KEY (flow, stream)
) WITHOUT ROWID;
CREATE TABLE event_batch (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, flow INTEGER NOT NULL,
    first_position INTEGER NOT NULL, event_count INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX event_batch_stream ON event_batch (stream, id, size);
CREATE UNIQUE INDEX event_batch_position ON event_batch (flow, stream, first_position);
CREATE TABLE worker (key INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, beat INTEGER NOT NULL);
"""


def initialize_schema(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file; runs inside the opening transaction.

    Raises:
        StoredFormatError: A newer release wrote the file.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoredFormatError(
            f"the database has schema version {version}; this release reads up to {SCHEMA_VERSION}. "
            "Upgrade the package to open it"
        )
    if version == 0:
        for statement in _VERSION_1.split(";"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
