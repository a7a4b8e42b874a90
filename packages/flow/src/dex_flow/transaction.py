"""What pure code may do: `StateView` reads, `Transaction` also writes. Everything is one atomic commit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol, TypeVar

from dex_flow.declarations import Attribute, AttributeMap, Channel, ChannelMap, Stream
from dex_flow.steps import RecoveryError
from dex_flow.waits import WaitResult

__all__ = ["StateView", "Transaction"]

Value = TypeVar("Value")


class StateView(Protocol):
    """Reads of one consistent state. What is changed in place is not stored: pass it to `Transaction.set`."""

    @property
    def flow_id(self) -> str:
        """The ID of the Flow execution."""
        ...

    @property
    def now(self) -> datetime:
        """The command's time, aware UTC, never earlier than that of an earlier command."""
        ...

    def get(self, attribute: Attribute[Value]) -> Value | None:
        """The attribute's value, or None when it is unset."""
        ...

    def get_instance(self, attribute_map: AttributeMap[Value], key: str) -> Value | None:
        """The value under `key`, or None when it is unset."""
        ...

    def read_range(
        self,
        attribute_map: AttributeMap[Value],
        *,
        at_least: str = "",
        below: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[tuple[str, Value]]:
        """Keys and values with `at_least <= key < below`, in key order (descending with `newest_first`)."""
        ...

    def list_messages(self, channel: Channel[Value], *, limit: int | None = None) -> list[tuple[int, Value]]:
        """Waiting messages as (message ID, value), oldest first."""
        ...

    def list_instance_messages(
        self, channel_map: ChannelMap[Value], key: str, *, limit: int | None = None
    ) -> list[tuple[int, Value]]:
        """Waiting messages under `key` as (message ID, value), oldest first."""
        ...

    def count_messages(self, channel: Channel[Any] | ChannelMap[Any], key: str = "") -> int:
        """How many messages wait."""
        ...


class Transaction(StateView, Protocol):
    """Reads and writes of one piece of pure code; an exception undoes its writes alone."""

    @property
    def step_execution_id(self) -> int:
        """The Step execution this code belongs to; 0 in an RPC."""
        ...

    @property
    def attempt(self) -> int:
        """The attempt this code belongs to, from 1; 0 in an RPC."""
        ...

    @property
    def wait_result(self) -> WaitResult:
        """What ended this Step's wait."""
        ...

    @property
    def recovery_error(self) -> RecoveryError | None:
        """Why the Step that routed here failed; None unless this Step is a failure route."""
        ...

    def set(self, attribute: Attribute[Value], value: Value) -> None:
        """Set the attribute."""
        ...

    def set_instance(self, attribute_map: AttributeMap[Value], key: str, value: Value) -> None:
        """Set the value under `key`."""
        ...

    def delete(self, attribute: Attribute[Any]) -> None:
        """Unset the attribute."""
        ...

    def delete_instance(self, attribute_map: AttributeMap[Any], key: str) -> None:
        """Unset the value under `key`."""
        ...

    def publish(self, channel: Channel[Value], value: Value) -> int:
        """Append a message and return its ID."""
        ...

    def publish_instance(self, channel_map: ChannelMap[Value], key: str, value: Value) -> int:
        """Append a message under `key` and return its ID."""
        ...

    def receive(self, channel: Channel[Value], count: int = 1) -> list[Value]:
        """Consume the oldest `count` messages, all or nothing: an empty list when there are fewer."""
        ...

    def receive_instance(self, channel_map: ChannelMap[Value], key: str, count: int = 1) -> list[Value]:
        """Consume the oldest `count` messages under `key`, all or nothing."""
        ...

    def delete_message(self, channel: Channel[Any] | ChannelMap[Any], message_id: int, key: str = "") -> bool:
        """Delete one waiting message; False when it is gone."""
        ...

    def purge_messages(self, channel: Channel[Any] | ChannelMap[Any], key: str = "") -> int:
        """Delete every waiting message and return how many there were."""
        ...

    def cancel_steps(self, *steps: Any) -> int:
        """Cancel other open executions by Step class, type name or execution ID; return how many."""
        ...

    def start_step(self, step: Any, input: Any = None) -> int:
        """Begin a Step execution beside the current one and return its ID; what RPCs use."""
        ...

    def emit(self, stream: Stream[Value], event: Value) -> None:
        """Append an event that becomes visible with the commit, after the attempt's flushed live events."""
        ...
