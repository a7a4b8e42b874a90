"""A Flow whose Steps wait for what their input says: channels, keyed channels and timers, any or all of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from dex_flow.decisions import Decision, dead_end, go_to_many, move
from dex_flow.declarations import AttributeMap, Channel, ChannelMap
from dex_flow.flow import Flow
from dex_flow.rpcs import Rpc
from dex_flow.steps import InlineStep
from dex_flow.transaction import StateView, Transaction
from dex_flow.waits import Condition, Timer, Wait

__all__ = [
    "ALERTS",
    "CANCEL",
    "COUNT",
    "DELETE",
    "INBOX",
    "LISTEN",
    "LIST_MESSAGES",
    "PUBLISH",
    "PURGE",
    "RECEIVED",
    "ROOMS",
    "TAKE",
    "Address",
    "Delivery",
    "ListenPlan",
    "Received",
    "WaitPart",
    "mailbox_flow",
]


class WaitPart(msgspec.Struct, frozen=True):
    """One condition: `count` messages in `channel` (under `key`), or a timer when `delay_ms` is given."""

    channel: str = "inbox"
    key: str = ""
    count: int = 1
    delay_ms: int | None = None


class ListenPlan(msgspec.Struct, frozen=True):
    """One Listen Step: its name in the results, and what it waits for."""

    name: str
    parts: list[WaitPart]
    mode: Literal["any_of", "all_of"] = "any_of"


class Received(msgspec.Struct, frozen=True):
    """What ended a wait, and when."""

    index: int
    messages: list[list[str]]
    planned_at: datetime
    woken_at: datetime


class Address(msgspec.Struct, frozen=True):
    """One queue."""

    channel: str = "inbox"
    key: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """Messages to append, or (for `delete`) the ID of one to remove."""

    texts: list[str] = []
    address: Address = Address()
    message_id: int = 0
    count: int = 1


INBOX: Channel[str] = Channel("inbox", str)
ALERTS: Channel[str] = Channel("alerts", str)
ROOMS: ChannelMap[str] = ChannelMap("rooms", str)
RECEIVED: AttributeMap[Received] = AttributeMap("received", Received)
PLANNED: AttributeMap[datetime] = AttributeMap("planned", datetime)
_PLAIN: dict[str, Channel[str]] = {"inbox": INBOX, "alerts": ALERTS}


class OpenMailbox(InlineStep[list[ListenPlan]]):
    """The start Step: begins every Listen of the input, in order."""

    def execute(self, tx: Transaction, input: list[ListenPlan]) -> Decision:
        """Begin them, or nothing."""
        for plan in input:
            tx.set_instance(PLANNED, plan.name, tx.now)
        return go_to_many(*(move(Listen, plan) for plan in input)) if input else dead_end()


class Listen(InlineStep[ListenPlan]):
    """Waits as planned, and records what ended the wait."""

    def wait_for(self, view: StateView, input: ListenPlan) -> Wait:
        """The planned wait; timers count from now."""
        conditions = [_condition(view, part) for part in input.parts]
        return Wait.any_of(*conditions) if input.mode == "any_of" else Wait.all_of(*conditions)

    def execute(self, tx: Transaction, input: ListenPlan) -> Decision:
        """Record the wait's result under the plan's name."""
        result = tx.wait_result
        planned_at = tx.get_instance(PLANNED, input.name) or tx.now
        messages = [list(group) for group in result.messages]
        tx.set_instance(RECEIVED, input.name, Received(result.index, messages, planned_at, tx.now))
        return dead_end()


def _condition(view: StateView, part: WaitPart) -> Condition:
    if part.delay_ms is not None:
        return Timer(view.now + timedelta(milliseconds=part.delay_ms))
    if part.channel == "rooms":
        return ROOMS.receive(part.key, part.count)
    return _PLAIN[part.channel].receive(part.count)


def _publish(tx: Transaction, delivery: Delivery) -> list[int]:
    address = delivery.address
    if address.channel == "rooms":
        return [tx.publish_instance(ROOMS, address.key, text) for text in delivery.texts]
    return [tx.publish(_PLAIN[address.channel], text) for text in delivery.texts]


def _listen(tx: Transaction, plan: ListenPlan) -> int:
    tx.set_instance(PLANNED, plan.name, tx.now)
    return tx.start_step(Listen, plan)


def _cancel(tx: Transaction, step_execution_id: int) -> int:
    return tx.cancel_steps(step_execution_id)


def _list_messages(view: StateView, address: Address) -> list[tuple[int, str]]:
    if address.channel == "rooms":
        return view.list_instance_messages(ROOMS, address.key)
    return view.list_messages(_PLAIN[address.channel])


def _count(view: StateView, address: Address) -> int:
    return view.count_messages(_channel(address), address.key)


def _delete(tx: Transaction, delivery: Delivery) -> bool:
    return tx.delete_message(_channel(delivery.address), delivery.message_id, delivery.address.key)


def _purge(tx: Transaction, address: Address) -> int:
    return tx.purge_messages(_channel(address), address.key)


def _take(tx: Transaction, delivery: Delivery) -> list[str]:
    if delivery.address.channel == "rooms":
        return tx.receive_instance(ROOMS, delivery.address.key, delivery.count)
    return tx.receive(_PLAIN[delivery.address.channel], delivery.count)


def _channel(address: Address) -> Channel[str] | ChannelMap[str]:
    return ROOMS if address.channel == "rooms" else _PLAIN[address.channel]


PUBLISH: Rpc[Delivery, list[int]] = Rpc("publish", _publish, Delivery, list[int])
LISTEN: Rpc[ListenPlan, int] = Rpc("listen", _listen, ListenPlan, int)
CANCEL: Rpc[int, int] = Rpc("cancel", _cancel, int, int)
DELETE: Rpc[Delivery, bool] = Rpc("delete", _delete, Delivery, bool)
PURGE: Rpc[Address, int] = Rpc("purge", _purge, Address, int)
TAKE: Rpc[Delivery, list[str]] = Rpc("take", _take, Delivery, list[str])
COUNT: Rpc[Address, int] = Rpc("count", _count, Address, int, read_only=True)
LIST_MESSAGES: Rpc[Address, list[tuple[int, str]]] = Rpc(
    "list_messages", _list_messages, Address, list[tuple[int, str]], read_only=True
)


def mailbox_flow() -> Flow:
    """A fresh definition; its start input is a list of `ListenPlan`."""
    rpcs: list[Rpc[Any, Any]] = [PUBLISH, LISTEN, CANCEL, DELETE, PURGE, TAKE, COUNT, LIST_MESSAGES]
    return Flow(
        "EngineSuiteMailbox",
        steps=[OpenMailbox(), Listen()],
        start_step=OpenMailbox,
        declarations=[INBOX, ALERTS, ROOMS, RECEIVED, PLANNED],
        rpcs=rpcs,
    )
