"""The engine port: what runs Flows. `dex_flow.testing.engine_suite` is its executable specification."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from dex_flow.declarations import Attribute, AttributeMap, Stream
from dex_flow.flow import Flow
from dex_flow.rpcs import Rpc
from dex_flow.transaction import StateView

__all__ = ["Engine", "FlowDescription", "FlowStatus", "OpenStepDescription", "StepHistoryEntry", "StreamEvent"]

Value = TypeVar("Value")
Input = TypeVar("Input")
Output = TypeVar("Output")

FlowStatus = Literal["open", "completed", "failed", "stopped"]


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a stream.

    Attributes:
        position: From 1, increasing, without gaps until trimming removes old ones.
        value: The event, decoded as the stream's type.
    """

    position: int
    value: Any


class OpenStepDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One open Step execution."""

    step_execution_id: int
    step_type: str
    status: str
    attempt: int
    due: datetime | None = None
    last_error: str | None = None


class FlowDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One Flow execution as stored."""

    flow_id: str
    flow_type: str
    status: FlowStatus
    started_at: datetime
    updated_at: datetime
    result: Any = None
    failure: str | None = None
    open_steps: tuple[OpenStepDescription, ...] = ()


class StepHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One finished Step method.

    Attributes:
        number: From 1, in commit order; numbers are missing where failures of a Step that was tried very often were
            dropped.
        method: `execute` of an InlineStep, `run` of an ActivityStep, another method when it raised, or `definition`.
        outcome: `succeeded`, `failed`, `lost`, `cancelled`, `skipped` (its `before_run` decided otherwise) or `held`
            (its Flow no longer defines the Step).
        detail: The error text of a failed method.
    """

    number: int
    step_execution_id: int
    step_type: str
    method: str
    attempt: int
    outcome: str
    started_at: datetime
    finished_at: datetime
    detail: str | None = None


class Engine(Protocol):
    """Runs Flows durably. Coroutines raise the typed errors of `dex_flow.errors`."""

    async def start_flow(
        self,
        flow: Flow,
        flow_id: str,
        input: Any = None,
        *,
        request_id: str | None = None,
        already_started: Literal["error", "ignore"] = "error",
    ) -> bool:
        """Start an execution; True when this call started it.

        An execution that exists raises `FlowAlreadyStartedError`, or with `already_started="ignore"` returns False.
        """
        ...

    async def invoke_rpc(
        self, flow: Flow, flow_id: str, rpc: Rpc[Input, Output], input: Input, *, request_id: str | None = None
    ) -> Output:
        """Call an RPC. A repeated `request_id` returns the first answer and changes nothing."""
        ...

    async def get_attribute(self, flow_id: str, attribute: Attribute[Value]) -> Value | None:
        """The committed value, or None."""
        ...

    async def get_attribute_instance(self, flow_id: str, attribute_map: AttributeMap[Value], key: str) -> Value | None:
        """The committed value under `key`, or None."""
        ...

    async def wait_until(
        self, flow_id: str, condition: Callable[[StateView], Value | None], *, timeout: float | None = None
    ) -> Value:
        """Wait until `condition` of a committed state is neither None nor False, and return it.

        `condition` is a plain function. Any engine can wait, also without the Flow's definition. Raises `TimeoutError`,
        naming `condition` and the last status, after `timeout` seconds, and `FlowClosedError` when the execution ended
        otherwise.
        """
        ...

    async def read_stream(
        self, flow_id: str, stream: Stream[Value], *, after: int = 0, limit: int = 1_000
    ) -> list[StreamEvent]:
        """Retained events with a position above `after`, oldest first."""
        ...

    def follow_stream(self, flow_id: str, stream: Stream[Value], *, after: int = 0) -> AsyncIterator[StreamEvent]:
        """Retained events above `after`, then new ones as they come, until the consumer stops or the Flow ends."""
        ...

    async def read_step_history(self, flow_id: str, *, after: int = 0, limit: int = 10_000) -> list[StepHistoryEntry]:
        """Finished Step methods in commit order; of a Step's repeated failures, the first and the last ones."""
        ...

    async def describe_flow(self, flow_id: str) -> FlowDescription:
        """The execution with its open Steps."""
        ...

    async def list_flows(
        self, *, flow_type: str | None = None, status: FlowStatus | None = None, limit: int = 100, after: str = ""
    ) -> Sequence[FlowDescription]:
        """Executions in order of their IDs, those above `after`; open Steps are left out."""
        ...

    async def skip_timer(self, flow_id: str, step_execution_id: int) -> bool:
        """End a Step's timer wait or backoff now; False when it has none."""
        ...

    async def stop_flow(self, flow_id: str, reason: str = "stopped") -> bool:
        """Cancel every Step and close the execution; False when it had ended."""
        ...
