"""A Flow of RPCs over a few attributes: what most tests of starting, calling and reading need."""

from __future__ import annotations

from typing import Any

import msgspec

from dex_flow.decisions import Decision, complete, dead_end, fail
from dex_flow.declarations import Attribute, AttributeMap, Channel
from dex_flow.flow import Flow
from dex_flow.rpcs import Rpc, RpcResult
from dex_flow.steps import InlineStep
from dex_flow.transaction import StateView, Transaction

__all__ = [
    "ABANDON",
    "ADD",
    "ENTRIES",
    "FINISH",
    "OVERWRITTEN",
    "READ_ENTRIES",
    "READ_TOTAL",
    "REFUSE",
    "SPAWN",
    "TOTAL",
    "UNDECLARED",
    "Entry",
    "EntryRange",
    "counter_flow",
]


class Entry(msgspec.Struct, frozen=True):
    """One recorded addition."""

    amount: int
    note: str = ""


class EntryRange(msgspec.Struct, frozen=True):
    """Arguments of a range read."""

    at_least: str = ""
    below: str | None = None
    limit: int | None = None
    newest_first: bool = False


TOTAL: Attribute[int] = Attribute("total", int)
OVERWRITTEN: Attribute[str] = Attribute("overwritten", str)
ENTRIES: AttributeMap[Entry] = AttributeMap("entries", Entry)
REFUSED: Channel[int] = Channel("refused", int)


class BeginCount(InlineStep[int | None]):
    """The start Step: the first total is the start input, or 0 without one."""

    def execute(self, tx: Transaction, input: int | None) -> Decision:
        """Set the total and leave the Flow open."""
        tx.set(TOTAL, input or 0)
        return dead_end()


class AddLater(InlineStep[int]):
    """What the RPC `spawn` begins."""

    def execute(self, tx: Transaction, input: int) -> Decision:
        """Add the input."""
        _add(tx, input)
        return dead_end()


def _add(tx: Transaction, amount: int) -> int:
    total = (tx.get(TOTAL) or 0) + amount
    tx.set(TOTAL, total)
    tx.set_instance(ENTRIES, f"{total:08d}", Entry(amount))
    return total


def _refuse(tx: Transaction, amount: int) -> int:
    _add(tx, amount)
    tx.publish(REFUSED, amount)
    if amount < 0:
        raise ValueError(f"refused to add {amount}")
    return tx.count_messages(REFUSED)


def _spawn(tx: Transaction, amount: int) -> int:
    return tx.start_step(AddLater, amount)


def _finish(tx: Transaction, note: str) -> RpcResult[int]:
    total = tx.get(TOTAL) or 0
    return RpcResult(total, complete({"total": total, "note": note}))


def _abandon(tx: Transaction, reason: str) -> RpcResult[None]:
    tx.set(OVERWRITTEN, reason)
    return RpcResult(None, fail(reason))


def _read_total(view: StateView, _: None) -> int:
    return view.get(TOTAL) or 0


def _read_entries(view: StateView, range: EntryRange) -> list[tuple[str, Entry]]:
    return view.read_range(
        ENTRIES, at_least=range.at_least, below=range.below, limit=range.limit, newest_first=range.newest_first
    )


ADD: Rpc[int, int] = Rpc("add", _add, int, int)
REFUSE: Rpc[int, int] = Rpc("refuse", _refuse, int, int)
SPAWN: Rpc[int, int] = Rpc("spawn", _spawn, int, int)
FINISH: Rpc[str, int] = Rpc("finish", _finish, str, int)
ABANDON: Rpc[str, None] = Rpc("abandon", _abandon, str, type(None))
READ_TOTAL: Rpc[None, int] = Rpc("read_total", _read_total, type(None), int, read_only=True)
READ_ENTRIES: Rpc[EntryRange, list[tuple[str, Entry]]] = Rpc(
    "read_entries", _read_entries, EntryRange, list[tuple[str, Entry]], read_only=True
)
UNDECLARED: Rpc[int, int] = Rpc("undeclared", _add, int, int)


def counter_flow(flow_type: str = "EngineSuiteCounter") -> Flow:
    """A fresh definition; different types are independent."""
    rpcs: list[Rpc[Any, Any]] = [ADD, REFUSE, SPAWN, FINISH, ABANDON, READ_TOTAL, READ_ENTRIES]
    return Flow(
        flow_type,
        steps=[BeginCount(), AddLater()],
        start_step=BeginCount,
        declarations=[TOTAL, OVERWRITTEN, ENTRIES, REFUSED],
        rpcs=rpcs,
    )
