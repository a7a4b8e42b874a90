"""Registered waits: how they are stored, when they hold, and which messages they take."""

from __future__ import annotations

from msgspec import Raw

from dex_flow.codec import decode
from dex_flow.kernel.overlay import Overlay
from dex_flow.kernel.state import OpenStep, StepBody, StoredCondition, microseconds
from dex_flow.waits import Timer, Wait, WaitResult

__all__ = ["NO_WAIT", "consume_satisfied", "stored_conditions", "wait_result"]

NO_WAIT = WaitResult(-1, ())

Message = tuple[int, bytes]


def stored_conditions(wait: Wait, overlay: Overlay) -> tuple[StoredCondition, ...]:
    """The stored form of a wait; raises for an undeclared channel and for a key that cannot be stored."""
    stored = []
    for condition in wait.conditions:
        if isinstance(condition, Timer):
            stored.append(StoredCondition("", "", 0, max(microseconds(condition.due), 1)))
        else:
            overlay.declaration(condition.channel)
            overlay.check_key(condition.channel, condition.key)
            stored.append(StoredCondition(condition.channel, condition.key, condition.count, 0))
    return tuple(stored)


def consume_satisfied(step: OpenStep, overlay: Overlay, now: int) -> tuple[int, tuple[tuple[Raw, ...], ...]] | None:
    """Consume what ends the wait, all or nothing.

    Returns:
        The index of the satisfied condition (-1 when all were needed) and the messages of each condition; None while
        the wait lasts, and then nothing is consumed.
    """
    found = _all_of(step, overlay, now) if step.waits_for_all else _any_of(step, overlay, now)
    if found is None:
        return None
    index, groups = found
    for condition, group in zip(step.wait, groups, strict=True):
        for message_id, _ in group:
            overlay.consume(condition.channel, condition.key, message_id)
    return index, tuple(tuple(Raw(data) for _, data in group) for group in groups)


def _any_of(step: OpenStep, overlay: Overlay, now: int) -> tuple[int, list[list[Message]]] | None:
    for index, condition in enumerate(step.wait):
        messages = _satisfying(condition, overlay, now, 0)
        if messages is not None:
            groups: list[list[Message]] = [[] for _ in step.wait]
            groups[index] = messages
            return index, groups
    return None


def _all_of(step: OpenStep, overlay: Overlay, now: int) -> tuple[int, list[list[Message]]] | None:
    groups = []
    # Two conditions on one channel need two sets of messages.
    taken: dict[tuple[str, str], int] = {}
    for condition in step.wait:
        slot = (condition.channel, condition.key)
        already = taken.get(slot, 0)
        messages = _satisfying(condition, overlay, now, already)
        if messages is None:
            return None
        taken[slot] = already + condition.count
        groups.append(messages)
    return -1, groups


def _satisfying(condition: StoredCondition, overlay: Overlay, now: int, already: int) -> list[Message] | None:
    """The messages that satisfy the condition behind the first `already` ones; None when it does not hold."""
    if not condition.channel:
        return [] if condition.due <= now else None
    if condition.count == 0:
        return []
    needed = already + condition.count
    # A count is cheaper than reading a large batch that is not complete yet.
    if needed > 1 and overlay.count(condition.channel, condition.key) < needed:
        return None
    messages = overlay.pending(condition.channel, condition.key, needed)[already:]
    return messages if len(messages) == condition.count else None


def wait_result(step: OpenStep, body: StepBody, overlay: Overlay) -> WaitResult:
    """What ended the Step's wait, decoded."""
    if not step.wait:
        return NO_WAIT
    if not body.consumed:
        return WaitResult(step.satisfied, ((),) * len(step.wait))
    messages = tuple(
        tuple(decode(overlay.declaration(condition.channel).value_type, data) for data in group)
        for condition, group in zip(step.wait, body.consumed, strict=True)
    )
    return WaitResult(step.satisfied, messages)
