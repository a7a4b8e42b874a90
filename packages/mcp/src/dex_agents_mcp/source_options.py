"""The limits of a tool source."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from dex_agents.session.option_checks import check_duration, check_whole_number

__all__ = ["McpSourceOptions"]


@dataclass(frozen=True, kw_only=True)
class McpSourceOptions:
    """Time and size limits of an `McpToolSource`.

    Args:
        connection_timeout: Until a connection must stand, the start of a process and the negotiation included.
        connection_attempts: How often a connection is tried before a call counts as never sent.
        connection_backoff: How long it waits before the second of them; doubled for each further one.
        call_timeout: Until the server must have answered a call; keep it below the 15 minutes of a tool attempt.
        request_timeout: Until the server must have answered any other request.
        listing_ttl: How long a server's listing holds, unless the server says.
        listing_failure_backoff: How long a server that could not be listed is left alone.
        listing_wait_timeout: How long `list_tools` waits for servers that were never listed; they go on behind it.
        task_ttl: How long a 2025-11-25 server is asked to keep a task that the session polls.
        task_wait_timeout: How long an attempt waits for a task that ends with its connection.
        max_output_characters: Most characters of a result; what is more is cut with a notice.
        max_process_starts: How many server processes may start at the same time.

    Raises:
        TypeError: A limit has the wrong type; names it.
        ValueError: A limit has a value it cannot have; names it.
    """

    connection_timeout: timedelta = timedelta(seconds=30)
    connection_attempts: int = 3
    connection_backoff: timedelta = timedelta(milliseconds=200)
    call_timeout: timedelta = timedelta(minutes=10)
    request_timeout: timedelta = timedelta(seconds=30)
    listing_ttl: timedelta = timedelta(minutes=5)
    listing_failure_backoff: timedelta = timedelta(seconds=30)
    listing_wait_timeout: timedelta = timedelta(seconds=8)
    task_ttl: timedelta = timedelta(hours=24)
    task_wait_timeout: timedelta = timedelta(minutes=10)
    max_output_characters: int = 200_000
    max_process_starts: int = 4

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(option.default, timedelta):
                check_duration(option.name, value, timedelta(milliseconds=1))
            else:
                check_whole_number(option.name, value, 1)
