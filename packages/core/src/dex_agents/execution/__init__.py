"""The I/O of a session: model steps and tool calls run here, between two commits of the pure Flow."""

from dex_agents.execution.event_writer import MAX_EVENT_PAYLOAD_BYTES, MAX_EVENT_TYPE_LENGTH
from dex_agents.execution.threads import DEFAULT_SYNC_CALL_THREADS, SyncCallThreads, run_sync_call

__all__ = (
    "DEFAULT_SYNC_CALL_THREADS",
    "MAX_EVENT_PAYLOAD_BYTES",
    "MAX_EVENT_TYPE_LENGTH",
    "SyncCallThreads",
    "run_sync_call",
)
