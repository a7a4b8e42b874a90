"""What a worker process tells the demo: one JSON object per line of its standard output."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

__all__ = ["RefundPaused", "WorkerMessage", "WorkerReady", "decode_worker_message", "encode_worker_message"]


class WorkerReady(msgspec.Struct, frozen=True, tag_field="type", tag="ready"):
    """The worker has opened the database and runs Steps from `at` on."""

    at: datetime


class RefundPaused(msgspec.Struct, frozen=True, tag_field="type", tag="refund_paused"):
    """A refund has moved the money at `at`, and its tool waits to be killed."""

    order_id: int
    at: datetime


WorkerMessage: TypeAlias = WorkerReady | RefundPaused


def encode_worker_message(message: WorkerMessage) -> str:
    """One line, without its end."""
    return msgspec.json.encode(message).decode()


def decode_worker_message(line: bytes) -> WorkerMessage:
    """Read one line; `msgspec.DecodeError` when it is something else."""
    message: WorkerMessage = msgspec.json.decode(line, type=WorkerMessage)
    return message
