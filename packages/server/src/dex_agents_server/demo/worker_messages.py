"""What a worker process tells the demo: one JSON object per line of its standard output."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

__all__ = [
    "ModelCallCancelled",
    "Paused",
    "WorkerMessage",
    "WorkerReady",
    "decode_worker_message",
    "encode_worker_message",
]


class WorkerReady(msgspec.Struct, frozen=True, tag_field="type", tag="ready"):
    """The worker has opened the database and runs Steps from `at` on."""

    at: datetime


class Paused(msgspec.Struct, frozen=True, tag_field="type", tag="paused"):
    """The worker reached a pause point at `at` and stands still there."""

    point: str
    at: datetime


class ModelCallCancelled(msgspec.Struct, frozen=True, tag_field="type", tag="model_call_cancelled"):
    """The coroutine of a model call that stood at a pause point was cancelled at `at`."""

    at: datetime


WorkerMessage: TypeAlias = WorkerReady | Paused | ModelCallCancelled


def encode_worker_message(message: WorkerMessage) -> str:
    """One line, without its end."""
    return msgspec.json.encode(message).decode()


def decode_worker_message(line: bytes) -> WorkerMessage:
    """Read one line; `msgspec.DecodeError` when it is something else."""
    message: WorkerMessage = msgspec.json.decode(line, type=WorkerMessage)
    return message
