"""What a Step waits for: channel messages and timers, any of them or all of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from dex_flow.errors import DefinitionError

__all__ = ["ChannelCondition", "Condition", "Timer", "Wait", "WaitResult"]


@dataclass(frozen=True, slots=True)
class ChannelCondition:
    """`count` messages are waiting in a channel (or in one key of a channel map)."""

    channel: str
    key: str = ""
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"a channel condition needs a count of 0 or more messages, not {self.count}")


@dataclass(frozen=True, slots=True)
class Timer:
    """The time `due` (aware, UTC) has come. A time that has passed is satisfied at once."""

    due: datetime

    def __post_init__(self) -> None:
        if self.due.tzinfo is None:
            raise ValueError("a timer needs an aware datetime; use datetime.now(timezone.utc) or tx.now")


Condition = ChannelCondition | Timer


@dataclass(frozen=True, slots=True)
class Wait:
    """Conditions in declared order. An `any_of` consumes only its first satisfied condition."""

    mode: Literal["any_of", "all_of"]
    conditions: tuple[Condition, ...]
    nothing: ClassVar[Wait]

    @classmethod
    def any_of(cls, *conditions: Condition) -> Wait:
        """The first satisfied condition, in the order given, ends the wait."""
        if not conditions:
            raise DefinitionError("Wait.any_of needs at least one condition")
        return cls("any_of", conditions)

    @classmethod
    def all_of(cls, *conditions: Condition) -> Wait:
        """All conditions together end the wait; `all_of()` is nothing to wait for."""
        return cls("all_of", conditions)


Wait.nothing = Wait("all_of", ())


@dataclass(frozen=True, slots=True)
class WaitResult:
    """What ended the wait.

    Attributes:
        index: The satisfied condition of an `any_of`, -1 for an `all_of`.
        messages: The consumed messages of each condition, by its index; timers and unsatisfied ones have none.
    """

    index: int
    messages: tuple[tuple[Any, ...], ...]

    @property
    def received(self) -> tuple[Any, ...]:
        """The messages of the satisfied condition (of every condition, in order, for an `all_of`)."""
        if self.index >= 0:
            return self.messages[self.index]
        return tuple(message for group in self.messages for message in group)
