"""The stored form of a Flow execution: a small header with counters and open Steps, and one body row per open Step.

The header is rewritten by every command, so it stays small: what Steps carry (inputs, messages, outcomes) is in rows of
its own. `FORMAT_VERSION` names the layout; `MIGRATIONS` brings an older one up to date when it is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from dex_flow.errors import StoredFormatError
from dex_flow.options import StepOptions
from dex_flow.steps import RecoveryError

__all__ = [
    "FORMAT_VERSION",
    "MIGRATIONS",
    "FlowHeader",
    "OpenStep",
    "StepBody",
    "StepStatus",
    "StoredCondition",
    "decode_header",
    "decode_last_now",
    "encode_header",
    "microseconds",
    "timestamp",
]

FORMAT_VERSION = 1

#: From the version of the key to the next one; each takes and returns the decoded JSON of a header.
MIGRATIONS: dict[int, Callable[[Any], Any]] = {}

StepStatus = Literal["waiting", "ready", "claimed", "running", "backoff"]
BackoffPhase = Literal["", "wait_for", "begin", "execute", "commit", "attempt"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """Microseconds since the Unix epoch of an aware datetime."""
    return (moment - _EPOCH) // _MICROSECOND


@functools.lru_cache(maxsize=1_024)
def timestamp(value: int) -> datetime:
    """The aware UTC datetime of microseconds since the Unix epoch."""
    return _EPOCH + timedelta(microseconds=value)


# None of these can be part of a reference cycle, so the garbage collector need not look at them.


class StoredCondition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One condition of a registered wait: a channel with a count, or (empty channel) a due time."""

    channel: str
    key: str
    count: int
    due: int


class OpenStep(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One open Step execution as the header lists it. Times are microseconds since the epoch.

    `failure_rows` are the history rows of its failures that are still kept; see `Machine.log_failure`.
    """

    id: int
    type: str
    status: StepStatus
    attempt: int = 0
    has_body: bool = False
    wait: tuple[StoredCondition, ...] = ()
    waits_for_all: bool = False
    satisfied: int = -1
    due: int = 0
    phase: BackoffPhase = ""
    started_at: int = 0
    first_started_at: int = 0
    failures: int = 0
    error: str | None = None
    options: StepOptions | None = None
    failure_rows: tuple[int, ...] = ()


class StepBody(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """What an open Step carries.

    Attributes:
        input: The encoded input.
        consumed: Encoded messages, one group per condition of the wait.
        recovery: Set when the Step is a failure route.
        outcome: The encoded outcome of a `commit` that raised, in a tuple of one: msgspec reads no `Raw | None`.
        checkpoint: What the last heartbeat saved.
    """

    input: msgspec.Raw
    consumed: tuple[tuple[msgspec.Raw, ...], ...] = ()
    recovery: RecoveryError | None = None
    outcome: tuple[msgspec.Raw] | None = None
    checkpoint: str | None = None


class FlowHeader(msgspec.Struct):
    """Counters, status and open Steps of one execution."""

    format: int = FORMAT_VERSION
    status: Literal["open", "completed", "failed", "stopped"] = "open"
    started_at: int = 0
    now: int = 0
    next_step: int = 1
    next_message: int = 1
    next_history: int = 1
    next_request: int = 1
    result: msgspec.Raw | None = None
    failure: str | None = None
    steps: dict[int, OpenStep] = {}


class _StoredHeader(msgspec.Struct, array_like=True, gc=False):
    format: int
    status: Literal["open", "completed", "failed", "stopped"]
    started_at: int
    now: int
    next_step: int
    next_message: int
    next_history: int
    next_request: int
    steps: list[OpenStep]
    result: tuple[msgspec.Raw] | None = None
    failure: str | None = None


_DAMAGED = "a stored flow header is not readable; the database is damaged"


class _HeaderStart(msgspec.Struct, array_like=True):
    format: int
    status: str
    started_at: int
    now: int


_encode = msgspec.json.Encoder().encode
_decode_start = msgspec.json.Decoder(_HeaderStart).decode
_decode = msgspec.json.Decoder(_StoredHeader).decode


def encode_header(header: FlowHeader) -> bytes:
    """The stored form, with open Steps in ascending ID order."""
    steps = header.steps
    return _encode(
        _StoredHeader(
            header.format,
            header.status,
            header.started_at,
            header.now,
            header.next_step,
            header.next_message,
            header.next_history,
            header.next_request,
            [steps[step_id] for step_id in sorted(steps)],
            None if header.result is None else (header.result,),
            header.failure,
        )
    )


def decode_header(data: bytes) -> FlowHeader:
    """The header of any format up to this release's; `StoredFormatError` for a newer one."""
    try:
        stored = _decode(data)
    except msgspec.DecodeError:
        stored = _migrated(data)
    else:
        if stored.format != FORMAT_VERSION:
            stored = _migrated(data)
    return FlowHeader(
        FORMAT_VERSION,
        stored.status,
        stored.started_at,
        stored.now,
        stored.next_step,
        stored.next_message,
        stored.next_history,
        stored.next_request,
        None if stored.result is None else stored.result[0],
        stored.failure,
        {step.id: step for step in stored.steps},
    )


def decode_last_now(data: bytes) -> int:
    """When the last command was applied; spares decoding the open Steps."""
    try:
        start = _decode_start(data)
    except msgspec.ValidationError:
        return decode_header(data).now
    return start.now if start.format == FORMAT_VERSION else decode_header(data).now


def _migrated(data: bytes) -> _StoredHeader:
    try:
        content = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise StoredFormatError(_DAMAGED) from error
    version = content[0] if isinstance(content, list) and content else None
    if not isinstance(version, int):
        raise StoredFormatError(_DAMAGED)
    if version > FORMAT_VERSION:
        raise StoredFormatError(
            f"a flow was written in format {version} by a newer release; this release reads up to {FORMAT_VERSION}"
        )
    while version < FORMAT_VERSION:
        migration = MIGRATIONS.get(version)
        if migration is None:
            raise StoredFormatError(f"a flow was written in format {version}, which this release no longer reads")
        content = migration(content)
        version += 1
    try:
        return _decode(_encode(content))
    except msgspec.DecodeError as error:
        raise StoredFormatError(_DAMAGED) from error
