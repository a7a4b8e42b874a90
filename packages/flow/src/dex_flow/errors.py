"""Errors that `dex_flow` raises, flat and few; each docstring says when."""

from typing import Any

__all__ = [
    "DefinitionError",
    "DexFlowError",
    "EngineClosedError",
    "FlowAlreadyStartedError",
    "FlowClosedError",
    "FlowDefinitionMismatchError",
    "FlowNotFoundError",
    "HeartbeatTimeoutError",
    "InvalidFlowIdError",
    "RequestIdReusedError",
    "StepAttemptTimeoutError",
    "StorageError",
    "StoredFormatError",
    "UndeclaredNameError",
    "UnknownRpcError",
    "UnstorableValueError",
    "ValueTooLargeError",
]


class DexFlowError(Exception):
    """Base of every error of this package."""


class DefinitionError(DexFlowError, ValueError):
    """A Flow, Step or declaration is wrong; raised when the Flow is built and naming the culprit."""


class UndeclaredNameError(DexFlowError):
    """Pure code used an attribute, channel, stream or Step that its Flow does not declare."""


class FlowNotFoundError(DexFlowError):
    """No Flow execution has this `flow_id`."""

    def __init__(self, flow_id: str) -> None:
        super().__init__(f"no flow with ID {flow_id!r}; start it first")
        self.flow_id = flow_id


class FlowAlreadyStartedError(DexFlowError):
    """A Flow execution with this `flow_id` exists already."""

    def __init__(self, flow_id: str) -> None:
        super().__init__(f"a flow with ID {flow_id!r} exists already; use another ID or talk to the existing one")
        self.flow_id = flow_id


class FlowClosedError(DexFlowError):
    """The Flow execution has ended: it accepts no further command and reaches no further state.

    Attributes:
        flow_id: The execution.
        status: `completed`, `failed` or `stopped`.
        failure: Why it failed or was stopped; None when it completed.
    """

    def __init__(self, flow_id: str, status: str, failure: str | None = None) -> None:
        reason = "" if failure is None else f": {failure}"
        super().__init__(f"flow {flow_id!r} is {status} and accepts no further command{reason}")
        self.flow_id = flow_id
        self.status = status
        self.failure = failure


class InvalidFlowIdError(DexFlowError, ValueError):
    """A `flow_id` is empty, longer than 256 characters, or not valid Unicode text."""


class UnknownRpcError(DexFlowError):
    """The Flow declares no RPC with this name, or a read-only call named a mutating RPC."""


class RequestIdReusedError(DexFlowError):
    """A `request_id` came again with another operation or another input."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request ID {request_id!r} was used for a different request; use a new ID per request")
        self.request_id = request_id


class FlowDefinitionMismatchError(DexFlowError):
    """This process holds no definition of the Flow type, or one that does not fit the stored Flow."""


class StoredFormatError(DexFlowError):
    """Stored data has a format newer than this release can read; upgrade the package to open it."""


class StorageError(DexFlowError):
    """The storage refused a read or a commit (disk full, I/O error, locked); nothing of the command was applied."""


class EngineClosedError(DexFlowError):
    """The engine was used before it was opened or after it was closed."""


class UnstorableValueError(DexFlowError, ValueError):
    """A value has no stored form or is not of its declared type; raised where it is written, before anything is stored.

    Attributes:
        name: What it was for, such as `Attribute('order')`.
        declared_type: The type it should have.
    """

    def __init__(self, name: str, declared_type: Any, reason: Exception) -> None:
        text = declared_type.__name__ if isinstance(declared_type, type) else repr(declared_type)
        super().__init__(f"{name} takes {text}, and this value cannot be stored as that: {reason}")
        self.name = name
        self.declared_type = declared_type


class ValueTooLargeError(DexFlowError, ValueError):
    """A stored value exceeds the engine's limit; carries the name of the value and its size in bytes."""

    def __init__(self, name: str, size: int, limit: int) -> None:
        super().__init__(f"{name} has {size} bytes; the limit is {limit} bytes")
        self.name = name
        self.size = size
        self.limit = limit


class StepAttemptTimeoutError(DexFlowError):
    """A Step attempt ran longer than its attempt timeout."""


class HeartbeatTimeoutError(DexFlowError):
    """A Step attempt sent no heartbeat within its heartbeat timeout."""
