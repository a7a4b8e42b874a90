"""`StateView` and `Transaction` over an overlay, for one piece of pure code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from dex_flow.codec import decode
from dex_flow.decisions import step_type_name
from dex_flow.declarations import Attribute, AttributeMap, Channel, ChannelMap, Stream
from dex_flow.kernel.overlay import Overlay
from dex_flow.kernel.state import timestamp
from dex_flow.steps import RecoveryError
from dex_flow.waits import WaitResult

if TYPE_CHECKING:
    from dex_flow.kernel.machine import Machine

__all__ = ["KernelTransaction", "KernelView"]

Value = TypeVar("Value")

_NO_WAIT = WaitResult(-1, ())


class KernelView:
    """Reads of stored state plus the command's own writes."""

    __slots__ = ("_flow_id", "_now", "_overlay")

    def __init__(self, overlay: Overlay, flow_id: str, now: int) -> None:
        self._overlay = overlay
        self._flow_id = flow_id
        self._now = now

    @property
    def flow_id(self) -> str:
        return self._flow_id

    @property
    def now(self) -> datetime:
        return timestamp(self._now)

    def get(self, attribute: Attribute[Value]) -> Value | None:
        value: Value | None = self._overlay.get(attribute.name, "")
        return value

    def get_instance(self, attribute_map: AttributeMap[Value], key: str) -> Value | None:
        value: Value | None = self._overlay.get(attribute_map.name, key)
        return value

    def read_range(
        self,
        attribute_map: AttributeMap[Value],
        *,
        at_least: str = "",
        below: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[tuple[str, Value]]:
        return self._overlay.read_range(attribute_map.name, at_least, below, limit, newest_first)

    def list_messages(self, channel: Channel[Value], *, limit: int | None = None) -> list[tuple[int, Value]]:
        return self._list(channel.name, "", limit)

    def list_instance_messages(
        self, channel_map: ChannelMap[Value], key: str, *, limit: int | None = None
    ) -> list[tuple[int, Value]]:
        return self._list(channel_map.name, key, limit)

    def count_messages(self, channel: Channel[Any] | ChannelMap[Any], key: str = "") -> int:
        self._overlay.declaration(channel.name)
        return self._overlay.count(channel.name, key)

    def _list(self, name: str, key: str, limit: int | None) -> list[tuple[int, Any]]:
        value_type = self._overlay.declaration(name).value_type
        return [(number, decode(value_type, data)) for number, data in self._overlay.pending(name, key, limit)]


class KernelTransaction(KernelView):
    """A view that also writes, with the context of the Step execution or RPC it runs for."""

    __slots__ = ("_machine", "_recovery_error", "_wait_result", "attempt", "step_execution_id")

    def __init__(
        self,
        machine: Machine,
        step_execution_id: int = 0,
        attempt: int = 0,
        wait_result: WaitResult = _NO_WAIT,
        recovery_error: RecoveryError | None = None,
    ) -> None:
        super().__init__(machine.overlay, machine.flow_id, machine.now)
        self._machine = machine
        self._wait_result = wait_result
        self._recovery_error = recovery_error
        self.step_execution_id = step_execution_id
        self.attempt = attempt

    @property
    def wait_result(self) -> WaitResult:
        return self._wait_result

    @property
    def recovery_error(self) -> RecoveryError | None:
        return self._recovery_error

    def set(self, attribute: Attribute[Value], value: Value) -> None:
        self._overlay.set(attribute.name, "", value)

    def set_instance(self, attribute_map: AttributeMap[Value], key: str, value: Value) -> None:
        self._overlay.set(attribute_map.name, key, value)

    def delete(self, attribute: Attribute[Any]) -> None:
        self._overlay.delete(attribute.name, "")

    def delete_instance(self, attribute_map: AttributeMap[Any], key: str) -> None:
        self._overlay.delete(attribute_map.name, key)

    def publish(self, channel: Channel[Value], value: Value) -> int:
        return self._overlay.publish(channel.name, "", value)

    def publish_instance(self, channel_map: ChannelMap[Value], key: str, value: Value) -> int:
        return self._overlay.publish(channel_map.name, key, value)

    def receive(self, channel: Channel[Value], count: int = 1) -> list[Value]:
        return self._receive(channel.name, "", count)

    def receive_instance(self, channel_map: ChannelMap[Value], key: str, count: int = 1) -> list[Value]:
        return self._receive(channel_map.name, key, count)

    def delete_message(self, channel: Channel[Any] | ChannelMap[Any], message_id: int, key: str = "") -> bool:
        return self._overlay.delete_message(channel.name, key, message_id)

    def purge_messages(self, channel: Channel[Any] | ChannelMap[Any], key: str = "") -> int:
        self._overlay.declaration(channel.name)
        pending = self._overlay.pending(channel.name, key, None)
        for message_id, _ in pending:
            self._overlay.consume(channel.name, key, message_id)
        return len(pending)

    def cancel_steps(self, *steps: Any) -> int:
        ids = tuple(step for step in steps if isinstance(step, int))
        types = tuple(step_type_name(step) for step in steps if not isinstance(step, int))
        return self._machine.cancel_steps(types, ids, except_id=self.step_execution_id)

    def start_step(self, step: Any, input: Any = None) -> int:
        return self._machine.spawn(step_type_name(step), input)

    def emit(self, stream: Stream[Value], event: Value) -> None:
        self._overlay.emit(stream, event)

    def _receive(self, name: str, key: str, count: int) -> list[Any]:
        value_type = self._overlay.declaration(name).value_type
        pending: Sequence[tuple[int, bytes]] = self._overlay.pending(name, key, count)
        if len(pending) < count:
            return []
        values = [decode(value_type, data) for _, data in pending]
        for message_id, _ in pending:
            self._overlay.consume(name, key, message_id)
        return values
